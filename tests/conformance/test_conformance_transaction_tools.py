"""`headrace transactions` and Apache Kafka's kafka-transactions tool, each against both kinds of broker."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import headrace
from kafka_oracle import run_tool
from processes import eventually
from sessions import INCREMENTAL_ALTER_CONFIGS, PRODUCE, Pair, Session, batch, create_topic
from transactional_producers import Producer, wait_for_transactions

TOOL = "org.apache.kafka.tools.TransactionsCommand"
VERIFICATION = "transaction.partition.verification.enable"
BROKER, SET, DELETE = 4, 0, 1
STRANGER, STRANGERS_EPOCH = 1 << 40, 7_777
Ask = Callable[..., Any]


@pytest.fixture(scope="module", autouse=True)
def _coordinators(pair: Pair) -> None:
    wait_for_transactions(pair)


def verify(session: Session, *, wanted: bool) -> None:
    change = {
        "name": VERIFICATION,
        "config_operation": DELETE if wanted else SET,
        "value": None if wanted else "false",
    }
    resource = {"resource_type": BROKER, "resource_name": "", "configs": [change]}
    session.ask(INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})


def leave_one_hanging(session: Session, topic: str, producer_id: int, partition: int) -> None:
    """A batch that no coordinator knows of, in the partition, as one that comes late for its transaction."""
    records = bytes(
        batch(
            b"late",
            producer_id=producer_id,
            producer_epoch=STRANGERS_EPOCH,
            base_sequence=0,
            transactional=True,
        )
    )

    def is_taken() -> bool:
        data = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
        message = {"acks": -1, "timeout_ms": 5000, "transactional_id": "late", "topic_data": data}
        answer = session.look(PRODUCE, 9, message)["responses"][0]["partition_responses"][0]
        return bool(answer["error_code"] == 0)

    eventually(is_taken, what="a batch that nobody verifies")


def prepare(session: Session, topic: str) -> list[Producer]:
    """A transaction that is open, one that is committed, and one that hangs in partition 1."""
    create_topic(session, topic, partitions=2)
    opened, done = (Producer(session, f"{topic}-{state}") for state in ("open", "done"))
    for producer in (opened, done):
        producer.begin()
        producer.add(3, {topic: [0]})
        producer.write(topic, b"value", first=0)
    done.end(3, commit=True)
    done.settle()
    verify(session, wanted=False)
    leave_one_hanging(session, topic, STRANGER, 1)
    verify(session, wanted=True)
    return [opened, done]


def test_headrace_finds_and_aborts_what_hangs(pair: Pair) -> None:
    topic = "tools-hanging"

    def script(session: Session) -> None:
        host, port = session._address
        producers = prepare(session, topic)
        known = {producer.producer_id: number for number, producer in enumerate(producers)}

        def masked(row: Any) -> Any:
            if isinstance(row, dict):
                row.pop("last_timestamp_ms", None)
                for clock in ("started_ms", "open_ms"):
                    row |= {clock: row[clock] is not None} if clock in row else {}
                row["producer_id"] = known.get(row["producer_id"], row["producer_id"])
            return row

        def run(*arguments: str, code: int = 0) -> None:
            done = headrace("transactions", *arguments, "--bootstrap", f"{host}:{port}")
            assert done.returncode == code, done.stdout + done.stderr
            if "--json" not in arguments:
                session.note(" ".join(arguments), (done.stdout + done.stderr).replace(str(port), "PORT"))
                return
            answer = json.loads(done.stdout)
            rows = [masked(row) for row in answer] if isinstance(answer, list) else masked(answer)
            if arguments[0] == "list":
                rows = [row for row in rows if row["transactional_id"].startswith(topic)]
            session.note(" ".join(arguments), rows)

        run("list", "--json")
        run("list", "--state", "Ongoing", "--json")
        run("list", "--state", "Merry", code=1)
        run("describe", producers[0].name, "--json")
        run("describe", producers[1].name, "--json")
        run("describe", "nobody", code=1)
        for partition in ("0", "1"):
            run("describe-producers", topic, partition, "--json")
        run("describe-producers", topic, "7", code=1)
        run("describe-producers", "no-topic", "0", code=1)
        run("find-hanging", "--topic", topic)
        run("find-hanging", "--topic", topic, "--max-transaction-timeout", "0", "--json")
        run("find-hanging", "--topic", topic, "--partition", "0", "--max-transaction-timeout", "0", "--json")
        run("abort", topic, "0", "--start-offset", "0", code=1)
        run("abort", topic, "1", "--start-offset", "5", code=1)
        run("abort", topic, "1", "--start-offset", "0")
        run("abort", topic, "1", "--start-offset", "0", code=1)
        run("find-hanging", "--topic", topic, "--max-transaction-timeout", "0")
        run("describe-producers", topic, "1", "--json")
        producers[0].end(3, commit=True)
        producers[0].settle()

    pair.compare(script)


@pytest.mark.long
def test_kafkas_own_tool_finds_and_aborts_what_hangs(pair: Pair, kafka_jars: Path) -> None:
    topic = "tools-of-kafka"

    def script(session: Session) -> None:
        host, port = session._address
        producers = prepare(session, topic)

        def run(*arguments: str, code: int = 0) -> None:
            ended = run_tool(kafka_jars, TOOL, "--bootstrap-server", f"{host}:{port}", *arguments)
            assert ended.returncode == code, ended.stdout + ended.stderr
            lines = [line for line in ended.stdout.splitlines() if arguments[0] != "list" or topic in line]
            text = "\n".join(sorted(lines))
            for number, producer in enumerate(producers):
                text = re.sub(rf"\b{producer.producer_id}\b", f"PRODUCER-{number}", text)
            # Times, and how long ago they were.
            text = re.sub(r"\b\d{13}\b", "TIME", text)
            session.note(
                " ".join(arguments),
                [line.split()[:-1] if "TIME" in line else line.split() for line in text.splitlines()],
            )

        place = ("--topic", topic, "--partition", "1")
        run("list")
        run("describe", "--transactional-id", producers[1].name)
        run("describe-producers", *place)
        run("describe-producers", "--topic", topic, "--partition", "0", "--broker-id", "1")
        run("find-hanging", "--topic", topic)
        run("find-hanging", "--broker-id", "1", "--topic", topic, "--max-transaction-timeout", "0")
        run("abort", *place, "--start-offset", "0")
        run("find-hanging", "--topic", topic, "--max-transaction-timeout", "0")
        run("describe-producers", *place)
        producers[0].end(3, commit=True)
        producers[0].settle()

    pair.compare(script)
