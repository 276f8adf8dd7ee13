"""Apache Kafka's own command line tools, which are its Java clients, say and do the same with headrace as with Kafka.

What a tool prints is compared but for addresses, topic ids and measured speeds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka_oracle import run_tool
from sessions import Pair
from test_conformance_clients import agree, make_topic

TOOLS = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "configs": "kafka.admin.ConfigCommand",
    "groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "offsets": "org.apache.kafka.tools.GetOffsetShell",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "console-producer": "kafka.tools.ConsoleProducer",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "producer-performance": "org.apache.kafka.tools.ProducerPerformance",
    "consumer-performance": "org.apache.kafka.tools.ConsumerPerformance",
}
Tool = Callable[..., str]


@pytest.fixture
def tool(kafka_jars: Path) -> Tool:
    """`tool(name, bootstrap, *arguments, stdin=None, code=0)`: what it prints, the broker's address and topic ids masked."""

    def run(name: str, bootstrap: str, *arguments: str, stdin: str | None = None, code: int = 0) -> str:
        where = () if name == "producer-performance" else ("--bootstrap-server", bootstrap)
        ended = run_tool(kafka_jars, TOOLS[name], *where, *arguments, stdin=stdin)
        assert ended.returncode == code, ended.stdout + ended.stderr
        text = re.sub(r"TopicId: \S+", "TopicId: ID", ended.stdout.replace(bootstrap, "BROKER"))
        return text.replace(bootstrap.rpartition(":")[2], "PORT")

    return run


def table(text: str) -> list[list[str]]:
    """The words of each line, in any order of lines."""
    return sorted(line.split() for line in text.splitlines() if line.strip())


def words(text: str) -> list[str]:
    """All words, as Kafka lists settings in hash order."""
    return sorted(re.split(r"[\s,]+", text))


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


@pytest.mark.long
def test_java_topics_are_made_described_grown_and_deleted(pair: Pair, tool: Tool) -> None:
    name = ("--topic", "java-topics")

    def script(bootstrap: str) -> list[str | list[str]]:
        made = ("--partitions", "2", "--replication-factor", "1", "--config", "retention.ms=123456")
        said: list[str | list[str]] = [tool("topics", bootstrap, "--create", *name, *made)]
        said.append(tool("topics", bootstrap, "--create", *name, *made, code=1).splitlines()[0])
        said.append(tool("topics", bootstrap, "--alter", *name, "--partitions", "3"))
        said.append(words(tool("topics", bootstrap, "--describe", *name)))
        return [*said, tool("topics", bootstrap, "--delete", *name)]

    said = agree(pair, script)
    assert "already exists" in said[1]
    assert "retention.ms=123456" in said[3]
    assert said[3].count("Leader:") == 3


@pytest.mark.long
def test_java_configurations_are_altered_and_described(pair: Pair, tool: Tool) -> None:
    def script(bootstrap: str) -> list[object]:
        make_topic(bootstrap, "java-configs")
        topic = ("--entity-type", "topics", "--entity-name", "java-configs")
        wanted = "retention.ms=1000,cleanup.policy=[compact,delete]"
        said: list[object] = [tool("configs", bootstrap, "--alter", *topic, "--add-config", wanted)]
        said.append(table(tool("configs", bootstrap, "--describe", *topic)))
        said.append(tool("configs", bootstrap, "--alter", *topic, "--delete-config", "retention.ms"))
        return [*said, table(tool("configs", bootstrap, "--describe", *topic))]

    said = agree(pair, script)
    assert "retention.ms=1000" in str(said[1])
    assert "retention.ms" not in str(said[3])


@pytest.mark.long
def test_java_levels_of_loggers_are_altered_and_described(pair: Pair, tool: Tool) -> None:
    loggers = ("--entity-type", "broker-loggers", "--entity-name", "1")

    def script(bootstrap: str) -> list[str]:
        said = [tool("configs", bootstrap, "--alter", *loggers, "--add-config", "root=ERROR")]
        told = tool("configs", bootstrap, "--describe", *loggers)
        said += [line.strip() for line in told.splitlines() if line.strip().startswith("root=")]
        return [*said, tool("configs", bootstrap, "--alter", *loggers, "--add-config", "root=WARN")]

    assert "root=ERROR" in agree(pair, script)[1]


def test_java_console_producer_and_consumer_carry_lines(pair: Pair, tool: Tool) -> None:
    lines = "".join(f"key {n}\tline {n} – é\n" for n in range(500))
    name = ("--topic", "java-console")

    def script(bootstrap: str) -> str:
        make_topic(bootstrap, name[1])
        keyed = ("--property", "parse.key=true", "--compression-codec", "zstd")
        tool("console-producer", bootstrap, *name, *keyed, stdin=lines)
        shown = ("--property", "print.key=true", "--property", "print.offset=true")
        bounds = ("--from-beginning", "--max-messages", "500", "--timeout-ms", "30000")
        return tool("console-consumer", bootstrap, *name, *bounds, *shown, "--group", "java-console")

    assert agree(pair, script).splitlines()[499] == "Offset:499\tkey 499\tline 499 – é"


@pytest.mark.long
def test_java_offsets_and_records_are_listed_and_deleted(pair: Pair, tool: Tool, tmp_path: Path) -> None:
    name = ("--topic", "java-offsets")

    def script(bootstrap: str) -> list[str]:
        make_topic(bootstrap, name[1])
        tool("console-producer", bootstrap, *name, stdin="line\n" * 20)
        partitions = [{"topic": name[1], "partition": 0, "offset": 7}]
        wish = tmp_path / f"{bootstrap.rpartition(':')[2]}.json"
        wish.write_text(json.dumps({"partitions": partitions, "version": 1}))
        said = [tool("delete-records", bootstrap, "--offset-json-file", str(wish))]
        return said + [tool("offsets", bootstrap, *name, "--time", time) for time in ("earliest", "latest")]

    said = agree(pair, script)
    assert "low_watermark: 7" in said[0]
    assert said[1:] == ["java-offsets:0:7\n", "java-offsets:0:20\n"]


@pytest.mark.long
def test_java_groups_are_listed_described_reset_and_deleted(pair: Pair, tool: Tool) -> None:
    group = ("--group", "java-groups")

    def script(bootstrap: str) -> list[Any]:
        make_topic(bootstrap, "java-groups")
        tool("console-producer", bootstrap, "--topic", "java-groups", stdin="line\n" * 20)
        bounds = ("--topic", "java-groups", "--from-beginning", "--max-messages", "12")
        tool("console-consumer", bootstrap, *bounds, *group)
        listed = table(tool("groups", bootstrap, "--list", "--state"))
        said: list[Any] = [[line for line in listed if line[0] == "java-groups"]]
        said.append(table(tool("groups", bootstrap, "--describe", *group)))
        reset = ("--reset-offsets", "--topic", "java-groups", "--to-offset", "5", "--execute")
        said.append(table(tool("groups", bootstrap, *reset, *group)))
        said.append(tool("groups", bootstrap, "--delete", *group))
        return said

    said = agree(pair, script)
    assert said[0] == [["java-groups", "Empty"]]
    assert ["java-groups", "java-groups", "0", "12", "20", "8", "-", "-", "-"] in said[1]


@pytest.mark.long
def test_java_verifiable_clients_account_for_every_message(pair: Pair, tool: Tool) -> None:
    def script(bootstrap: str) -> tuple[int, bool, bool]:
        make_topic(bootstrap, "java-verifiable", 3)
        where = ("--topic", "java-verifiable", "--max-messages", "2000")
        sent = events(tool("verifiable-producer", bootstrap, *where, "--acks", "-1"))
        acknowledged = {(e["partition"], e["offset"]) for e in sent if e["name"] == "producer_send_success"}
        group = ("--group-id", "java-verifiable", "--verbose", "--reset-policy", "earliest")
        got = events(tool("verifiable-consumer", bootstrap, *where, *group))
        read = {(e["partition"], e["offset"]) for e in got if e["name"] == "record_data"}
        committed = all(e["success"] for e in got if e["name"] == "offsets_committed")
        return len(acknowledged), read == acknowledged, committed

    assert agree(pair, script) == (2000, True, True)


@pytest.mark.long
def test_java_performance_clients_count_what_they_carried(pair: Pair, tool: Tool) -> None:
    name = ("--topic", "java-performance")

    def script(bootstrap: str) -> tuple[bool, int, int]:
        make_topic(bootstrap, name[1], 3)
        sizes = ("--num-records", "20000", "--record-size", "500", "--throughput", "-1")
        settings = (
            "--producer-props",
            f"bootstrap.servers={bootstrap}",
            "enable.idempotence=true",
            "acks=all",
        )
        sent = tool("producer-performance", bootstrap, *name, *sizes, *settings)
        ends = [int(line.rpartition(":")[2]) for line in tool("offsets", bootstrap, *name).splitlines()]
        got = tool(
            "consumer-performance", bootstrap, *name, "--messages", "20000", "--group", "java-performance"
        )
        return "20000 records sent" in sent, sum(ends), int(got.splitlines()[1].split(",")[4])

    assert agree(pair, script) == (True, 20_000, 20_000)
