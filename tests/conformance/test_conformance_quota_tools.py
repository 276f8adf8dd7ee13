"""Kafka's own `kafka-configs` sets and shows quotas, and levels of loggers, with headrace as with Kafka."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka_oracle import run_tool
from sessions import Pair
from test_conformance_clients import agree

Configs = Callable[..., list[str]]
CLIENT_QUOTAS = (
    "producer_byte_rate=1000,consumer_byte_rate=2000,request_percentage=12.5,controller_mutation_rate=3"
)


@pytest.fixture
def configs(kafka_jars: Path) -> Configs:
    """`configs(bootstrap, *arguments, code=0)`: the words that it prints in order, or the kind of error that it ends with."""

    def run(bootstrap: str, *arguments: str, code: int = 0) -> list[str]:
        where = ("--bootstrap-server", bootstrap)
        ended = run_tool(kafka_jars, "kafka.admin.ConfigCommand", *where, *arguments)
        assert ended.returncode == code, ended.stdout + ended.stderr
        if code:
            return sorted(set(re.findall(r"\w+Exception", ended.stdout + ended.stderr)))
        return sorted(re.split(r"[\s,]+", ended.stdout))

    return run


def entity(kind: str, name: str | None) -> tuple[str, ...]:
    return (
        ("--entity-type", kind, "--entity-default")
        if name is None
        else ("--entity-type", kind, "--entity-name", name)
    )


ENTITIES = [
    (entity("users", "CN=alice/é"), CLIENT_QUOTAS),
    (entity("users", None), "request_percentage=200"),
    ((*entity("users", "CN=alice/é"), *entity("clients", "app 1")), CLIENT_QUOTAS),
    ((*entity("users", None), *entity("clients", None)), "producer_byte_rate=5"),
    (entity("clients", "app 1"), CLIENT_QUOTAS),
    (entity("clients", None), "consumer_byte_rate=1e9"),
    (entity("ips", "127.0.0.9"), "connection_creation_rate=30"),
    (entity("ips", None), "connection_creation_rate=300"),
]


@pytest.mark.long
@pytest.mark.parametrize(("named", "quotas"), ENTITIES)
def test_quotas_are_set_shown_and_removed(
    pair: Pair, configs: Configs, named: tuple[str, ...], quotas: str
) -> None:
    names = ",".join(quota.partition("=")[0] for quota in quotas.split(","))

    def script(bootstrap: str) -> list[list[str]]:
        return [
            configs(bootstrap, "--alter", *named, "--add-config", quotas),
            configs(bootstrap, "--describe", *named),
            configs(bootstrap, "--describe", *named[:2]),
            configs(bootstrap, "--alter", *named, "--delete-config", names),
            configs(bootstrap, "--describe", *named),
        ]

    said = agree(pair, script)
    assert any(word.startswith(names.partition(",")[0]) for word in said[1])
    assert not any(word.startswith(names.partition(",")[0]) for word in said[4])


@pytest.mark.long
def test_quotas_that_make_no_sense_are_refused(pair: Pair, configs: Configs) -> None:
    def script(bootstrap: str) -> list[list[str]]:
        return [
            configs(bootstrap, "--alter", *named, "--add-config", quotas, code=1)
            for named, quotas in (
                (entity("ips", "127.0.0.9"), "connection_creation_rate=-1"),
                (entity("users", "alice"), "producer_byte_rate=1.5"),
                (entity("clients", "app"), "producer_byte_rate=many"),
                (entity("users", "alice"), "no_such_quota=1"),
            )
        ]

    agree(pair, script)


@pytest.mark.long
def test_loggers_are_set_and_unset_and_those_that_are_not_there_refused(pair: Pair, configs: Configs) -> None:
    loggers = ("--entity-type", "broker-loggers", "--entity-name", "1")

    def script(bootstrap: str) -> list[list[str]]:
        told = configs(bootstrap, "--describe", *loggers)
        own = next(
            word.partition("=")[0]
            for word in told
            if word.startswith(("headrace.broker.server.", "kafka.server."))
        )

        def level() -> list[str]:
            return [
                word.partition("=")[2]
                for word in configs(bootstrap, "--describe", *loggers)
                if word.startswith(f"{own}=")
            ]

        return [
            configs(bootstrap, "--alter", *loggers, "--add-config", f"{own}=TRACE"),
            level(),
            configs(bootstrap, "--alter", *loggers, "--delete-config", own),
            configs(bootstrap, "--alter", *loggers, "--add-config", f"{own}=LOUD", code=1),
            configs(bootstrap, "--alter", *loggers, "--add-config", "no.such.logger=INFO", code=1),
            configs(bootstrap, "--alter", *loggers, "--delete-config", "no.such.logger", code=1),
            configs(bootstrap, "--alter", *loggers, "--delete-config", "root", code=1),
            configs(bootstrap, "--describe", *loggers[:3], "17", code=1),
        ]

    assert agree(pair, script)[1] == ["TRACE"]
