"""kcat does the same with headrace as with Apache Kafka: what it prints is compared."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from sessions import Pair
from test_conformance_clients import CODECS, agree, make_topic


def kcat(bootstrap: str, *arguments: str, stdin: str | None = None) -> str:
    """Its standard output; it must end well."""
    command = ["kcat", "-b", bootstrap, *arguments]
    run = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def produce(bootstrap: str, topic: str, first: int, count: int, *options: str) -> None:
    lines = "".join(f"key {n}|value {n} {'é' * 50}\n" for n in range(first, first + count))
    kcat(bootstrap, "-P", "-t", topic, "-K", "|", *options, stdin=lines)


def read(bootstrap: str, *arguments: str) -> list[dict[str, Any]]:
    """The messages that it prints as JSON, but for their times and brokers."""
    messages = [json.loads(line) for line in kcat(bootstrap, *arguments, "-e", "-q", "-J").splitlines()]
    return [{k: v for k, v in message.items() if k not in ("ts", "broker")} for message in messages]


@pytest.mark.parametrize("codec", CODECS)
def test_kcat_carries_lines_with_keys_and_headers(pair: Pair, codec: str) -> None:
    topic = f"kcat-{codec}"

    def script(bootstrap: str) -> list[dict[str, Any]]:
        make_topic(bootstrap, topic, 2)
        produce(bootstrap, topic, 0, 300, "-p", "1", "-z", codec, "-H", "from=kcat")
        return read(bootstrap, "-C", "-t", topic, "-o", "beginning")

    messages = agree(pair, script)
    assert [message["offset"] for message in messages] == list(range(300))
    assert messages[299]["headers"] == ["from", "kcat"]
    assert messages[299]["payload"] == f"value 299 {'é' * 50}"


def test_kcat_finds_offsets_by_time(pair: Pair) -> None:
    def script(bootstrap: str) -> list[str]:
        make_topic(bootstrap, "kcat-times")
        produce(bootstrap, "kcat-times", 0, 10)
        times = ("0", "99999999999999", "-1", "-2")
        return [kcat(bootstrap, "-Q", "-t", f"kcat-times:0:{time_ms}") for time_ms in times]

    found = [line.split()[-1] for line in agree(pair, script)]
    assert found == ["0", "-1", "10", "0"]


def test_kcat_reads_parts_of_a_partition(pair: Pair) -> None:
    def script(bootstrap: str) -> list[list[int]]:
        make_topic(bootstrap, "kcat-parts")
        produce(bootstrap, "kcat-parts", 0, 50)
        parts = (("-o", "40"), ("-o", "-5"), ("-o", "10", "-c", "3"))
        where = ("-C", "-t", "kcat-parts", "-p", "0")
        return [[message["offset"] for message in read(bootstrap, *where, *part)] for part in parts]

    assert agree(pair, script) == [[*range(40, 50)], [*range(45, 50)], [10, 11, 12]]


def test_kcat_lists_a_topic(pair: Pair) -> None:
    def script(bootstrap: str) -> dict[str, Any]:
        make_topic(bootstrap, "kcat-listed", 3)
        found: dict[str, Any] = json.loads(kcat(bootstrap, "-L", "-J", "-t", "kcat-listed"))
        return {key: found[key] for key in ("controllerid", "topics")} | {"brokers": len(found["brokers"])}

    assert len(agree(pair, script)["topics"][0]["partitions"]) == 3


def test_kcat_reads_as_a_group_and_goes_on_from_its_offsets(pair: Pair) -> None:
    def script(bootstrap: str) -> list[list[str]]:
        make_topic(bootstrap, "kcat-group", 3)
        rounds = []
        for first in (0, 100):
            produce(bootstrap, "kcat-group", first, 100)
            messages = read(bootstrap, "-G", "kcat-group", "-X", "auto.offset.reset=earliest", "kcat-group")
            rounds.append(sorted(message["key"] for message in messages))
        return rounds

    assert agree(pair, script) == [
        sorted(f"key {n}" for n in range(start, start + 100)) for start in (0, 100)
    ]
