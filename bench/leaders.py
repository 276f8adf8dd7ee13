"""Which partitions of a topic are led, as a client finds out: a broker that answers for a partition leads it.

Asked is for the earliest offset. While leaders move, a sample stands for all, so that the questions themselves keep no
broker busy; that all are led is asked of all.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

import click

from headrace.broker.client.blocking import BlockingLink
from headrace.broker.wire.api import k02_list_offsets
from headrace.broker.wire.client.offsets import LIST_OFFSETS_VERSION, list_offsets, listed_offsets
from headrace.broker.wire.client.view import Address
from headrace.broker.wire.special_values import EARLIEST_TIMESTAMP, NO_EPOCH

SAMPLE_SIZE = 100
AT_ONCE = 250
POLL_SECONDS = 0.02
SECONDS_MAX = 90
ANSWER_SECONDS_MAX = 30


class Leaders:
    """Of one topic on these brokers; a broker that does not answer leads nothing."""

    def __init__(self, topic: str, partitions: int, addresses: Sequence[Address]) -> None:
        self._topic = topic
        self._all = range(partitions)
        self._sample = self._all[:: max(1, partitions // SAMPLE_SIZE)]
        self._links = [BlockingLink(address, "headrace-bench", ANSWER_SECONDS_MAX) for address in addresses]

    def until_led(self) -> float:
        """The moment when a broker answers for every partition."""
        self._until_led(self._sample)
        return self._until_led(self._all)

    def longest_away(self) -> float:
        """From now on, until all partitions are led and only the brokers that lead them are there: for how long nobody
        answered for the one of the sample that was away longest.
        """
        count = len(self._links)
        last = dict.fromkeys(self._sample, time.monotonic())
        longest, deadline = 0.0, time.monotonic() + SECONDS_MAX
        while True:
            asked = time.monotonic()
            led = self._led(self._sample)
            answered = time.monotonic()
            for partition in led:
                longest = max(longest, answered - last[partition])
                last[partition] = asked
            if len(self._links) < count and len(led) == len(self._sample):
                break
            self._wait(deadline, len(self._sample) - len(led))
        return max(longest, self.until_led() - asked)

    def close(self) -> None:
        for link in self._links:
            link.close()

    def _until_led(self, partitions: Collection[int]) -> float:
        missing, deadline = set(partitions), time.monotonic() + SECONDS_MAX
        while missing := missing - self._led(sorted(missing)):
            self._wait(deadline, len(missing))
        return time.monotonic()

    def _wait(self, deadline: float, missing: int) -> None:
        if time.monotonic() > deadline:
            raise click.ClickException(f"{missing} partitions have had no leader for {SECONDS_MAX} s")
        time.sleep(POLL_SECONDS)

    def _led(self, partitions: Sequence[int]) -> set[int]:
        found: set[int] = set()
        for first in range(0, len(partitions), AT_ONCE):
            request = list_offsets(
                {(self._topic, p): NO_EPOCH for p in partitions[first : first + AT_ONCE]}, EARLIEST_TIMESTAMP
            )
            for link in list(self._links):
                try:
                    answer = link.ask(k02_list_offsets.API, LIST_OFFSETS_VERSION, request)
                except OSError:
                    self._links.remove(link)
                    link.close()
                    continue
                found |= {p for (_, p), (error, _) in listed_offsets(answer).items() if not error}
        return found
