"""What `headrace mirror` makes of the records that others wrote."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from headrace.mirror.command import _states
from headrace.mirror.state import State

KNOWN = State(target_id=UUID(int=3), source_bootstrap="east:9092")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"dc-east.t-1", b"rubbish"),
        (b"dc-east.t-1", b"{}"),
        (b"dc-east.t-1", b"7"),
        (b"dc-east.t-1", b""),
        (b"dc-east.t-1", b'{"target_id": "x"}'),
        (b"\xff\xfe", KNOWN.encode()),
        (None, None),
    ],
)
def test_a_record_that_is_no_state_is_passed_over_with_a_warning(
    capsys: pytest.CaptureFixture[str], key: bytes | None, value: bytes | None
) -> None:
    async def read(topic: str) -> list[Any]:
        assert topic == "headrace.mirror"
        return [
            SimpleNamespace(key=b"dc-east.t-1", value=KNOWN.encode()),
            SimpleNamespace(key=key, value=value),
            SimpleNamespace(key=b"dc-east.t-1/resume", value=b"anything"),
        ]

    assert asyncio.run(_states(SimpleNamespace(read=read))) == {"dc-east.t-1": KNOWN}  # type: ignore[arg-type]
    assert capsys.readouterr().err.startswith("Warning: a record of headrace.mirror is passed over: ")
