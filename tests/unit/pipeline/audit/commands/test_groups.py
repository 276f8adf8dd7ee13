"""What `headrace audit groups` says of groups that are not there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from headrace.audit.commands import groups as command
from headrace.audit.counting.counter import COUNTS
from headrace.broker.wire.partitions import TopicPartition
from headrace.load.ranges import LogOffsets


class Client:
    """A cluster in which nothing was counted yet, with the groups billing and search.new; they committed nothing."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def groups(self) -> list[str]:
        return ["billing", "search.new"]

    def committed(self, group: str) -> dict[TopicPartition, int]:
        return {}

    def partitions(self, wanted: Callable[[str], bool]) -> list[TopicPartition]:
        return [COUNTS] if wanted(COUNTS.topic) else []

    def log_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, Any]:
        return {partition: LogOffsets(start=0, end=0) for partition in partitions}

    def offsets_since(self, *_: object) -> dict[TopicPartition, int]:
        return {}

    def close(self) -> None:
        pass


def told(monkeypatch: pytest.MonkeyPatch, *options: str) -> tuple[int, str]:
    monkeypatch.setattr(command, "LogClient", Client)
    result = CliRunner().invoke(command.groups, ["--bootstrap", "127.0.0.1:1", *options])
    return result.exit_code, result.output


@pytest.mark.parametrize("name", ["biling", "search.old", "a-b_c"])
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_name_that_no_group_has_is_an_error(
    name: str, form: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = f"Error: There is no group {name!r}: `headrace groups list` shows those there are.\n"
    assert told(monkeypatch, "--groups", name, *form) == (1, expected)


@pytest.mark.parametrize("wanted", ["billing", "search.new", "x.*", "biling|serach", "[x]y"])
def test_a_group_that_is_there_and_a_pattern_that_matches_none_are_none(
    wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentence = "No group that matches has committed an offset of a topic that is counted here.\n"
    assert told(monkeypatch, "--groups", wanted) == (0, sentence)
