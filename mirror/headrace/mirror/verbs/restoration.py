"""Having promoted topics be copies again: what each partition would lose for it, and the orders to the brokers.

A topic is looked at whole, with its source, before anything is ordered. Then each partition's order is written, then the topic
is marked as a copy, so that clients are refused; brokers carry the orders out and remove them. Marked without all orders it
never is, so whatever is broken off goes on, or is ordered anew, when it is given again. Raises ClickException.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from uuid import UUID

import click

from headrace.broker.client.asynchronous import FAILURES
from headrace.broker.errors import KafkaError, OffsetOutOfRangeError, reason_of
from headrace.broker.wire.batches import iter_batches
from headrace.broker.wire.client.view import NO_LEADER
from headrace.broker.wire.partitions import PartitionKey
from headrace.mirror import lineage
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.equality.common_point import CommonPoint
from headrace.mirror.equality.difference import Batch
from headrace.mirror.lineage import Standing
from headrace.mirror.memory import orders
from headrace.mirror.memory.orders import Promoted
from headrace.mirror.memory.state import NO_ID, RESTORE, RestoreOrder, encode_restore, key_of, place_of
from headrace.mirror.memory.states import States
from headrace.mirror.sync import group_offsets
from headrace.mirror.told import copied_source_client, folded, names_of
from headrace.mirror.verbs import ordering
from headrace.mirror.verbs.epoch_renewal import renew

LOOK_SECONDS, RENEW_SECONDS = 0.3, 5.0
MARK_ATTEMPTS_MAX = 20
WITHOUT_MEMBERS = frozenset({"Empty", "Dead", ""})
ALL_GROUPS = re.compile(".*")
FROM_SCRATCH = "delete the topic, and the mirror copies it anew"


class UnfitTopicError(click.ClickException):
    """A topic cannot be made a copy, and nothing is ordered yet."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f"{topic} cannot be made a copy, {reason}; nothing was changed")
        self.topic = topic
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """One partition: its order, where its log ends now, and what its source has beyond the order's offset."""

    topic: str
    partition: int
    order: RestoreOrder
    end: int
    missing: int

    def __str__(self) -> str:
        own, offset = max(0, self.end - self.order.end_offset), self.order.end_offset
        what = f"{own:,} message{'' if own == 1 else 's'} of its own (offsets {offset} to {self.end - 1})"
        return (
            f"{self.topic}-{self.partition} has {what if own else 'no messages of its own'} behind what its source has up "
            f"to offset {offset}; {self.missing:,} of the source's follow there"
        )


@dataclass(slots=True, kw_only=True)
class Plan:
    """`marks` are the topics to restore with their configuration as copies, `cuts` their partitions; `begun` are topics whose
    orders are being carried out, `done` those that are copies; `readers` says which groups read what is cut.
    """

    marks: dict[str, dict[str, str]] = field(default_factory=dict)
    cuts: list[Cut] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    readers: list[str] = field(default_factory=list)

    def note_copy(self, topic: str, *, is_begun: bool) -> None:
        """It is marked as a copy already."""
        (self.begun if is_begun else self.done).append(topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A topic of this cluster and the one that it is to be a copy of, its original; `problem` says why that is another's, if it
    is. `is_related`: both had the same once, by what was written down. `from_scratch` is how to have a copy all the same.
    """

    topic: str
    original: str
    is_related: bool
    problem: str = ""
    from_scratch: str = FROM_SCRATCH


# -- planning


async def plan(here: ClusterClient, topics: Sequence[str]) -> Plan:
    """What is to be done; raises ClickException where one of these topics cannot be restored."""
    known, names = await folded(here), await names_of(here)
    found = Plan()
    async with AsyncExitStack() as stack:
        sources: dict[str, ClusterClient] = {}
        for topic in dict.fromkeys(topics):
            match lineage.standing(await configs_of(here, topic), is_remembered=False):
                case Standing.COPY:
                    found.note_copy(topic, is_begun=is_begun(here, known, topic))
                case Standing.FORMER:
                    name, original = names.source_of(topic), names.original_of(topic)
                    if name not in sources:
                        sources[name] = await stack.enter_async_context(copied_source_client(here, name))
                    there = sources[name]
                    promoted = known.promoted_of(topic)
                    pair = Pair(
                        topic=topic,
                        original=original,
                        is_related=promoted is not None,
                        problem=_another(promoted, there.cluster_id, there.topic_ids.get(original, NO_ID)),
                    )
                    await add(found, here, there, pair, choice=(name, known.choice_of(name)))
                case _:
                    raise UnfitTopicError(topic, "it was never promoted from a copy")
    found.readers = await readers(here, found.cuts)
    return found


def _another(promoted: Promoted | None, cluster_id: str, source_id: UUID) -> str:
    """Why the source is another one than the topic was a copy of, or nothing."""
    if promoted is None:
        return ""
    if promoted.cluster not in ("", lineage.UNKNOWN_CLUSTER, cluster_id):
        return (
            f"it was a copy from the cluster {promoted.cluster}, and its source is the cluster {cluster_id}: "
            "give the addresses of the former"
        )
    if NO_ID not in (promoted.source_id, source_id) and promoted.source_id != source_id:
        return f"its source was deleted and created again since: {FROM_SCRATCH}"
    return ""


async def add(
    found: Plan,
    here: ClusterClient,
    there: ClusterClient,
    pair: Pair,
    *,
    choice: tuple[str, re.Pattern[str] | None],
) -> None:
    """Plan to make a topic the copy of its original; `choice` is the source and which of its topics a person chose.

    Raises ClickException.
    """
    topic, (source, pattern) = pair.topic, choice
    clusters = _clusters(pair, await configs_of(there, pair.original, f"{topic} at its source"))
    partitions = _check(pair, here, there, clusters)
    if not orders.chooses(pattern, pair.original):
        raise UnfitTopicError(topic, f"`headrace mirror topics {source}` has left it out")
    found.cuts += [await _cut(here, there, pair, partition) for partition in partitions]
    found.marks[topic] = lineage.mark(clusters, there.cluster_id)


def _clusters(pair: Pair, configs: dict[str, str]) -> lineage.Clusters:
    """Those that the source's topic came through."""
    if "compact" in configs.get("cleanup.policy", ""):
        reason = f"its source is compacted, so that nothing tells what is its own: {pair.from_scratch}"
        raise UnfitTopicError(pair.topic, reason)
    return lineage.clusters_of(configs)


def _check(pair: Pair, here: ClusterClient, there: ClusterClient, clusters: lineage.Clusters) -> list[int]:
    """The topic's partitions; raises ClickException where they cannot go on as copies."""
    topic, original = pair.topic, pair.original
    if there.cluster_id == here.cluster_id or here.cluster_id in clusters:
        raise UnfitTopicError(
            topic, f"its source's data comes from this cluster (cluster id {here.cluster_id})"
        )
    if pair.problem:
        raise UnfitTopicError(topic, pair.problem)
    own, others = (
        sorted(partition for found, partition in client.leaders if found == name)
        for client, name in ((here, topic), (there, original))
    )
    if len(own) > len(others):
        raise UnfitTopicError(
            topic, f"it has {len(own)} partitions, and its source {len(others)}: {pair.from_scratch}"
        )
    for client, found, partitions in ((here, topic, own), (there, original, own)):
        for partition in partitions:
            if client.leaders[found, partition] == NO_LEADER:
                where = "" if client is here else " at its source"
                raise UnfitTopicError(topic, f"partition {partition} has no leader{where}: wait until it has")
    return own


async def _cut(here: ClusterClient, there: ClusterClient, pair: Pair, partition: int) -> Cut:
    topic = pair.topic
    place, original = (topic, partition), (pair.original, partition)
    start, end = await _extent(here, place, topic)
    source_start, source_end = await _extent(there, original, topic)
    point = CommonPoint(max(start, source_start), min(end, source_end))
    while (wanted := point.wants) is not None:
        point.served(await _batch(there, original, wanted), await _batch(here, place, wanted))
    last = point.last
    is_known = pair.is_related or start == end
    if last is None and not (is_known and start == source_start):
        raise UnfitTopicError(
            topic,
            f"partition {partition} (offsets {start} to {end}) has nothing in common with its source (offsets "
            f"{source_start} to {source_end}): {pair.from_scratch}",
        )
    order = RestoreOrder(
        target_id=here.topic_ids.get(topic, NO_ID),
        source_id=there.topic_ids.get(pair.original, NO_ID),
        end_offset=point.offset,
        epoch=-1 if last is None else last.leader_epoch,
        epoch_start=-1 if last is None else last.base_offset,
    )
    missing = max(0, source_end - point.offset)
    return Cut(topic=topic, partition=partition, order=order, end=end, missing=missing)


async def _extent(client: ClusterClient, place: PartitionKey, topic: str) -> tuple[int, int]:
    """Log start and high watermark; raises ClickException while a new leader does not know them."""
    key = f"{place[0]}-{place[1]}"
    starts, ends = await client.log_starts([place]), await client.log_ends([place])
    if key not in starts or key not in ends:
        raise UnfitTopicError(topic, f"the leader of {key} does not know yet what is committed: try again")
    return starts[key], ends[key]


async def _batch(client: ClusterClient, place: PartitionKey, offset: int) -> Batch | None:
    """The batch that holds an offset, or the next one; None where the log no longer has the offset."""
    try:
        records = await client.fetch(*place, offset, size_max=1)
    except OffsetOutOfRangeError:
        return None
    for position, header in iter_batches(records):
        return Batch(header, memoryview(bytes(records[position : position + header.size])))
    return None


async def readers(here: ClusterClient, cuts: Sequence[Cut]) -> list[str]:
    """Groups that read what is cut, in words; raises ClickException where one that read these topics has members."""
    offsets = {(cut.topic, cut.partition): cut.order.end_offset for cut in cuts}
    found = []
    for group, coordinator in (await group_offsets.groups(here, ALL_GROUPS)).items() if cuts else ():
        read = {
            place: told.offset
            for place, told in (await group_offsets.committed(here, coordinator, group)).items()
            if place in offsets
        }
        if read and await group_offsets.state_of(here, coordinator, group) not in WITHOUT_MEMBERS:
            raise UnfitTopicError(min(read)[0], f"group {group} has members and reads it here: stop them")
        found += [
            f"Group {group} has read {place[0]}-{place[1]} up to offset {offset}, behind the {offsets[place]} that are kept: "
            f"unless it is deleted (`headrace groups delete {group}`) it skips the source's messages between them"
            for place, offset in sorted(read.items())
            if offset > offsets[place]
        ]
    return found


# -- doing


async def order(here: ClusterClient, found: Plan) -> None:
    """Give the orders, then mark the topics as copies."""
    for topic, mark in found.marks.items():
        for cut in (cut for cut in found.cuts if cut.topic == topic):
            key = key_of(place_of(cut.topic, cut.partition), RESTORE)
            await ordering.publish(here, key, RESTORE, encode_restore(cut.order))
        await _mark(here, topic, mark)


async def _mark(here: ClusterClient, topic: str, mark: Mapping[str, str]) -> None:
    """Set what makes a topic a copy, again where a broker dies meanwhile, which may have done it."""
    failure: Exception = TimeoutError()
    for attempt in range(MARK_ATTEMPTS_MAX):
        try:
            if attempt:
                await asyncio.sleep(LOOK_SECONDS)
                await here.refresh()
            await here.set_topic_configs(topic, mark)
        except FAILURES as error:
            failure = error
        except KafkaError as error:
            failure = error
            break
        else:
            return
    reason = reason_of(failure)
    raise click.ClickException(
        f"{topic} was not made a copy: {reason}; give the same order again"
    ) from failure


async def until_done(here: ClusterClient, topics: Collection[str], timeout_seconds: float) -> None:
    """Wait until the brokers have carried the orders of these topics out, and see that they can."""
    now = asyncio.get_running_loop().time
    deadline, renew_at = now() + timeout_seconds, now()
    while True:
        left, problem = [next(iter(topics))], ""
        try:
            await here.refresh()
            places = _left(here, await folded(here), topics)
            left = sorted({topic for topic, _ in places})
            if left and now() >= renew_at:
                renew_at = now() + RENEW_SECONDS
                problem = await renew(here, places)
        except (*FAILURES, KafkaError) as error:
            problem = reason_of(error)
        if not left:
            return
        if now() >= deadline:
            raise click.ClickException(
                f"{left[0]} is not a copy yet after {timeout_seconds:g} s{f' ({problem})' if problem else ''}: "
                "`headrace mirror status` says what its partitions wait for; give the same order again"
            )
        await asyncio.sleep(LOOK_SECONDS)


def is_begun(here: ClusterClient, known: States, topic: str) -> bool:
    """Whether the topic has orders that are not carried out."""
    return any(_left(here, known, [topic]))


def _left(here: ClusterClient, known: States, topics: Collection[str]) -> list[PartitionKey]:
    """The partitions of these topics whose orders are not carried out."""

    def target_id(topic: str) -> UUID:
        return here.topic_ids.get(topic, NO_ID)

    return sorted(
        (topic, partition)
        for topic, partition in here.leaders
        if topic in topics and known.restore_of(place_of(topic, partition), target_id(topic)) is not None
    )


async def configs_of(client: ClusterClient, topic: str, what: str = "") -> dict[str, str]:
    """A topic's configuration; raises ClickException."""
    try:
        return await client.topic_configs(topic)
    except KafkaError as error:
        raise click.ClickException(f"{what or topic} cannot be read: {error}; nothing was changed") from error
