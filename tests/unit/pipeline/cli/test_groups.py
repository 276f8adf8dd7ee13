"""What `headrace groups` shows to people, and what it says while brokers hang."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner
from confluent_kafka import OFFSET_INVALID, KafkaError, TopicPartition

from headrace.cli import group_lag, group_reset
from headrace.cli.groups import _print_description, groups

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


def test_groups_of_a_broker_that_hangs_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    known = SimpleNamespace(
        group_id="g", state=SimpleNamespace(name="STABLE"), is_simple_consumer_group=False
    )
    found = SimpleNamespace(valid=[known], errors=[KafkaError(KafkaError._TIMED_OUT, "Local: Timed out")])
    answer = SimpleNamespace(result=lambda: found)
    client = SimpleNamespace(list_consumer_groups=lambda **_: answer)
    monkeypatch.setattr("headrace.cli.groups.admin_client", lambda _: client)
    done = CliRunner().invoke(groups, ["list", "--json", "--bootstrap", "h:1"])
    assert (done.exit_code, json.loads(done.stdout)[0]["group"]) == (1, "g")
    assert done.stderr.startswith("Error: list groups: some may be missing, since no answer came in time (")
    assert "KafkaError" not in done.stderr


def test_the_end_of_a_log_is_unknown_while_its_leader_hangs() -> None:
    """librdkafka answers with no error, and with an offset that is none."""
    place = TopicPartition("t", 0)

    def client(offset: int) -> Any:
        told = SimpleNamespace(result=lambda: SimpleNamespace(offset=offset))
        return SimpleNamespace(list_offsets=lambda wanted, **_: {place: told})

    silent: Any = client(OFFSET_INVALID)
    assert group_lag.ends_of(silent, [("t", 0)]) == ({("t", 0): None}, {("t", 0): None})
    assert group_lag.ends_of(client(7), [("t", 0)])[1] == {("t", 0): 7}
    with pytest.raises(click.ClickException, match="t-0 has no leader that answers; nothing was changed"):
        group_reset.offsets_at(silent, [("t", 0)], group_reset.place_of("earliest"))
