"""The controller's commands as requests: made once for several brokers, in pieces, in the versions that these understand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pytest

from headrace.broker.replication import events as ev
from headrace.broker.replication.model import RECOVERING, Broker, Endpoint, PartitionState, ReplicaAssignment
from headrace.broker.replication.requests import PARTITIONS_PER_REQUEST_MAX, Command, Maker, SharedRequest
from headrace.broker.replication.versions import versions_of
from headrace.broker.wire.api import APIS

COUNT = 2 * PARTITIONS_PER_REQUEST_MAX + 1
ALIVE = Broker(
    broker_id=1,
    epoch=10,
    endpoints=(Endpoint(listener="PLAINTEXT", security_protocol="PLAINTEXT", host="h", port=9092),),
)
RELEASES = ("3.0", "3.2", "3.9")


def maker(release: str = "3.9") -> Maker:
    return Maker(controller_id=3, controller_epoch=7, listener="PLAINTEXT", versions=versions_of(release))


def words(count: int = COUNT) -> tuple[ev.PartitionWord, ...]:
    state = PartitionState(
        leader=1,
        leader_epoch=4,
        isr=(1, 2),
        controller_epoch=7,
        zk_version=9,
        leader_recovery_state=RECOVERING,
    )
    assignment = ReplicaAssignment(replicas=(1, 2), adding=(2,))
    return tuple(
        ev.PartitionWord(topic="t", topic_id=UUID(int=5), partition=p, state=state, assignment=assignment)
        for p in range(count)
    )


def commands(found: tuple[ev.PartitionWord, ...], broker_id: int) -> Iterable[Command]:
    to: dict[str, Any] = {"broker_id": broker_id, "broker_epoch": 100 + broker_id}
    yield ev.SendLeaderAndIsr(**to, partitions=found, leaders=(ALIVE,))
    yield ev.SendUpdateMetadata(**to, partitions=found, brokers=(ALIVE,))
    yield ev.SendStopReplica(**to, partitions=tuple(("t", w.partition, 4) for w in found), delete=False)


def decoded(request: SharedRequest, broker_epoch: int) -> dict[str, Any]:
    return APIS[request.key].decode_request(
        request.version, request.encode_request(request.version, broker_epoch)
    )


@pytest.mark.parametrize("release", RELEASES)
def test_what_is_sent_is_what_was_made_for_that_broker(release: str) -> None:
    for command in commands(words(3), broker_id=2):
        ((_, request),) = maker(release).requests(command)
        for broker_epoch in (102, 2**62, -1):
            api = APIS[request.key]
            plain = api.encode_request(request.version, request.message(broker_epoch))
            assert request.encode_request(request.version, broker_epoch) == plain
            message = decoded(request, broker_epoch)
            assert (message["broker_epoch"], message["controller_epoch"]) == (broker_epoch, 7)


@pytest.mark.parametrize("release", RELEASES)
def test_the_releases_have_their_versions(release: str) -> None:
    versions = versions_of(release)
    found = {
        request.key: request.version
        for command in commands(words(1), broker_id=1)
        for _, request in maker(release).requests(command)
    }
    assert found == {4: versions.leader_and_isr, 6: versions.update_metadata, 5: versions.stop_replica}


def test_brokers_before_3_2_hear_nothing_of_leaders_that_recover() -> None:
    for release, recovery in (("3.1", 0), ("3.2", RECOVERING)):
        ((_, request),) = maker(release).requests(next(iter(commands(words(1), broker_id=1))))
        (topic,) = decoded(request, 5)["topic_states"]
        assert topic["partition_states"][0]["leader_recovery_state"] == recovery


def test_many_partitions_are_told_in_pieces_that_are_together_all_of_them() -> None:
    for command in commands(words(), broker_id=2):
        pieces = maker().requests(command)
        assert [len(piece.partitions) for piece, _ in pieces] == [PARTITIONS_PER_REQUEST_MAX] * 2 + [1]
        told = [
            state["partition_index"]
            for _, request in pieces
            for topic in decoded(request, 1)["topic_states"]
            for state in topic["partition_states"]
        ]
        assert told == list(range(COUNT))


def test_the_next_broker_gets_the_requests_of_the_one_before() -> None:
    found, making = words(), maker()
    first = [[request for _, request in making.requests(c)] for c in commands(found, broker_id=1)]
    second = [[request for _, request in making.requests(c)] for c in commands(found, broker_id=2)]
    assert first[:2] == second[:2]
    assert first[0] is not second[0]


def test_another_command_is_another_request() -> None:
    found, making = words(3), maker()
    command = next(iter(commands(found, broker_id=1)))
    assert isinstance(command, ev.SendLeaderAndIsr)
    ((_, request),) = making.requests(command)
    others: list[Command] = [
        ev.SendLeaderAndIsr(broker_id=2, broker_epoch=1, partitions=words(3), leaders=(ALIVE,)),
        ev.SendLeaderAndIsr(broker_id=2, broker_epoch=1, partitions=found, leaders=()),
    ]
    for other in others:
        assert [r for _, r in making.requests(other)] != [request]
    making.requests(command)
    making.done()
    assert [r for _, r in making.requests(command)] != [request]


def test_a_broker_that_is_told_of_no_partition_is_told_who_is_alive() -> None:
    command = ev.SendUpdateMetadata(broker_id=1, broker_epoch=1, partitions=(), brokers=(ALIVE,))
    ((_, request),) = maker().requests(command)
    assert [b["id"] for b in decoded(request, 1)["live_brokers"]] == [1]
