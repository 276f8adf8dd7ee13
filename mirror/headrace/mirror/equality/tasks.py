"""What `headrace mirror verify` has to compare: which copies, and between which offsets, asked of both clusters.

A copy that cannot be compared is a verdict at once. Raises ClickException for what was named and is no copy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import click

from headrace.broker.client.asynchronous import FAILURES
from headrace.broker.config.copies import MIRROR_CLUSTERS, MIRROR_REMOTE
from headrace.broker.errors import KafkaError, reason_of
from headrace.broker.wire.partitions import PartitionKey
from headrace.mirror import lineage
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.equality import verification
from headrace.mirror.equality.verification import Extents, PassedOver, Result, Verdict
from headrace.mirror.equality.verifier import Task
from headrace.mirror.lineage import Standing
from headrace.mirror.memory.state import State, topic_of
from headrace.mirror.names import CopyNames, named_of
from headrace.mirror.questions import UNKNOWN
from headrace.mirror.source_access import client_of
from headrace.mirror.told import findings_of, folded, newest, reports_of

POLICY, COMPACT = "cleanup.policy", "compact"
COPIES = frozenset({Standing.COPY, Standing.UNMARKED})
Configs = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to compare, what cannot be, and what makes clients of each source."""

    tasks: Sequence[Task]
    verdicts: Sequence[Verdict]
    sources: Mapping[str, Callable[[], ClusterClient]]


async def plan(
    client: ClusterClient, topics: Sequence[str], source: str | None, since_ms: int | None
) -> Plan:
    """For these copies, or all; of one source, or of all; from a time on, or from where both logs begin."""
    states = newest(await folded(client), client)
    known = {place for place in client.leaders if f"{place[0]}-{place[1]}" in states}
    configs = await client.configs_of(
        sorted({topic for topic, _ in known} | set(topics)), (POLICY, MIRROR_CLUSTERS, MIRROR_REMOTE)
    )
    names = named_of(configs)
    wanted = _wanted(known, configs, topics, source, names)
    bootstraps = {names.source_of(topic_of(place)): state.source_bootstrap for place, state in states.items()}
    for report in (await reports_of(client)).values():
        bootstraps |= {told.name: told.bootstrap for told in report.sources}
    passed = verification.passed_over(await findings_of(client))
    copies = _Side(await client.log_starts(wanted), await client.log_ends(wanted), configs)
    found: list[Task | Verdict] = []
    sources = {}
    for name in sorted({names.source_of(topic) for topic, _ in wanted}):
        mine = [place for place in wanted if names.source_of(place[0]) == name]
        sources[name] = partial(client_of, name, bootstraps[name])
        try:
            async with sources[name]() as there:
                look = await _Look.at(there, mine, since_ms, names)
        except (*FAILURES, KafkaError) as error:
            reason = f"{name} at {bootstraps[name]} does not answer ({reason_of(error)})"
            found += [_refused(place, name, reason) for place in mine]
        else:
            found += [look.plan(place, copies, states, passed) for place in mine]
    return Plan(
        tasks=[one for one in found if isinstance(one, Task)],
        verdicts=[one for one in found if isinstance(one, Verdict)],
        sources=sources,
    )


def _wanted(
    known: Collection[PartitionKey],
    configs: Configs,
    topics: Sequence[str],
    source: str | None,
    names: CopyNames,
) -> list[PartitionKey]:
    """The copies to compare; raises ClickException unless all that were named are copies, and the source has some."""
    remembered = {topic for topic, _ in known}
    standings = {
        topic: lineage.standing(values, is_remembered=topic in remembered)
        for topic, values in configs.items()
    }
    for topic in topics:
        if topic not in standings:
            raise click.ClickException(
                f"there is no topic {topic}; `headrace mirror status` shows the copies that there are"
            )
        if standings[topic] is Standing.FORMER:
            raise click.ClickException(
                f"{topic} was promoted to a topic of this cluster: what clients write to it no source has"
            )
        if topic not in remembered:
            raise click.ClickException(
                f"{topic} is no mirror's copy; `headrace mirror status` shows those there are"
            )
    copies = sorted(place for place in known if standings.get(place[0]) in COPIES)
    sources = {names.source_of(topic) for topic, _ in copies}
    if source is not None and source not in sources:
        others = ", ".join(sorted(sources)) or "none"
        raise click.ClickException(f"there are no copies of {source}; there are copies of: {others}")
    return [
        place
        for place in copies
        if (not topics or place[0] in topics) and source in (None, names.source_of(place[0]))
    ]


def _refused(place: PartitionKey, source: str, reason: str, result: Result = Result.NOT_COMPARED) -> Verdict:
    return Verdict(place=place, source=source, result=result, reason=reason)


@dataclass(frozen=True, slots=True)
class _Side:
    """Of one cluster: starts and ends of logs by `<topic>-<partition>`, the topics' policies."""

    starts: Mapping[str, int]
    ends: Mapping[str, int]
    configs: Configs

    def is_led(self, place: str) -> bool:
        return place in self.starts and place in self.ends

    def is_compacted(self, topic: str) -> bool:
        return COMPACT in self.configs.get(topic, {}).get(POLICY, "").split(",")


@dataclass(frozen=True, slots=True)
class _Look:
    """What a source said; `since` is where its messages of the time begin, None where all are wanted."""

    listed: Collection[PartitionKey]
    side: _Side
    since: Mapping[str, int] | None
    names: CopyNames

    @classmethod
    async def at(
        cls, there: ClusterClient, copies: Sequence[PartitionKey], since_ms: int | None, names: CopyNames
    ) -> _Look:
        """Raises FAILURES and KafkaErrors."""
        places = [(names.original_of(topic), partition) for topic, partition in copies]
        listed = [place for place in places if place in there.leaders]
        configs = await there.configs_of(sorted({topic for topic, _ in listed}), (POLICY,))
        side = _Side(await there.log_starts(listed), await there.log_ends(listed), configs)
        since = None if since_ms is None else await there.offsets_since(since_ms, listed)
        return cls(frozenset(listed), side, since, names)

    def plan(
        self, place: PartitionKey, copies: _Side, states: Mapping[str, State], passed: PassedOver
    ) -> Task | Verdict:
        """What to do about a copy."""
        original, source = (self.names.original_of(place[0]), place[1]), self.names.source_of(place[0])
        here, there = f"{place[0]}-{place[1]}", f"{original[0]}-{original[1]}"
        if original not in self.listed:
            return _refused(place, source, "the source does not list it", Result.NOTHING)
        for side, key, name in ((copies, here, "the offline cluster"), (self.side, there, "the source")):
            if not side.is_led(key):
                return _refused(place, source, f"no broker of {name} leads it")
        since = 0 if self.since is None else self.since.get(there, UNKNOWN)
        return Task(
            place=place,
            original=original,
            source=source,
            extents=Extents(
                source_start=self.side.starts[there],
                source_end=self.side.ends[there],
                copy_start=copies.starts[here],
                copy_end=copies.ends[here],
                next_offset=states[here].next_offset(copies.ends[here]),
                since=self.side.ends[there] if since == UNKNOWN else since,
            ),
            passed=passed.get((source, *original), ()),
            is_compacted=copies.is_compacted(place[0]) or self.side.is_compacted(original[0]),
        )
