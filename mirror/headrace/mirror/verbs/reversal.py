"""Having topics of this cluster be copies of what were their copies, which other clusters' clients write to since a fail-over.

What was promoted there has written down which cluster's topic it was a copy of (`headrace.mirror`), so nothing has to be named
but the source. A topic that this cluster has still is cut to where both part, and goes on from there, as `restoration` does it;
one that it lost is made anew. The copy keeps its name here: its configuration says what it is the copy of. Raises ClickException.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import click

from headrace.broker.config.copies import MIRROR_CLUSTERS, MIRROR_REMOTE
from headrace.broker.errors import KafkaError
from headrace.mirror import lineage
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.lineage import Standing
from headrace.mirror.memory.orders import Promoted
from headrace.mirror.memory.state import NO_ID
from headrace.mirror.memory.states import States
from headrace.mirror.names import CopyNames
from headrace.mirror.sync.configs import copied
from headrace.mirror.told import copied_source_client, folded, names_of
from headrace.mirror.verbs import restoration
from headrace.mirror.verbs.restoration import Pair, UnfitTopicError, configs_of

FROM_SCRATCH = "delete the topic here, and give the order again"


@dataclass(slots=True, kw_only=True)
class Reversal:
    """`plan` is for topics that there are; `missing` are those to make, with their partition counts and configurations;
    `unfit` says of those that nobody named why they cannot be.
    """

    plan: restoration.Plan = field(default_factory=restoration.Plan)
    missing: dict[str, tuple[int, dict[str, str]]] = field(default_factory=dict)
    unfit: list[UnfitTopicError] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _There:
    """What was promoted at the source: its topics by their standing, their names as copies, what they were copies of."""

    standings: Mapping[str, Standing]
    names: CopyNames
    known: States

    def promoted(self, original: str) -> Promoted:
        return self.known.promoted_of(original) or Promoted("", NO_ID)

    def copies_of(self, topic: str, standing: Standing) -> list[str]:
        """What has, or had, the name of a copy of a topic of this cluster."""
        return [
            name
            for name, found in self.standings.items()
            if found is standing and self.names.original_of(name) == topic
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Here:
    """The cluster whose topics are to be copies of the source's; what it has written down, and what its copies are called."""

    client: ClusterClient
    source: str
    known: States
    names: CopyNames


async def plan(client: ClusterClient, source: str, topics: Sequence[str]) -> Reversal:
    """What is to be done for these topics, or for all that were copied to the source and promoted there, as far as it can be."""
    here = _Here(client=client, source=source, known=await folded(client), names=await names_of(client))
    found = Reversal()
    async with copied_source_client(client, source) as there:
        look = await _look(there)
        for topic in dict.fromkeys(topics) if topics else _all_promoted(look, client.cluster_id):
            try:
                await _add(found, here, there, look, topic)
            except UnfitTopicError as unfit:
                if topics:
                    raise
                found.unfit.append(unfit)
    found.plan.readers = await restoration.readers(client, found.plan.cuts)
    return found


async def _add(found: Reversal, here: _Here, there: ClusterClient, look: _There, topic: str) -> None:
    """Plan what is to be done for one topic."""
    original = _original(look, topic, here.client.cluster_id, here.source)
    remote = f"{here.source}.{original}"
    if not any(name == topic for name, _ in here.client.leaders):
        found.missing[topic] = await _missing(there, original, topic, remote)
        return
    if lineage.standing(await configs_of(here.client, topic), is_remembered=False) is Standing.COPY:
        if here.names.remote_of(topic) != remote:
            raise UnfitTopicError(topic, f"it is a copy already, of {here.names.remote_of(topic)}")
        found.plan.note_copy(topic, is_begun=restoration.is_begun(here.client, here.known, topic))
        return
    pair = Pair(
        topic=topic,
        original=original,
        is_related=True,
        problem=_another(look.promoted(original), here.client, topic),
        from_scratch=FROM_SCRATCH,
    )
    choice = here.source, here.known.choice_of(here.source)
    await restoration.add(found.plan, here.client, there, pair, choice=choice)
    found.plan.marks[topic][MIRROR_REMOTE] = remote


async def _look(there: ClusterClient) -> _There:
    topics = sorted({topic for topic, _ in there.leaders})
    configs = await there.configs_of(topics, (MIRROR_CLUSTERS,))
    standings = {topic: lineage.standing(configs.get(topic, {}), is_remembered=False) for topic in topics}
    return _There(standings=standings, names=await names_of(there), known=await folded(there))


def _all_promoted(look: _There, cluster_id: str) -> list[str]:
    """This cluster's topics whose copies were promoted there."""
    former = (name for name, standing in look.standings.items() if standing is Standing.FORMER)
    return sorted(
        {look.names.original_of(name) for name in former if look.promoted(name).cluster == cluster_id}
    )


def _original(look: _There, topic: str, cluster_id: str, source: str) -> str:
    """The topic of the source that was a copy of this one; of several the one that says which cluster's it was."""
    found = look.copies_of(topic, Standing.FORMER)
    own = [name for name in found if look.promoted(name).cluster == cluster_id]
    if len(own or found) == 1:
        return (own or found)[0]
    if found:
        raise UnfitTopicError(
            topic, f"{' and '.join(found)} of {source} were copies of it: delete all there but one"
        )
    copies = look.copies_of(topic, Standing.COPY)
    if copies:
        raise UnfitTopicError(
            topic,
            f"{copies[0]} of {source} is a copy still: promote it there, with `headrace mirror promote`",
        )
    raise UnfitTopicError(topic, f"{source} has no topic that was promoted from a copy of it")


def _another(promoted: Promoted, here: ClusterClient, topic: str) -> str:
    """Why what was promoted was a copy of another topic, or nothing."""
    if promoted.cluster not in ("", lineage.UNKNOWN_CLUSTER, here.cluster_id):
        return (
            f"its copy was one of the cluster {promoted.cluster}, and this is the cluster {here.cluster_id}"
        )
    own_id = here.topic_ids.get(topic, NO_ID)
    if NO_ID not in (promoted.source_id, own_id) and promoted.source_id != own_id:
        return f"it was deleted and created again since it was copied: {FROM_SCRATCH}"
    return ""


async def _missing(
    there: ClusterClient, original: str, topic: str, remote: str
) -> tuple[int, dict[str, str]]:
    configs = await configs_of(there, original, f"{topic} at its source")
    mark = lineage.mark(lineage.clusters_of(configs), there.cluster_id)
    count = sum(name == original for name, _ in there.leaders)
    return count, {**copied(configs), **mark, MIRROR_REMOTE: remote}


async def create(here: ClusterClient, missing: Mapping[str, tuple[int, dict[str, str]]]) -> None:
    """Make these, as copies that are empty."""
    for topic, (count, configs) in missing.items():
        try:
            await here.create_topic(topic, count, configs)
        except KafkaError as error:
            raise click.ClickException(f"{topic} cannot be created: {error}; try again") from error
