"""Apache Kafka's own Java clients against headrace: console, performance and verifiable tools as people use them."""

from __future__ import annotations

import json
from pathlib import Path

from kafka_oracle import run_tool
from sessions import Pair, Session, create_topic


def topic(pair: Pair, name: str, partitions: int = 1) -> tuple[str, str]:
    """(name, bootstrap address) of a new topic."""
    session = Session(pair.headrace.addresses[0])
    create_topic(session, name, partitions)
    session.close()
    return name, pair.headrace.bootstrap


def test_the_console_producer_and_consumer_carry_lines(pair: Pair, kafka_jars: Path) -> None:
    name, bootstrap = topic(pair, "java-console")
    where = ["--bootstrap-server", bootstrap, "--topic", name]
    lines = [f"line {n} – é" for n in range(500)]
    properties = ["--compression-codec", "zstd"]
    run = run_tool(
        kafka_jars, "kafka.tools.ConsoleProducer", *where, *properties, stdin="\n".join(lines) + "\n"
    )
    assert run.returncode == 0, run.stderr
    reader = ["--from-beginning", "--max-messages", "500", "--timeout-ms", "30000", "--group", "java-console"]
    run = run_tool(kafka_jars, "org.apache.kafka.tools.consumer.ConsoleConsumer", *where, *reader)
    assert run.stdout.splitlines() == lines, run.stderr


def test_the_verifiable_producer_and_consumer_account_for_every_message(pair: Pair, kafka_jars: Path) -> None:
    name, bootstrap = topic(pair, "java-verifiable", 3)
    where = ["--bootstrap-server", bootstrap, "--topic", name, "--max-messages", "2000"]
    run = run_tool(kafka_jars, "org.apache.kafka.tools.VerifiableProducer", *where, "--acks", "-1")
    events = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    acknowledged = {(e["partition"], e["offset"]) for e in events if e["name"] == "producer_send_success"}
    assert len(acknowledged) == 2000, run.stderr
    group = ["--group-id", "java-verifiable", "--verbose", "--reset-policy", "earliest"]
    run = run_tool(kafka_jars, "org.apache.kafka.tools.VerifiableConsumer", *where, *group)
    events = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    read = {(e["partition"], e["offset"]) for e in events if e["name"] == "record_data"}
    assert read == acknowledged, run.stderr
    assert all(e["success"] for e in events if e["name"] == "offsets_committed")


def test_the_idempotent_performance_producer_delivers_all(pair: Pair, kafka_jars: Path) -> None:
    name, bootstrap = topic(pair, "java-perf", 3)
    sizes = ["--num-records", "20000", "--record-size", "500", "--throughput", "-1"]
    properties = ["--producer-props", f"bootstrap.servers={bootstrap}", "enable.idempotence=true"]
    tool = "org.apache.kafka.tools.ProducerPerformance"
    run = run_tool(kafka_jars, tool, "--topic", name, *sizes, *properties)
    assert "20000 records sent" in run.stdout, run.stderr
    run = run_tool(
        kafka_jars, "org.apache.kafka.tools.GetOffsetShell", "--bootstrap-server", bootstrap, "--topic", name
    )
    ends = [int(line.rpartition(":")[2]) for line in run.stdout.splitlines() if line.startswith(name)]
    assert len(ends) == 3
    assert sum(ends) == 20000
