"""Producers with a transactional id in sessions beside Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from processes import eventually
from sessions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    Message,
    Pair,
    Session,
    batch,
    produce_message,
)

TIMEOUT_MS = 60_000
TRANSACTIONAL_ID_NOT_FOUND = 105


class Producer:
    """A transactional id, and the producer id and epoch that it was told last."""

    def __init__(self, session: Session, name: str) -> None:
        self.session, self.name = session, name
        self.producer_id, self.epoch = -1, -1

    def begin(self, version: int = 4, *, timeout_ms: int = TIMEOUT_MS, **expected: int) -> Message:
        """Ask for an id; whoever hears of one is that producer from now on."""
        message = {"transactional_id": self.name, "transaction_timeout_ms": timeout_ms, **expected}
        answer = self.session.ask(INIT_PRODUCER_ID, version, message)
        if answer["error_code"] == 0:
            self.producer_id, self.epoch = answer["producer_id"], answer["producer_epoch"]
        return answer

    def whoever(self, producer_id: int | None = None, epoch: int | None = None) -> Message:
        return {
            "transactional_id": self.name,
            "producer_id": self.producer_id if producer_id is None else producer_id,
            "producer_epoch": self.epoch if epoch is None else epoch,
        }

    def add(self, version: int, topics: dict[str, Iterable[int]], **other: int) -> None:
        named = [{"name": name, "partitions": list(indexes)} for name, indexes in topics.items()]
        whoever = {f"v3_and_below_{field}": value for field, value in self.whoever(**other).items()}
        self.session.ask(ADD_PARTITIONS_TO_TXN, version, {**whoever, "v3_and_below_topics": named})

    def add_offsets(self, version: int, group: str, **other: int) -> None:
        self.session.ask(ADD_OFFSETS_TO_TXN, version, {**self.whoever(**other), "group_id": group})

    def end(self, version: int, *, commit: bool, **other: int) -> None:
        self.session.ask(END_TXN, version, {**self.whoever(**other), "committed": commit})

    def write(self, topic: str, *values: bytes, first: int) -> None:
        records = batch(
            *values,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=first,
            transactional=True,
        )
        message = {**produce_message(topic, records, acks=-1), "transactional_id": self.name}
        self.session.ask(PRODUCE, 9, message)

    def commit_offset(
        self, version: int, group: str, topic: str, offset: int, metadata: str = "m", **more: Any
    ) -> None:
        partitions = [
            {"partition_index": n, "committed_offset": offset, "committed_metadata": metadata} for n in (0, 9)
        ]
        topics = [{"name": topic, "partitions": partitions}]
        message = {**self.whoever(), "group_id": group, "topics": topics, **more}
        if version >= 3:
            message = {"member_id": "", "generation_id": -1, **message}
        self.session.ask(TXN_OFFSET_COMMIT, version, message)

    def describe(self) -> None:
        self.session.ask(DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [self.name]})

    def settle(self) -> None:
        """Wait until all markers of the transaction are written."""

        def is_complete() -> bool:
            answer = self.session.look(DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [self.name]})
            state: str = answer["transaction_states"][0]["transaction_state"]
            return not state.startswith("Prepare")

        eventually(is_complete, what=f"the end of {self.name}'s transaction")


def wait_for_transactions(pair: Pair) -> None:
    """The first to ask for a coordinator makes its topic; afterwards both answer."""
    pair.wait_for_coordinator()

    def is_there(session: Session) -> bool:
        found = session.look(FIND_COORDINATOR, 2, {"key": "any", "key_type": 1})
        asked = {"transactional_ids": ["any"]}
        (state,) = session.look(DESCRIBE_TRANSACTIONS, 0, asked)["transaction_states"]
        return (found["error_code"], state["error_code"]) == (0, TRANSACTIONAL_ID_NOT_FOUND)

    for address in (pair.kafka.address, pair.headrace.addresses[0]):
        session = Session(address)
        eventually(lambda session=session: is_there(session), what="a transaction coordinator")  # type: ignore[misc]
        session.close()
