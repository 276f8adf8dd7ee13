"""What is asked of brokers about transactions: of coordinators their transactional ids, of leaders their producers (KIP-664).

Each question goes to the broker that answers it, found anew where that is another one by now. Every failure is a
ClickException.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from headrace.broker.client.blocking import BlockingLink
from headrace.broker.client.blocking_cluster import ATTEMPTS_MAX, attempts
from headrace.broker.errors import ErrorCode, error_of
from headrace.broker.wire.api import (
    k10_find_coordinator,
    k27_write_txn_markers,
    k61_describe_producers,
    k65_describe_transactions,
    k66_list_transactions,
)
from headrace.broker.wire.client.view import NO_LEADER, by_leader
from headrace.broker.wire.partitions import PartitionKey
from headrace.cli.broker_answers import Silence
from headrace.cli.cluster_admin import ELSEWHERE, ClusterAdmin
from headrace.cli.hanging_transactions import Described, ProducerState
from headrace.cli.shared import some_missing

FIND_VERSION, MARKERS_VERSION, PRODUCERS_VERSION, DESCRIBE_VERSION, LIST_VERSION = 4, 1, 0, 0, 1
TRANSACTION = 1
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
# Partitions or transactional ids that one request names.
ASKED_COUNT_MAX = 1_000
# A leader that never heard of a coordinator takes any coordinator's word.
NO_COORDINATOR_EPOCH, FIRST_COORDINATOR_EPOCH = -1, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Transactional ids, and why brokers that may coordinate further ones do not answer."""

    rows: list[dict[str, Any]]
    silent: Mapping[int, str]

    def whole(self) -> list[dict[str, Any]]:
        """All of them; raises ClickException where some may be missing."""
        if self.silent:
            reasons = ", ".join(f"broker {key} does not answer ({why})" for key, why in self.silent.items())
            raise some_missing("list transactions", f"{reasons}; see that all run, then ask again")
        return self.rows


class TransactionAdmin:
    """Asks through `cluster`, which its owner closes."""

    def __init__(self, cluster: ClusterAdmin) -> None:
        self._cluster = cluster

    def require_alive(self, broker_id: int) -> None:
        """Raise ClickException where there is no such broker."""
        if broker_id not in self._cluster.cluster([]).addresses:
            raise click.ClickException(f"broker {broker_id} is not alive.")

    def listed(
        self, *, states: Sequence[str] = (), producer_ids: Iterable[int] = (), longer_than_ms: int = -1
    ) -> Listing:
        """The transactional ids of all brokers that are alive, in order, as far as the filters let them in.

        Brokers measure a duration from a transaction's beginning whether it has ended or not: of these only open ones are told.
        """
        message = {
            "state_filters": list(states),
            "producer_id_filters": list(producer_ids),
            "duration_filter": longer_than_ms,
        }
        answers = self._cluster.each(lambda _, link: _listed_by(link, message))
        rows = [
            {
                "transactional_id": each["transactional_id"],
                "coordinator": broker_id,
                "producer_id": each["producer_id"],
                "state": each["transaction_state"],
            }
            for broker_id, found in answers.items()
            if not isinstance(found, Silence)
            for each in found
            if longer_than_ms < 0 or each["transaction_state"] in OPEN_STATES
        ]
        return Listing(
            rows=sorted(rows, key=lambda each: each["transactional_id"]),
            silent={key: found.reason for key, found in answers.items() if isinstance(found, Silence)},
        )

    def described(self, transactional_id: str) -> Described | None:
        """What its coordinator says of an id; None where it knows none of that name."""

        def attempt() -> Described | None:
            coordinator = self._coordinator(transactional_id)
            message = {"transactional_ids": [transactional_id]}
            link = self._cluster.broker(coordinator)
            answer = link.ask(k65_describe_transactions.API, DESCRIBE_VERSION, message)
            (state,) = answer["transaction_states"]
            if state["error_code"] == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                return None
            if state["error_code"]:
                raise error_of(state["error_code"])
            return _described(state, coordinator)

        return self._cluster.asked(f"describe transaction {transactional_id}", attempt)

    def of_producers(self, producer_ids: Iterable[int]) -> list[Described]:
        """The transactional ids that these producers have, as their coordinators tell."""
        wanted = sorted(set(producer_ids))
        names = {
            each["transactional_id"]
            for first in range(0, len(wanted), ASKED_COUNT_MAX)
            for each in self.listed(producer_ids=wanted[first : first + ASKED_COUNT_MAX]).whole()
        }
        found = (self.described(name) for name in sorted(names))
        return [each for each in found if each is not None]

    def producers(self, places: Mapping[PartitionKey, int]) -> list[ProducerState]:
        """The producers that the brokers, each named for a partition, remember there; in the order of partitions."""
        found = [
            each
            for broker_id, asked in by_leader(places, places).items()
            for first in range(0, len(asked), ASKED_COUNT_MAX)
            for each in self._producers(broker_id, asked[first : first + ASKED_COUNT_MAX])
        ]
        return sorted(found, key=lambda each: (each.place, each.producer_id))

    def leaders(self, topic: str | None = None, partition: int | None = None) -> dict[PartitionKey, int]:
        """The leader of each partition of the topic, or of all; of those that have one.

        Raises:
            ClickException: there is no such partition, or it has no leader.
        """
        known = self._cluster.cluster(None if topic is None else [topic]).partitions
        led = {place: found.leader for place, found in known.items() if partition in (None, place[1])}
        if topic is not None and not led:
            name = topic if partition is None else f"{topic}-{partition}"
            raise click.ClickException(f"There is no {name}: `headrace topics list` shows all topics.")
        if partition is not None and NO_LEADER in led.values():
            raise click.ClickException(
                f"{topic}-{partition} has no leader now: `headrace cluster status` says what is not well."
            )
        return {place: leader for place, leader in led.items() if leader != NO_LEADER}

    def _producers(self, broker_id: int, places: Sequence[PartitionKey]) -> list[ProducerState]:
        topics = [{"name": name, "partition_indexes": indexes} for name, indexes in _by_topic(places).items()]

        def attempt() -> list[ProducerState]:
            link = self._cluster.broker(broker_id)
            answer = link.ask(k61_describe_producers.API, PRODUCERS_VERSION, {"topics": topics})
            return [
                each
                for topic in answer["topics"]
                for partition in topic["partitions"]
                for each in _producer_states(topic["name"], partition)
            ]

        return self._cluster.asked(f"describe producers of broker {broker_id}", attempt)

    def abort(self, state: ProducerState) -> None:
        """Have the partition's leader write a marker that aborts the producer's transaction there."""
        topic, index = state.place
        is_known = state.coordinator_epoch > NO_COORDINATOR_EPOCH
        marker = {
            "producer_id": state.producer_id,
            "producer_epoch": state.producer_epoch,
            "transaction_result": False,
            "topics": [{"name": topic, "partition_indexes": [index]}],
            "coordinator_epoch": state.coordinator_epoch if is_known else FIRST_COORDINATOR_EPOCH,
        }

        def attempt() -> None:
            link = self._cluster.broker(self.leaders(topic, index)[state.place])
            answer = link.ask(k27_write_txn_markers.API, MARKERS_VERSION, {"markers": [marker]})
            (result,) = answer["markers"]
            error = result["topics"][0]["partitions"][0]["error_code"]
            if error:
                raise error_of(error)

        self._cluster.asked(
            f"abort the transaction of producer {state.producer_id} in {topic}-{index}", attempt
        )

    def _coordinator(self, transactional_id: str) -> int:
        message = {"coordinator_keys": [transactional_id], "key_type": TRANSACTION}
        answer = self._cluster.any().ask(k10_find_coordinator.API, FIND_VERSION, message)
        (found,) = answer["coordinators"]
        if found["error_code"]:
            raise error_of(found["error_code"], found["error_message"] or "")
        return int(found["node_id"])


def _listed_by(link: BlockingLink, message: dict[str, Any]) -> list[dict[str, Any]]:
    """What one broker tells, once it has loaded what it coordinates."""
    for _ in attempts(ATTEMPTS_MAX):
        answer = link.ask(k66_list_transactions.API, LIST_VERSION, message)
        if answer["error_code"] not in ELSEWHERE:
            break
    if answer["error_code"]:
        raise error_of(answer["error_code"])
    if answer["unknown_state_filters"]:
        raise click.ClickException(
            f"list transactions: there is no state {', '.join(answer['unknown_state_filters'])}."
        )
    found: list[dict[str, Any]] = answer["transaction_states"]
    return found


def _described(state: dict[str, Any], coordinator: int) -> Described:
    return Described(
        transactional_id=state["transactional_id"],
        coordinator=coordinator,
        producer_id=state["producer_id"],
        producer_epoch=state["producer_epoch"],
        state=state["transaction_state"],
        timeout_ms=state["transaction_timeout_ms"],
        start_ms=state["transaction_start_time_ms"],
        partitions=tuple(
            (topic["topic"], index) for topic in state["topics"] for index in topic["partitions"]
        ),
    )


def _producer_states(topic: str, partition: dict[str, Any]) -> list[ProducerState]:
    place = topic, partition["partition_index"]
    if partition["error_code"]:
        raise error_of(
            partition["error_code"], f"{topic}-{place[1]}: {partition['error_message'] or 'no answer'}"
        )
    return [
        ProducerState(
            place=place,
            producer_id=each["producer_id"],
            producer_epoch=each["producer_epoch"],
            coordinator_epoch=each["coordinator_epoch"],
            last_sequence=each["last_sequence"],
            last_timestamp_ms=each["last_timestamp"],
            start_offset=each["current_txn_start_offset"],
        )
        for each in partition["active_producers"]
    ]


def _by_topic(places: Iterable[PartitionKey]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, index in places:
        topics.setdefault(topic, []).append(index)
    return topics
