"""What the broker does for a part that is embedded in it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.broker.errors import NotEnoughReplicasError, NotLeaderOrFollowerError, PolicyViolationError
from headrace.broker.replication.model import Endpoint
from headrace.broker.server.embedding import BrokerHost


class Partition:
    """A led copy, and what was done to it."""

    topic, partition, leader_epoch = "dc-east.t", 0, 4

    def __init__(self, **other: Any) -> None:
        self.done: list[Any] = []
        self.is_leader, self.is_under_min_isr = True, False
        self.high_watermark = 0
        self.log = SimpleNamespace(
            is_mirror_copy=True, assign_epoch=lambda epoch: self.done.append(("epoch", epoch))
        )
        self.appender = SimpleNamespace(append_mirrored=lambda records, **_: self.done.append(bytes(records)))
        for name, value in other.items():
            setattr(self.log if name == "is_mirror_copy" else self, name, value)

    def appended(self) -> None:
        self.done.append("appended")


class World:
    """A host and what it reaches of its broker."""

    def __init__(self) -> None:
        self.woken: list[str] = []
        self.watchers: list[Any] = []
        self.truncated: list[Any] = []
        logs = SimpleNamespace(
            truncate_at_once=lambda log, offset, *, empties: self.truncated.append((offset, empties))
        )
        leaders = {("t", 0): 1, ("t", 1): 2, ("t", 2): -1}
        self.host = BrokerHost(
            cast(
                "Any",
                SimpleNamespace(
                    properties={},
                    inter_broker_listener="PLAINTEXT",
                    groups=SimpleNamespace(offsets_topic_replication_factor=3),
                ),
            ),
            cast("Any", SimpleNamespace(now_ms=lambda: 0)),
            cast("Any", SimpleNamespace(topics=None, configurations=None, membership=None)),
            cast(
                "Any",
                SimpleNamespace(
                    partition=lambda topic, number: (
                        SimpleNamespace(leader=leaders[topic, number]) if (topic, number) in leaders else None
                    ),
                    endpoint=lambda broker, listener: (
                        Endpoint(listener=listener, security_protocol="PLAINTEXT", host="h1", port=9092)
                        if broker == 1
                        else None
                    ),
                ),
            ),
            cast("Any", SimpleNamespace(on_change=self.watchers.append, logs=logs)),
            cast(
                "Any",
                SimpleNamespace(
                    wake_end=lambda *_: self.woken.append("end"),
                    wake_both=lambda *_: self.woken.append("both"),
                    wake=lambda *_: self.woken.append("committed"),
                ),
            ),
            cast("Any", SimpleNamespace(registry=None)),
        )


def test_a_copy_takes_what_its_source_sent() -> None:
    world, partition = World(), Partition()
    world.host.append_mirrored(cast("Any", partition), memoryview(b"x"))
    assert partition.done == [b"x", "appended"]
    assert world.woken == ["end"], "those that wait for commits are woken by them"


@pytest.mark.parametrize(
    ("other", "error"),
    [
        ({"is_leader": False}, NotLeaderOrFollowerError),
        ({"is_mirror_copy": False}, PolicyViolationError),
        ({"is_under_min_isr": True}, NotEnoughReplicasError),
    ],
)
def test_what_a_copy_cannot_take_changes_nothing(other: dict[str, Any], error: type[Exception]) -> None:
    world, partition = World(), Partition(**other)
    with pytest.raises(error):
        world.host.append_mirrored(cast("Any", partition), memoryview(b"x"))
    assert (partition.done, world.woken) == ([], [])


def test_a_log_that_begins_elsewhere_still_knows_its_leaders_epoch() -> None:
    world, partition = World(), Partition()
    world.host.start_mirrored_at(cast("Any", partition), 50)
    assert (world.truncated, partition.done) == ([(50, True)], [("epoch", 4)])
    assert world.woken == ["both"], "followers ask at once where it begins"


def test_who_watches_partitions_hears_of_changes_until_it_ends_that() -> None:
    world = World()
    (changed,) = world.watchers
    heard: list[Any] = []
    end = world.host.on_change(heard.append)
    changed("partition")
    end()
    changed("another")
    assert heard == ["partition"]


def test_a_leader_has_an_address_while_it_is_alive() -> None:
    host = World().host
    assert [host.leader_address("t", number) for number in range(4)] == [("h1", 9092), None, None, None]
    assert host.internal_replication_factor == 3
