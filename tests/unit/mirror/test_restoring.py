"""How one leadership carries out an order to restore."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from headrace.mirror.memory.state import RestoreOrder
from headrace.mirror.restoring import NEEDS_CUT, NEEDS_EPOCH, NEEDS_REPLICAS, Restoring

ORDER = RestoreOrder(target_id=UUID(int=9), source_id=UUID(int=3), end_offset=10, epoch=2, epoch_start=8)


def restoring(*, leads_since: bool, is_everywhere: bool) -> tuple[Restoring, Any]:
    led_log = SimpleNamespace(leads_since_its_last_message=leads_since, is_on_all_in_sync=is_everywhere)
    return Restoring(ORDER, cast("Any", led_log)), led_log


def test_nothing_is_cut_in_the_leader_epoch_that_wrote_it() -> None:
    found, led_log = restoring(leads_since=False, is_everywhere=True)
    assert (found.wants_cut, found.is_done, found.problem) == (False, False, NEEDS_EPOCH)
    led_log.leads_since_its_last_message = True
    assert (found.wants_cut, found.is_done, found.problem) == (True, False, NEEDS_CUT)


def test_it_is_done_once_it_was_cut_and_whoever_may_lead_next_was() -> None:
    found, led_log = restoring(leads_since=True, is_everywhere=False)
    found.was_cut()
    assert (found.wants_cut, found.is_done, found.problem) == (False, False, NEEDS_REPLICAS)
    led_log.is_on_all_in_sync = True
    assert found.is_done
