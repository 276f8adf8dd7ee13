"""A report of some topics and producers alone: what of an outcome is about them, and the verdict that follows from it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from headrace.audit.ledger.ledger import Ledger
from headrace.audit.outcome import Outcome, verdict_of, verdicts
from headrace.audit.windows import ProducerName, Stream


class Choice(NamedTuple):
    """Topics by their own name or as `<datacenter>.<topic>`, producers by uuid, server, service or host; none: all."""

    topics: Collection[str]
    producers: Collection[str]

    def has_topic(self, datacenter: str, topic: str) -> bool:
        return not self.topics or topic in self.topics or f"{datacenter}.{topic}" in self.topics

    def has_producer(self, producer: str, names: Mapping[str, ProducerName]) -> bool:
        return not self.producers or bool({producer, *names.get(producer, ())[:3]} & set(self.producers))

    def unknown(self, outcome: Outcome, names: Mapping[str, ProducerName]) -> list[str]:
        """Return the chosen names that nothing of an outcome goes by."""
        topics = {
            name
            for datacenter, topic in (*outcome.topics, *outcome.batches, *outcome.aggregates)
            for name in (topic, f"{datacenter}.{topic}")
        }
        producers = {name for producer, place in names.items() for name in (producer, *place[:3])}
        return sorted({*self.topics} - topics) + sorted({*self.producers} - producers)

    def absent(self, outcome: Outcome, ledger: Ledger) -> list[str]:
        """Return the chosen producers of which nothing is known in any of the chosen topics."""
        if not self.topics:
            return []
        found = {
            *ledger.streams(),
            *ledger.facts.gone,
            *(item.stream for item in outcome.findings),
            *(Stream(item.datacenter, item.topic, item.producer) for item in outcome.incomplete),
        }
        writers = {
            stream.producer_name for stream in found if self.has_topic(stream.datacenter, stream.topic)
        }
        present = {
            name for producer in writers for name in (producer, *ledger.producers.get(producer, ())[:3])
        }
        return sorted({*self.producers} - present)


def chosen(outcome: Outcome, choice: Choice, names: Mapping[str, ProducerName]) -> Outcome:
    """Return what is about the chosen ones; of what has no topic or producer nobody knows that it is not.

    The numbers are those of whole topics: what a producer of the past published is no longer known by itself.
    """
    found = replace(
        outcome,
        topics={key: counts for key, counts in outcome.topics.items() if choice.has_topic(*key)},
        batches={key: found for key, found in outcome.batches.items() if choice.has_topic(*key)},
        aggregates={key: found for key, found in outcome.aggregates.items() if choice.has_topic(*key)},
        further={
            name: replace(
                found,
                topics={key: counts for key, counts in found.topics.items() if choice.has_topic(*key)},
            )
            for name, found in outcome.further.items()
        },
        off={key for key in outcome.off if choice.has_topic(*key)},
        hops={key: counts for key, counts in outcome.hops.items() if choice.has_topic(*key[:2])},
        uncounted={item for item in outcome.uncounted if choice.has_topic(*item[1:])},
        findings=[
            item
            for item in outcome.findings
            if choice.has_topic(item.stream.datacenter, item.stream.topic)
            and (not item.stream.producer or choice.has_producer(item.stream.producer, names))
        ],
        incomplete=[
            item
            for item in outcome.incomplete
            if (not item.topic or choice.has_topic(item.datacenter, item.topic))
            and (not item.producer or choice.has_producer(item.producer, names))
        ],
    )
    found.verdict = verdict_of(item.verdict for item in verdicts(found))
    return found
