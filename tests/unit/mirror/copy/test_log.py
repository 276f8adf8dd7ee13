"""A copy's log as one leadership offers it to the copier."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from mirror_kit import LedPartition, lead

from headrace.broker.errors import NotLeaderOrFollowerError
from headrace.mirror.copy.log import LedTarget


def test_a_target_takes_nothing_once_its_leadership_is_over_or_too_few_are_in_sync() -> None:
    partition = LedPartition("dc-east.events")
    appended: list[Any] = []
    host = SimpleNamespace(append_mirrored=lambda *call: appended.append(call))
    target = LedTarget(cast("Any", host), lead(partition))
    target.append(memoryview(b""))
    partition.is_under_min_isr = True
    facts = [target.has_enough_in_sync]
    partition.is_under_min_isr, partition.log.is_mirror_copy = False, False
    facts.append(target.has_enough_in_sync)
    assert facts == [False, False], "clients write to what is no copy any more"
    partition.log.log_end_offset = 7
    for partition.high_watermark in (6, 7):
        assert target.is_committed is (partition.high_watermark == 7)
    partition.leader_epoch += 1
    with pytest.raises(
        NotLeaderOrFollowerError, match=r"does not lead dc-east[.]events-0 in epoch 1 any more"
    ):
        target.append(memoryview(b""))
    with pytest.raises(NotLeaderOrFollowerError):
        target.start_at(7)
    assert len(appended) == 1
