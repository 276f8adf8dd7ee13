"""Random fetches: whole answers of both brokers are the same, whatever happens before and while a client waits for them.

    HEADRACE_FETCH_SEEDS=0-299 pytest tests/conformance/test_conformance_random_fetches.py

runs others than the fixed ones. A failure prints its seed, a shrunk script, what differs at the end of it, and what replays it.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from random_fetches import LONG_WAIT_MS, SESSION_VERSION, Fetching, Generator
from random_runs import Broker, RandomSession, fitting
from random_scripts import check_session, short_seeds
from random_steps import SessionId, Step
from sessions import API_VERSIONS, FETCH, Message, Pair

from headrace.broker.wire.api import APIS

# Shrinking takes five minutes at most.
pytestmark = pytest.mark.timeout(900)
SEEDS = (5, 7, 18, 21)
ROUND_TRIPS_COUNT = 3


class FetchingClient(RandomSession):
    """One connection that fetches; it knows the topics as the run's own session learns them."""

    def __init__(self, broker: Broker, prefix: str, run: RandomSession) -> None:
        super().__init__(broker, prefix)
        self._topic_ids, self.names, self._identities = run._topic_ids, run.names, run._identities
        self._asked: Message = {}
        self._began = 0.0

    def begin(self, step: Step) -> None:
        self._asked = fitting(APIS[FETCH].request, step.version, self._filled(step.message))
        self._is_converted = step.version <= 3
        self.send_only(self.frame(FETCH, step.version, self._asked))
        self._began = time.monotonic()

    def end(self, step: Step, deleted: str | None) -> tuple[str, Message]:
        """(label, the answer, and whether it was there before a long wait was over)."""
        answer = self.next_answer(FETCH, step.version)
        is_early = (time.monotonic() - self._began) * 1000 < LONG_WAIT_MS
        if answer and step.version >= SESSION_VERSION:
            self._note_fetch_session(self._asked, answer)
        label, comparable = self.transcript[-1]
        found = self._own(step, {"session_epoch": -1, **self._asked}, comparable)
        if isinstance(found, dict):
            for topic in found["responses"]:
                topic["partitions"] = self._once(topic, deleted)
        return label, {"answer": found, "is early": is_early}

    def _once(self, topic: Message, deleted: str | None) -> list[Any]:
        """The topic's partitions, each once: where a request names one twice, Kafka takes it for one."""
        if deleted is not None and str(topic.get("topic") or topic.get("topic_id")) in self._told_of(deleted):
            return ["of a topic that goes"]
        first_last = reversed(topic["partitions"])
        return list({each["partition_index"]: each for each in first_last}.values())[::-1]

    def _told_of(self, deleted: str) -> tuple[str, ...]:
        return self._named(deleted), f"id of {self._named(deleted)}", "id of no known topic"

    def end_fetch_session(self) -> None:
        # An answer may still be on its way to the old one.
        self.close()
        message = {"session_id": SessionId(0), "session_epoch": -1, "max_wait_ms": 0}
        step = Step(FETCH, SESSION_VERSION, message)
        self.begin(step)
        self.end(step, None)
        self.close()


class FetchRun(RandomSession):
    """One broker's side: two connections that fetch, and one by which everything else happens."""

    def __init__(self, broker: Broker, prefix: str) -> None:
        super().__init__(broker, prefix)
        self._clients = [FetchingClient(broker, prefix, self) for _ in range(2)]

    def perform(self, step: Step | Fetching) -> tuple[str, Any]:
        if isinstance(step, Step):
            return super().perform(step)
        client = self._clients[step.connection]
        client.begin(step.fetch)
        if step.meanwhile:
            # By then the broker has the request that waits, whomever it serves first.
            for _ in range(ROUND_TRIPS_COUNT):
                self.look(API_VERSIONS, 0)
        meanwhile = [super(FetchRun, self).perform(each) for each in step.meanwhile]
        if not step.stays:
            client.close()
            return f"{len(meanwhile)} steps, then gone", meanwhile
        label, found = client.end(step.fetch, step.deleted)
        return f"{label} of connection {step.connection}", {**found, "meanwhile": meanwhile}

    def clean_up(self) -> None:
        for client in self._clients:
            client.end_fetch_session()
        super().clean_up()


@pytest.mark.parametrize("seed", short_seeds(1, SEEDS, "HEADRACE_FETCH_SEEDS"))
def test_random_fetches(pair: Pair, seed: int) -> None:
    check_session(pair, seed, Generator, FetchRun)
