"""When a broker calls itself ready, and what it says until then."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.broker.log.progress import OpeningProgress
from headrace.broker.server.status.readiness import Phase, Readiness


def asked(phase: Phase, *, is_registered: bool) -> tuple[int, dict[str, Any]]:
    opening = OpeningProgress()
    opening.logs_total, opening.logs_opened, opening.bytes_total = 5, 3, 100
    opening.checking("t-0", 40)
    readiness = Readiness(opening, cast("Any", SimpleNamespace(is_registered=is_registered)))
    readiness.phase = phase
    status, _, body = asyncio.run(readiness.ready())
    return status.value, json.loads(body)


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("is_registered", [True, False])
def test_ready_is_who_serves_and_is_registered(phase: Phase, *, is_registered: bool) -> None:
    status, told = asked(phase, is_registered=is_registered)
    is_ready = phase is Phase.SERVING and is_registered
    assert (status, told["ready"]) == ((200, True) if is_ready else (503, False))
    assert told["state"] == phase.value


def test_a_broker_that_recovers_says_how_far_it_is() -> None:
    _, told = asked(Phase.RECOVERING, is_registered=False)
    assert {name: told[name] for name in ("logs_opened", "logs_left", "bytes_checked", "bytes_left")} == {
        "logs_opened": 3,
        "logs_left": 2,
        "bytes_checked": 40,
        "bytes_left": 60,
    }
