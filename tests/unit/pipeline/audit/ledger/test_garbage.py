"""When Python looks for circles in an auditor."""

from __future__ import annotations

import gc

import pytest

from headrace.audit.ledger.garbage import THRESHOLDS, collect_seldom, nothing_collected


def test_nothing_is_collected_for_a_while_and_then_as_before() -> None:
    with nothing_collected():
        assert not gc.isenabled()
        with nothing_collected():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ValueError, match="broken off"), nothing_collected():
        raise ValueError("broken off")
    assert gc.isenabled()


def test_it_is_looked_for_seldom() -> None:
    before = gc.get_threshold()
    try:
        collect_seldom()
        assert gc.get_threshold() == THRESHOLDS
    finally:
        gc.set_threshold(*before)
