"""Rules of replication, each of which can be switched off: some seed of the machines' simulation must fail then.

`MUTATIONS` holds, by name, what puts the machines' code without that rule in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from machine_broker import Life
from machine_world import World
from stub_log import StubLog

from headrace.broker.errors import ErrorCode
from headrace.broker.handlers import led
from headrace.broker.log.epochs import LeaderEpochs
from headrace.broker.log.results import EpochEndOffset
from headrace.broker.replication.controller.elections import Elections
from headrace.broker.replication.controller.isr import IsrChanges
from headrace.broker.replication.events import ProposedIsr
from headrace.broker.replication.leader import IsrProposal, Leadership
from headrace.broker.replication.partition import Partition
from headrace.broker.server.replicas.hosted import Partitions
from headrace.broker.wire.special_values import NO_EPOCH

_committed, _joining, _write_states = Leadership.committed, Leadership.joining, World.write_states
_readable_partition, _fenced = led.readable_partition, Partitions.fenced
_decided, _is_eligible = IsrChanges._decided, IsrChanges._is_eligible


def _one_epoch(epochs: LeaderEpochs, epoch: int, log_end_offset: int) -> EpochEndOffset:
    return EpochEndOffset(epoch, log_end_offset)


def _at_once(leadership: Leadership, end_offset: int, isr_size_min: int, now_ms: int) -> int:
    return end_offset


def _without_proposed(leadership: Leadership, end_offset: int, isr_size_min: int, now_ms: int) -> int:
    if len(leadership.isr) < isr_size_min:
        return -1
    ends = [p.end_offset for replica, p in leadership.followers.items() if replica in leadership.isr]
    return min([end_offset, *ends])


def _without_minimum(leadership: Leadership, end_offset: int, isr_size_min: int, now_ms: int) -> int:
    return _committed(leadership, end_offset, 0, now_ms)


def _of_any_controller(world: World, writes: Any, epoch: int) -> Any:
    return _write_states(world, writes, world.controller_epoch)


def _in_any_epoch(
    replicas: Any, topic: str, index: int, leader_epoch: int, *, is_from_leader: bool
) -> Partition:
    return _readable_partition(replicas, topic, index, NO_EPOCH, is_from_leader=is_from_leader)


def _from_any_controller(replicas: Any, request: Any) -> ErrorCode:
    return _fenced(replicas, request._replace(controller_epoch=2**31))


def _to_any_life(replicas: Any, request: Any) -> ErrorCode:
    return _fenced(replicas, request._replace(broker_epoch=NO_EPOCH))


def _at_the_watermark(leadership: Leadership, replica: int, high_watermark: int) -> IsrProposal | None:
    start, leadership.epoch_start_offset = leadership.epoch_start_offset, 0
    try:
        return _joining(leadership, replica, high_watermark)
    finally:
        leadership.epoch_start_offset = start


def _upon_any_state(changes: IsrChanges, broker_id: int, topic: str | None, proposal: ProposedIsr) -> Any:
    state = changes._cluster.states.get((topic or "", proposal.partition))
    if state is not None and proposal.partition_epoch < state.zk_version:
        proposal = replace(proposal, partition_epoch=state.zk_version)
    return _decided(changes, broker_id, topic, proposal)


def _whichever_life(changes: IsrChanges, broker_id: int, broker_epoch: int) -> bool:
    return _is_eligible(changes, broker_id, NO_EPOCH)


Mutation = Callable[[], AbstractContextManager[Any]]


def _instead(rule: object, name: str, other: Any) -> Mutation:
    return lambda: patch.object(rule, name, other)


MUTATIONS: dict[str, Mutation] = {
    "truncation by epoch": _instead(LeaderEpochs, "end_offset", _one_epoch),
    "wait for the in-sync replicas": _instead(Leadership, "committed", _at_once),
    "maximal ISR": _instead(Leadership, "committed", _without_proposed),
    "minimum for the watermark": _instead(Leadership, "committed", _without_minimum),
    "controller epoch": _instead(World, "write_states", _of_any_controller),
    "epoch fence in Fetch": _instead(led, "readable_partition", _in_any_epoch),
    "epoch cache at election": _instead(StubLog, "assign_epoch", lambda *_: None),
    "joining past the epoch's start": _instead(Leadership, "joining", _at_the_watermark),
    "partition epoch": _instead(IsrChanges, "_decided", _upon_any_state),
    "broker epoch in proposals": _instead(IsrChanges, "_is_eligible", _whichever_life),
    "broker epoch in LeaderAndIsr": _instead(Partitions, "fenced", _to_any_life),
    "controller epoch at brokers": _instead(Partitions, "fenced", _from_any_controller),
    "leadership of a parked reply": _instead(Life, "is_still_led", lambda *_: True),
    "refusal after a lost tail": _instead(Partitions, "_may_not_lead", lambda *_: False),
    "registrations after the state": _instead(Elections, "_registered_since", lambda *_: frozenset()),
}
