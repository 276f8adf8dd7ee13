"""Settings of the log that change how a broker answers or works: refused conversion, the cleaner's while it runs."""

from __future__ import annotations

from typing import Any

import pytest
from sessions import (
    DESCRIBE_CONFIGS,
    FETCH,
    INCREMENTAL_ALTER_CONFIGS,
    PRODUCE,
    Pair,
    Session,
    batch,
    create_topic,
    produce_message,
)

BROKER = 4
SET = 0


def fetch(session: Session, version: int, topic: str, note: str) -> None:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    topics = [{"topic": topic, "partitions": [partition]}]
    message: dict[str, Any] = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "topics": topics}
    session.ask(FETCH, version, message, note=note)


@pytest.mark.parametrize("version", range(5))
def test_a_topic_that_does_not_convert_refuses_old_clients(pair: Pair, version: int) -> None:
    topic = f"unconverted-{version}"

    def script(session: Session) -> None:
        create_topic(session, topic, configs={"message.downconversion.enable": "false"})
        fetch(session, version, topic, "empty")
        session.ask(PRODUCE, 7, produce_message(topic, batch(b"a", b"b")))
        fetch(session, version, topic, "two records")

    answers = pair.compare(script)
    error_code = answers[-1][1]["responses"][0]["partitions"][0]["error_code"]
    assert error_code == (35 if version < 4 else 0)


def test_the_cleaners_settings_change_while_it_runs(pair: Pair) -> None:
    def script(session: Session) -> None:
        for name, value in (
            ("log.cleaner.threads", "2"),
            ("log.cleaner.threads", "3"),
            ("log.cleaner.threads", "0"),
            ("log.cleaner.threads", "many"),
            ("log.cleaner.backoff.ms", "100"),
            ("log.cleaner.backoff.ms", "-1"),
            ("log.cleaner.dedupe.buffer.size", "20000000"),
            ("log.cleaner.dedupe.buffer.size", "1000"),
            ("log.cleaner.io.max.bytes.per.second", "1000000"),
            ("log.cleaner.io.buffer.size", "100000"),
            ("log.cleaner.io.buffer.load.factor", "0.5"),
            ("log.cleaner.enable", "false"),
            ("log.message.downconversion.enable", "false"),
        ):
            change = {"name": name, "config_operation": SET, "value": value}
            resource = {"resource_type": BROKER, "resource_name": "", "configs": [change]}
            message = {"resources": [resource], "validate_only": True}
            session.ask(INCREMENTAL_ALTER_CONFIGS, 1, message, note=f"{name}={value}")

    answers = dict(pair.compare(script))
    accepted = [note for note, answer in answers.items() if answer["responses"][0]["error_code"] == 0]
    assert len(accepted) > 5


def test_the_cleaners_settings_are_described_alike(pair: Pair) -> None:
    keys = [
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.enable",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.threads",
        "log.message.downconversion.enable",
    ]

    def script(session: Session) -> None:
        wanted = [
            {"resource_type": BROKER, "resource_name": "1", "configuration_keys": keys},
        ]
        session.ask(DESCRIBE_CONFIGS, 4, {"resources": wanted, "include_synonyms": True})

    pair.compare(script)
