"""`headrace broker --check FILE`: what a broker would start with is accepted, anything else gets one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.broker.command import broker

GOOD = "broker.id=1\nzookeeper.connect=127.0.0.1:2181\nlisteners=PLAINTEXT://127.0.0.1:9092\n"
REFUSED = {
    "a value of another type": (
        "num.partitions=many",
        "num.partitions=many is not allowed: give a whole number from 1 to 2147483647.",
    ),
    "no ensemble": (
        "zookeeper.connect=",
        "zookeeper.connect= is not allowed: give HOST:PORT,HOST:PORT/chroot of the ensemble.",
    ),
    "a misspelt key": (
        "num.partition=3",
        "num.partition is no key that headrace or Apache Kafka knows: the nearest is num.partitions.",
    ),
    "a misspelt key of headrace's own": (
        "headrace.metrics.listner=127.0.0.1:9404",
        "headrace.metrics.listner is no key that headrace or Apache Kafka knows: the nearest is headrace.metrics.listener.",
    ),
    "a key like nothing": ("zzzz=1", "zzzz is no key that headrace or Apache Kafka knows: take it out."),
    "a listener with TLS without a key": (
        "listeners=PLAINTEXT://127.0.0.1:9092,SSL://127.0.0.1:9093",
        "ssl.keystore.location= is not allowed: give the file with the broker's key and certificate.",
    ),
    "a store that is not there, of one listener": (
        "listeners=PLAINTEXT://127.0.0.1:9092,SSL://127.0.0.1:9093\n"
        "listener.name.ssl.ssl.keystore.type=PEM\nlistener.name.ssl.ssl.keystore.location=/no/such",
        "listener.name.ssl.ssl.keystore.location=/no/such is not allowed: "
        "give a file that can be read (No such file or directory).",
    ),
    "a listener where nobody could log in": (
        "listeners=PLAINTEXT://127.0.0.1:9092,SASL_PLAINTEXT://127.0.0.1:9093\nsasl.enabled.mechanisms=KERBEROS",
        "sasl.enabled.mechanisms=KERBEROS is not allowed: give for listener SASL_PLAINTEXT one or more of PLAIN, SCRAM-SHA-256, "
        "SCRAM-SHA-512, OAUTHBEARER.",
    ),
    "a store for ZooKeeper that is not there": (
        "zookeeper.ssl.client.enable=true\nzookeeper.ssl.truststore.location=/no/such.pem",
        "zookeeper.ssl.truststore.location=/no/such.pem is not allowed: "
        "give a file that can be read (No such file or directory).",
    ),
    "a JAAS file for ZooKeeper that is not there": (
        "headrace.zookeeper.jaas.file=/no/such.jaas",
        "headrace.zookeeper.jaas.file=/no/such.jaas is not allowed: "
        "give a file that can be read (No such file or directory).",
    ),
    "ACLs in ZooKeeper of a broker that shows nothing": (
        "zookeeper.set.acl=true",
        "zookeeper.set.acl=true is not allowed: give false, or a section Client in headrace.zookeeper.jaas.file, "
        "or zookeeper.ssl.client.enable with a key store.",
    ),
    "a source of the mirror without brokers": (
        "mirror.sources=east",
        "mirror.east.bootstrap.servers= is not allowed: give HOST:PORT,HOST:PORT of the source's brokers.",
    ),
}


def properties(folder: Path, line: str) -> Path:
    file = folder / "server.properties"
    file.write_text(f"{GOOD}{line}\n", encoding="utf-8")
    return file


def test_a_file_that_a_broker_starts_with_is_accepted(tmp_path: Path) -> None:
    result = CliRunner().invoke(broker, ["--check", str(properties(tmp_path, "num.partitions=3"))])
    assert (result.exit_code, result.output) == (0, "")


@pytest.mark.parametrize("name", REFUSED)
def test_any_other_gets_a_sentence_with_key_value_and_what_is_allowed(tmp_path: Path, name: str) -> None:
    line, sentence = REFUSED[name]
    file = properties(tmp_path, line)
    result = CliRunner().invoke(broker, ["--check", str(file)])
    assert (result.exit_code, result.output) == (2, f"Error: {file}: {sentence}\n")


@pytest.mark.parametrize("arguments", [(), ("--config", "{0}", "--check", "{0}")])
def test_a_broker_is_run_or_its_file_checked(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    file = properties(tmp_path, "")
    result = CliRunner().invoke(broker, [argument.format(file) for argument in arguments])
    assert result.exit_code == 2
    assert "Give either --config FILE, to run a broker, or --check FILE." in result.output
