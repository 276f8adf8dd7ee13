"""What has to change of a topic, and that what is so already is left alone."""

from __future__ import annotations

from collections.abc import Mapping

import click
import pytest

from headrace.cli.topic_alteration import alteration

PRESENT = {"retention.ms": "5000", "segment.bytes": "1024"}


@pytest.mark.parametrize(
    ("wanted", "after", "configs", "words"),
    [
        ({"retention.ms": "6000"}, None, {"retention.ms": "6000"}, "retention.ms=6000"),
        ({"segment.bytes": None}, 3, {"segment.bytes": None}, "segment.bytes unset"),
        ({"retention.ms": "5000", "cleanup.policy": None}, 3, {}, ""),
        ({}, 5, {}, "5 partitions instead of 3"),
        ({"a": "1"}, 4, {"a": "1"}, "a=1, 4 partitions instead of 3"),
    ],
)
def test_only_what_differs_changes(
    wanted: Mapping[str, str | None], after: int | None, configs: Mapping[str, str | None], words: str
) -> None:
    found = alteration("t", 3, PRESENT, wanted, after)
    assert (found.configs, found.words) == (configs, words)


def test_no_partition_is_taken_away() -> None:
    with pytest.raises(click.ClickException, match="t has 3 partitions, and none can be taken away"):
        alteration("t", 3, PRESENT, {"retention.ms": "6000"}, 2)
