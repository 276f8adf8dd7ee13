"""What the broker does for a part that is embedded in it."""

from __future__ import annotations

import asyncio
import errno
import os
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.broker.errors import (
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    PolicyViolationError,
    StorageError,
)
from headrace.broker.handlers.refused_writes import RefusedWrites
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
            directory="/disk/dc-east.t-0",
            is_mirror_copy=True,
            assign_epoch=lambda epoch: self.done.append(("epoch", epoch)),
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
        self.refused_writes = RefusedWrites()
        self.now_ms = 0
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
            cast("Any", SimpleNamespace(now_ms=lambda: 0, monotonic_ms=lambda: self.now_ms)),
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
            cast("Any", SimpleNamespace(registry=None, refused_writes=self.refused_writes)),
        )


def test_a_copy_takes_what_its_source_sent() -> None:
    world, partition = World(), Partition()
    world.host.append_mirrored(cast("Any", partition), memoryview(b"x"))
    assert partition.done == [b"x", "appended"]
    assert world.woken == ["end"], "those that wait for commits are woken by them"


def test_a_disk_that_refuses_what_a_copy_is_sent_is_known_until_it_takes_it() -> None:
    def refuse(records: memoryview, **_: Any) -> None:
        raise StorageError(os.strerror(errno.ENOSPC))

    world, full = World(), Partition(appender=SimpleNamespace(append_mirrored=refuse))
    with pytest.raises(StorageError):
        world.host.append_mirrored(cast("Any", full), memoryview(b"x"))
    assert (world.refused_writes.directories, full.done) == ({"/disk"}, [])
    world.now_ms = 60_000
    world.host.append_mirrored(cast("Any", Partition()), memoryview(b"x"))
    assert (world.refused_writes.directories, world.refused_writes.outages) == (set(), {})


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


def cut_at(offset: int, world: World, partition: Partition, *, leader_epoch: int = 4) -> list[str]:
    """Cut a log that ends at 10; what was done, in order."""
    done: list[str] = []
    partition.log.log_end_offset = 10
    partition.cut = lambda before: done.append(f"epoch {before}>{partition.log.log_end_offset}")  # type: ignore[attr-defined]

    def end() -> None:
        done.append("end")
        partition.log.log_end_offset = offset

    truncation = SimpleNamespace(run=lambda: done.append("run"), end=end)
    logs = SimpleNamespace(
        truncation=lambda log, offset: truncation if offset < log.log_end_offset else None,
        lowering_jobs=lambda found: [lambda: done.append("lower")],
    )
    world.host._partitions = cast("Any", SimpleNamespace(logs=logs, changing=asyncio.Lock()))
    asyncio.run(world.host.cut_mirrored(cast("Any", partition), offset, leader_epoch=leader_epoch))
    return done


def test_a_copys_log_is_cut_in_threads_and_its_followers_are_told() -> None:
    world, partition = World(), Partition()
    assert cut_at(7, world, partition) == ["lower", "run", "end", "epoch 10>7"]
    assert world.woken == ["both"]
    assert cut_at(10, world, partition) == ["epoch 10>10"], "again, where nothing is left to cut"


@pytest.mark.parametrize(
    ("other", "leader_epoch", "error"),
    [
        ({"is_leader": False}, 4, NotLeaderOrFollowerError),
        ({"is_mirror_copy": False}, 4, PolicyViolationError),
        ({}, 3, NotLeaderOrFollowerError),
    ],
)
def test_a_log_is_not_cut_that_is_no_copy_or_led_otherwise(
    other: dict[str, Any], leader_epoch: int, error: type[Exception]
) -> None:
    world = World()
    with pytest.raises(error):
        cut_at(7, world, Partition(**other), leader_epoch=leader_epoch)
    assert world.woken == []
