"""What `headrace groups describe` shows to people."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.cli.groups import _print_description

BUSY, IDLE = "busy-1f", "idle-2e"


def member(name: str, partitions: int) -> dict[str, Any]:
    return {"member": name, "instance": None, "client": "c", "host": "/10.0.0.1", "partitions": partitions}


@pytest.mark.parametrize("has_partitions", [True, False])
def test_a_member_without_partitions_has_a_line(
    capsys: pytest.CaptureFixture[str], has_partitions: bool
) -> None:
    row = {"topic": "t", "partition": 0, "offset": 3, "end": 5, "lag": 2, "member": BUSY}
    partitions = [row] if has_partitions else []
    members = [member(BUSY, 1), member(IDLE, 0)] if has_partitions else [member(IDLE, 0)]
    answer = {"group": "g", "state": "STABLE", "assignor": "range"}
    _print_description({**answer, "members": members, "partitions": partitions, "lag": 2})
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    idle = ["-", "-", "-", "-", "-", IDLE]
    assert lines == ([["t", "0", "3", "5", "2", BUSY], idle] if has_partitions else [idle])
