"""Rules of replication, each of which can be switched off: some seed of the machines' simulation must fail then.

`MUTATIONS` holds, by name, what puts the machines' code without that rule in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from machine_world import World

from headrace.broker.log.epochs import LeaderEpochs
from headrace.broker.log.results import EpochEndOffset
from headrace.broker.replication.controller.elections import Elections
from headrace.broker.replication.leader import Leadership

_committed, _write_states = Leadership.committed, World.write_states


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


Mutation = Callable[[], AbstractContextManager[Any]]


def _instead(rule: type, name: str, other: Any) -> Mutation:
    return lambda: patch.object(rule, name, other)


MUTATIONS: dict[str, Mutation] = {
    "truncation by epoch": _instead(LeaderEpochs, "end_offset", _one_epoch),
    "wait for the in-sync replicas": _instead(Leadership, "committed", _at_once),
    "maximal ISR": _instead(Leadership, "committed", _without_proposed),
    "minimum for the watermark": _instead(Leadership, "committed", _without_minimum),
    "controller epoch": _instead(World, "write_states", _of_any_controller),
    "registrations after the state": _instead(Elections, "_registered_since", lambda *_: frozenset()),
}
