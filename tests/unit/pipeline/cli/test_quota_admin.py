"""Whose quotas the options of `headrace quotas` mean, and what it asks for."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest
from click.testing import CliRunner
from scripted_broker import API_VERSIONS, scripted_broker

from headrace.cli.main import main
from headrace.cli.quota_admin import Entity, entity_of, words_of

DESCRIBE, ALTER = 48, 49
ALICE: Entity = {"user": "alice", "client-id": None}


class Broker:
    """Has a quota of alice with any client id."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.error_code = 0

    def __call__(self, key: int, message: dict[str, Any]) -> dict[str, Any]:
        if key == API_VERSIONS:
            keys = [{"api_key": k, "min_version": 0, "max_version": 1} for k in (DESCRIBE, ALTER)]
            return {"api_keys": keys}
        self.asked.append(message)
        named = [{"entity_type": kind, "entity_name": name} for kind, name in reversed(ALICE.items())]
        if key == ALTER:
            entry = {"error_code": self.error_code, "error_message": "no", "entity": named}
            return {"entries": [entry]}
        values = [{"key": "producer_byte_rate", "value": 1048576.0}]
        return {"error_code": 0, "entries": [{"entity": named, "values": values}]}


def run(broker: Broker, *arguments: str) -> Any:
    with scripted_broker(broker) as served:
        host, port = served.address
        return CliRunner().invoke(main, ["quotas", *arguments, "--bootstrap", f"{host}:{port}"])


@pytest.mark.parametrize(
    ("named", "entity"),
    [
        ({}, {}),
        ({"user": "alice"}, {"user": "alice"}),
        ({"user": "alice", "default_client": True}, {"user": "alice", "client-id": None}),
        ({"default_user": True, "client": "app"}, {"user": None, "client-id": "app"}),
        ({"default_ip": True}, {"ip": None}),
    ],
)
def test_options_name_an_entity(named: dict[str, Any], entity: Entity) -> None:
    assert entity_of(named) == entity


@pytest.mark.parametrize(
    "named", [{"user": "alice", "default_user": True}, {"client": ""}, {"ip": "10.0.0.1", "user": "alice"}]
)
def test_options_that_do_not_go_together_are_wrong_use(named: dict[str, Any]) -> None:
    with pytest.raises(click.UsageError):
        entity_of(named)


def test_an_entity_is_told_in_words() -> None:
    assert words_of({"client-id": None, "user": "alice"}) == "user alice, any other client-id"


def test_quotas_are_listed_for_people_and_as_json() -> None:
    broker = Broker()
    listed = run(broker, "list", "--user", "alice")
    assert "producer_byte_rate=1048576" in listed.output
    assert broker.asked == [
        {"components": [{"entity_type": "user", "match_type": 0, "match": "alice"}], "strict": False}
    ]
    rows = json.loads(run(Broker(), "list", "--json").output)
    assert rows == [{**ALICE, "quotas": {"producer_byte_rate": 1048576.0}}]


def test_quotas_are_set_and_removed_of_one_entity() -> None:
    broker = Broker()
    done = run(broker, "set", "producer_byte_rate=5", "request_percentage=12.5", "--user", "alice")
    assert (done.exit_code, done.output) == (
        0,
        "Set producer_byte_rate=5, request_percentage=12.5 of user alice.\n",
    )
    (asked,) = broker.asked
    assert asked["entries"][0]["entity"] == [{"entity_type": "user", "entity_name": "alice"}]
    assert [(op["key"], op["value"], op["remove"]) for op in asked["entries"][0]["ops"]] == [
        ("producer_byte_rate", 5.0, False),
        ("request_percentage", 12.5, False),
    ]


def test_without_names_all_quotas_that_it_has_are_removed() -> None:
    broker = Broker()
    done = run(broker, "remove", "--user", "alice", "--default-client", "--json")
    assert json.loads(done.output) == {**ALICE, "removed": ["producer_byte_rate"]}
    assert [op["remove"] for op in broker.asked[1]["entries"][0]["ops"]] == [True]
    assert "no quotas" in run(Broker(), "remove", "--user", "bob").output


def test_what_an_entity_has_not_is_not_said_to_be_removed() -> None:
    told = run(
        Broker(),
        "remove",
        "consumer_byte_rate",
        "producer_byte_rate",
        "--user",
        "alice",
        "--default-client",
    ).output
    assert "Removed producer_byte_rate of" in told
    assert "There was no consumer_byte_rate of" in told


@pytest.mark.parametrize(
    "arguments",
    [
        ("set", "producer_byte_rate=1"),
        ("set", "producer_byte_rate=-1", "--user", "alice"),
        ("set", "producer_byte_rate", "--user", "alice"),
        ("set", "producer_byte_rate=inf", "--user", "alice"),
        ("set", "bytes=1", "--user", "alice"),
        ("set", "request_percentage=1", "request_percentage=2", "--user", "alice"),
        ("set", "connection_creation_rate=1", "--ip", "::1"),
        ("remove", "bytes", "--user", "alice"),
    ],
)
def test_wrong_use_is_refused_in_a_sentence(arguments: tuple[str, ...]) -> None:
    broker = Broker()
    refused = run(broker, *arguments)
    assert refused.exit_code == 2
    assert not broker.asked


def test_what_a_broker_refuses_is_told() -> None:
    broker = Broker()
    broker.error_code = 42
    refused = run(broker, "set", "producer_byte_rate=5", "--user", "alice")
    assert (refused.exit_code, "no" in refused.output) == (1, True)
