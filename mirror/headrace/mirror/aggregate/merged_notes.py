"""Whose messages are in the topics of a cluster that keeps no such mark at them: records of its `headrace.mirror`, where members
write them before the first message is brought. A source is asked for its own, so that nothing goes round and round between two
clusters of another engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from headrace.broker.client.asynchronous import FAILURES
from headrace.broker.config.copies import MERGED_CLUSTERS
from headrace.broker.errors import KafkaError
from headrace.broker.structured_log import get_logger
from headrace.mirror import lineage
from headrace.mirror.aggregate.wire_cluster import RELEASE
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.memory import orders
from headrace.mirror.memory.own_topics import STATES, WRITTEN_PARTITION
from headrace.mirror.source import CONFIG_MAX_AGE_MS, Source, SourceTopic

logger = get_logger(__name__)
Notes = Mapping[str, frozenset[str]]
"""Topic → the ids of the clusters whose messages are brought into it."""


def folded(pairs: Iterable[tuple[bytes | None, bytes | None]]) -> dict[str, frozenset[str]]:
    """What records of `headrace.mirror` say; those about other things are passed over."""
    found: dict[str, frozenset[str]] = {}
    for key, value in pairs:
        subject, _, what = (key or b"").decode(errors="replace").partition(orders.SEPARATOR)
        if what == orders.MERGED and value is not None:
            try:
                found[subject] = orders.decode_merged(value)
            except ValueError as error:
                logger.warning("record is passed over", topic=STATES, reason=error)
    return found


def marked(topics: Mapping[str, SourceTopic], notes: Notes) -> dict[str, SourceTopic]:
    """The topics with what is noted of them, as if they were marked."""
    return {name: _marked(topic, notes.get(name, frozenset())) for name, topic in topics.items()}


def _marked(topic: SourceTopic, noted: frozenset[str]) -> SourceTopic:
    if not (noted and topic.configs):
        return topic
    mark = lineage.with_merged(topic.configs, {MERGED_CLUSTERS: ",".join(sorted(noted))})
    return replace(topic, configs={**topic.configs, **mark})


class SourceNotes:
    """A source's own, looked at once a minute."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._notes: Notes = {}
        self._looked_ms: int | None = None

    async def look(self) -> bool:
        """Have the source's topics marked by what is noted there; False while it does not answer."""
        now_ms = self._source.clock.monotonic_ms()
        if self._looked_ms is None or now_ms - self._looked_ms >= CONFIG_MAX_AGE_MS:
            try:
                self._notes = await self._read()
            except (*FAILURES, KafkaError) as error:
                logger.warning(
                    "source does not tell whose messages it has",
                    source=self._source.config.name,
                    reason=repr(error),
                )
                return False
            self._looked_ms = now_ms
        self._source.topics = marked(self._source.topics, self._notes)
        return True

    async def _read(self) -> Notes:
        source = self._source
        addresses = [*source.addresses.values()]
        async with ClusterClient(addresses, source.client_id, source.config.security) as client:
            if (STATES, WRITTEN_PARTITION) not in client.leaders:
                return {}
            if RELEASE in await client.broker_configs(min(client.brokers), (RELEASE,)):
                return {}  # It keeps marks.
            records = (await client.read(STATES)).get(WRITTEN_PARTITION, [])
            return folded((record.key, record.value) for record in records)
