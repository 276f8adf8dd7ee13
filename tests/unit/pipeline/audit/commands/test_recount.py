"""When what was counted again agrees with the ledger."""

from __future__ import annotations

import pytest

from headrace.audit.commands.recount import Recounted


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (Recounted("live", 5, 5), "agrees"),
        (Recounted("live", 4, 5), "differs"),
        (Recounted("live", 6, 5), "differs"),
        (Recounted("live", 4, 5, gone=1), "gone from the log"),
        (Recounted("live", 6, 5, gone=1), "differs"),
        (Recounted("warehouse", 4, 5, letters=1), "agrees"),
        (Recounted("warehouse", 3, 5, letters=1), "differs"),
        (Recounted("warehouse", 6, 5, letters=1), "differs"),
    ],
)
def test_a_tier_agrees_when_its_events_are_those_of_the_ledger(found: Recounted, verdict: str) -> None:
    assert found.verdict == verdict
