"""`headrace produce`: publishes lines of standard input or of a file, one message a line."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, BinaryIO, Final

import click
from confluent_kafka import KafkaError, KafkaException, Producer

from headrace.broker.client.bootstrap import Bootstrap
from headrace.cli.asking import client_settings
from headrace.cli.shared import bootstrap_option, json_option, parse_settings

DEFAULTS: Final = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 5,
    "delivery.timeout.ms": 30_000,
    "log_level": 0,
}


class Deliveries:
    """Counts what became of the messages."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self.failures: Counter[str] = Counter()

    def __call__(self, error: KafkaError | None, _: Any) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failures[error.str()] += 1


@click.command(epilog="Example: echo hello | headrace produce greetings --bootstrap 127.0.0.1:9092")
@click.argument("topic")
@bootstrap_option
@click.option(
    "--file", "source", type=click.File("rb"), default="-", help="File to read; standard input by default."
)
@click.option(
    "--key-separator", metavar="TEXT", help="What precedes this text in a line is the message's key."
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Setting of librdkafka, such as acks=1."
)
@json_option
def produce(
    topic: str,
    bootstrap: Bootstrap,
    source: BinaryIO,
    key_separator: str | None,
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Publish each line as one message; exit 1 when any was not acknowledged."""
    if key_separator == "":
        raise click.UsageError("--key-separator must not be empty.")
    wished = parse_settings(settings)
    weaker: dict[str, Any] = (
        {} if wished.get("acks", "all") in ("all", "-1") else {"enable.idempotence": False}
    )
    try:
        producer = Producer(
            {
                **DEFAULTS,
                **weaker,
                **client_settings(bootstrap),
                **wished,
                "bootstrap.servers": bootstrap.servers,
            }
        )
    except KafkaException as error:
        raise click.UsageError(f"{error.args[0].str()}.") from error
    separator = key_separator.encode() if key_separator else None
    deliveries = Deliveries()
    for line in source:
        key, value = _split(line.rstrip(b"\r\n"), separator)
        _publish(producer, topic, key, value, deliveries)
    producer.flush()
    failed = sum(deliveries.failures.values())
    if as_json:
        click.echo(json.dumps({"topic": topic, "acknowledged": deliveries.acknowledged, "failed": failed}))
    else:
        click.echo(f"{deliveries.acknowledged} messages acknowledged in {topic}", err=True)
    if failed:
        reasons = ", ".join(f"{count}: {reason}" for reason, count in deliveries.failures.items())
        raise click.ClickException(f"{failed} messages were not acknowledged ({reasons}).")


def _split(line: bytes, separator: bytes | None) -> tuple[bytes | None, bytes]:
    if separator is None or separator not in line:
        return None, line
    key, _, value = line.partition(separator)
    return key, value


def _publish(producer: Producer, topic: str, key: bytes | None, value: bytes, deliveries: Deliveries) -> None:
    while True:
        try:
            producer.produce(topic, value=value, key=key, on_delivery=deliveries)
        except BufferError:
            # The client's queue is bounded and its messages expire, so this ends.
            producer.poll(0.1)
        except KafkaException as error:
            deliveries(error.args[0], None)
            return
        else:
            producer.poll(0)
            return
