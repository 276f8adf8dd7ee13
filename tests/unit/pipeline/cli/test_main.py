"""The commands of the command line: help with an example, wrong use exits 2, failures are one line."""

from __future__ import annotations

import json
import math
import shlex
import subprocess
import sys
from typing import Any

import click
import confluent_kafka
import pytest
from click.testing import CliRunner
from scripted_cluster import bootstrap_of, scripted_cluster

from headrace.cli.consume import _avro_decoder, _headers, _json
from headrace.cli.main import main
from headrace.events.registry_address import RegistryAddress

HEADRACE = [sys.executable, "-m", "headrace.cli"]
LIST_MOVES = 46
COMMANDS = [
    ["check-logs"],
    ["cluster"],
    ["cluster", "status"],
    ["cluster", "may-stop"],
    ["topics"],
    ["topics", "list"],
    ["topics", "describe"],
    ["topics", "create"],
    ["topics", "alter"],
    ["topics", "delete"],
    ["produce"],
    ["consume"],
    ["acls"],
    ["acls", "list"],
    ["acls", "add"],
    ["acls", "remove"],
    ["registry"],
    ["replay"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_shows_an_example(command: list[str]) -> None:
    result = CliRunner().invoke(main, [*command, "--help"])
    assert result.exit_code == 0
    assert f"Example: headrace {command[0]}" in result.output or "| headrace produce" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "list"],
        ["topics", "create", "t", "--bootstrap", "h:1", "--partitions", "0"],
        ["topics", "create", "t", "--bootstrap", "h:1", "--set", "retention.ms"],
        ["topics", "create", "t", "--bootstrap", "h:1", "--set", "a=1", "--set", "a=2"],
        ["topics", "alter", "t", "--bootstrap", "h:1"],
        ["topics", "alter", "t", "--bootstrap", "h:1", "--partitions", "0"],
        ["topics", "alter", "t", "--bootstrap", "h:1", "--set", "a=1", "--unset", "a"],
        ["acls", "add", "--bootstrap", "h:1", "--topic", "t"],
        ["acls", "add", "--bootstrap", "h:1", "--allow-principal", "User:a"],
        ["acls", "add", "--bootstrap", "h:1", "--topic", "t", "--allow-principal", "alice"],
        ["acls", "add", "--bootstrap", "h:1", "--topic", "t", "--allow-principal", "User:a", "--consumer"],
        ["acls", "add", "--bootstrap", "h:1", "--topic", "t", "--allow-principal", "User:"],
        ["acls", "add", "--bootstrap", "h:1", "--topic", "t", "--deny-principal", ":alice"],
        ["acls", "remove", "--bootstrap", "h:1"],
        ["acls", "remove", "--bootstrap", "h:1", "--topic", "t"],
        ["produce", "t"],
        ["produce", "t", "--bootstrap", "h:1", "--set", "acks=many"],
        ["produce", "t", "--bootstrap", "h:1", "--key-separator", ""],
        ["consume", "t"],
        ["consume", "t", "--bootstrap", "h:1", "--max", "0"],
        ["consume", "t", "--bootstrap", "h:1", "--skip-bad"],
        ["users", "add", "m\u00fcller", "--bootstrap", "h:1"],
        ["users", "password", "\u65e5\u672c", "--bootstrap", "h:1"],
        ["users", "add", "", "--bootstrap", "h:1"],
        ["registry", "--bootstrap", "h:1", "--listen", "nowhere"],
        ["registry", "--bootstrap", "h:1", "--listen", "127.0.0.1:99999"],
        ["registry", "--bootstrap", "h:1", "--replay-topics", "dc-east.pageviews"],
        ["registry", "--bootstrap", "h:1", "--replay-topics", "_schemas"],
        ["registry", "--bootstrap", "h:1", "--replication-factor", "0"],
    ],
    ids=" ".join,
)
def test_wrong_use_exits_2_with_an_error(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2, result.output
    assert "Error: " in result.output


def test_output_that_cannot_be_written_is_one_line_and_exit_1() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*HEADRACE, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (
        1,
        "Error: standard output takes nothing more: No space left on device.\n",
    )


def test_a_command_whose_output_is_closed_prints_nothing() -> None:
    move = {"partition_index": 0, "replicas": [1, 2], "adding_replicas": [2], "removing_replicas": []}
    moves = {"error_message": None, "topics": [{"name": "t", "partitions": [move]}]}
    with scripted_cluster({"t": 1}, {LIST_MOVES: lambda _: moves}) as broker:
        command = shlex.join([*HEADRACE, "topics", "reassign", "show", "--bootstrap", bootstrap_of(broker)])
        done = subprocess.run(f"{command} >&-", shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_brokers_that_do_not_answer_are_one_line_and_exit_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.cli.topics.TIMEOUT_SECONDS", 0.3)
    result = CliRunner().invoke(main, ["topics", "list", "--bootstrap", "127.0.0.1:1"])
    assert result.exit_code == 1
    assert result.output.startswith("Error: list topics: no broker answered")
    assert result.output.count("\n") == 1


@pytest.mark.parametrize(("told", "waited"), [(["--timeout", "5"], 5), (["--timeout", "0"], 1), ([], 10)])
def test_consume_waits_for_the_brokers_as_long_as_for_messages(
    monkeypatch: pytest.MonkeyPatch, told: list[str], waited: float
) -> None:
    waits = []

    class Unreachable(confluent_kafka.Consumer):
        def list_topics(self, topic: str | None = None, timeout: float = -1, *_: Any, **__: Any) -> Any:
            waits.append(timeout)
            raise confluent_kafka.KafkaException(
                confluent_kafka.KafkaError(confluent_kafka.KafkaError._TRANSPORT)
            )

    monkeypatch.setattr("headrace.cli.consume.Consumer", Unreachable)
    result = CliRunner().invoke(main, ["consume", "t", "--bootstrap", "127.0.0.1:1", *told])
    assert (result.exit_code, waits) == (1, [waited])
    assert result.output.startswith("Error: consume t: no broker answered")


@pytest.mark.parametrize(
    ("registry", "told"),
    [
        ("http://ann:s3cret@127.0.0.1:9", "registry http://127.0.0.1:9 does not answer"),
        ("ftp://ann:s3cret@127.0.0.1:9", "--registry: Invalid url ftp://127.0.0.1:9."),
    ],
)
def test_consume_tells_no_password_of_a_registry(registry: str, told: str) -> None:
    with pytest.raises(click.ClickException) as ended:
        _avro_decoder(RegistryAddress(registry), "t")(b"\0\0\0\0\1abc")
    assert ended.value.message.startswith(told)
    assert "s3cret" not in ended.value.message


def test_what_json_has_no_number_for_is_a_text() -> None:
    found = {"a": [math.nan, 1.5], "b": {"c": -math.inf}, "d": math.inf, "e": b"\x00"}
    told = json.loads(_json(found), parse_constant=pytest.fail)
    assert told == {"a": ["NaN", 1.5], "b": {"c": "-Infinity"}, "d": "Infinity", "e": "AA=="}


def test_a_message_with_a_header_whose_name_is_no_utf_8_is_printed_without_headers() -> None:
    """The client raises so."""

    class Odd:
        def headers(self) -> None:
            raise SystemError("returned a result with an exception set")

    odd: Any = Odd()
    assert _headers(odd) is None
