"""`headrace produce`: publishes lines of standard input or of a file, one message a line."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any, BinaryIO, Final

import click
from confluent_kafka import KafkaError, KafkaException, Producer

from headrace.broker.client.bootstrap import Bootstrap
from headrace.cli.asking import client_settings, reason_of
from headrace.cli.shared import bootstrap_option, json_option, parse_settings

DEFAULTS: Final = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 5,
    "delivery.timeout.ms": 30_000,
    # So long a topic may take to be created; by default as long as a delivery, which then only times out.
    "topic.metadata.propagation.max.ms": 5000,
    "log_level": 0,
}
MESSAGE_LINE_SIZE_MAX: Final = 64 * 1024 * 1024
"""Bytes of a line, its end included; topics take a MiB unless they are told otherwise."""

PARTITION_OF_KEY: Final = -1
"""librdkafka's: any, where there is no key."""

INTERRUPTED: Final = 130
"""The exit code that shells know of Ctrl-C."""


class Deliveries:
    """Counts what became of the messages; `trouble` is what the client said last of brokers that are away."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self.acknowledged = 0
        self.failures: Counter[str] = Counter()
        self.trouble: KafkaError | None = None
        self.is_late = False

    def __call__(self, error: KafkaError | None, _: Any) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            from headrace.producer.stream import explained

            self.failures[explained(error, self._topic).str()] += 1
            self.is_late |= error.code() == KafkaError._MSG_TIMED_OUT

    def note_trouble(self, error: KafkaError) -> None:
        """For the client, which says so before anything times out."""
        self.trouble = error

    def sentence(self) -> str:
        """Why messages failed."""
        reasons = ", ".join(f"{count}: {reason}" for reason, count in self.failures.items())
        away = f"; {reason_of(KafkaException(self.trouble))}" if self.is_late and self.trouble else ""
        return f"{sum(self.failures.values())} messages were not acknowledged ({reasons}){away}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How lines become messages."""

    key_separator: bytes | None
    null: bytes | None
    headers: list[tuple[str, bytes]]
    partition: int

    def message(self, line: bytes) -> dict[str, Any]:
        """Return key, value, headers and partition of a line's message."""
        key, value = _split(line, self.key_separator)
        return {
            "key": None if key == self.null else key,
            "value": None if value == self.null else value,
            "headers": self.headers,
            "partition": self.partition,
        }


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
    "--null", metavar="TEXT", help="A key or a value that is just this text is none: a tombstone's value."
)
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="Header of each message.")
@click.option("--partition", type=click.IntRange(min=0), help="Partition, by default the key's.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Setting of librdkafka, such as acks=1."
)
@json_option
def produce(
    topic: str,
    bootstrap: Bootstrap,
    source: BinaryIO,
    key_separator: str | None,
    null: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Publish each line as one message; exit 1 when any was not acknowledged.

    A line of more than 64 MiB ends the reading.

    Ctrl-C and SIGTERM end the reading: what was read until then is published and told, with exit code 130.
    """
    form = _form(key_separator, null, headers, partition)
    wished = parse_settings(settings)
    weaker: dict[str, Any] = (
        {} if wished.get("acks", "all") in ("all", "-1") else {"enable.idempotence": False}
    )
    deliveries = Deliveries(topic)
    try:
        producer = Producer(
            {
                **DEFAULTS,
                **weaker,
                **client_settings(bootstrap),
                **wished,
                "bootstrap.servers": bootstrap.servers,
                "error_cb": deliveries.note_trouble,
            }
        )
    except KafkaException as error:
        raise click.UsageError(f"{error.args[0].str()}.") from error
    is_interrupted = False
    wrong = []
    _heed(_interrupt)
    try:
        for number, line in enumerate(_lines(source), 1):
            if len(line) > MESSAGE_LINE_SIZE_MAX:
                wrong.append(
                    f"Line {number} is longer than {MESSAGE_LINE_SIZE_MAX} bytes: "
                    "shorten it, and publish what stands from it on."
                )
                break
            _publish(producer, topic, form.message(line.rstrip(b"\r\n")), deliveries)
        _heed(signal.SIG_IGN)
    except KeyboardInterrupt:
        is_interrupted = True
    # It ends by itself, and a signal that a wrapper forwards again must not cut it short.
    _heed(signal.SIG_IGN)
    producer.flush()
    failed = sum(deliveries.failures.values())
    if as_json:
        click.echo(json.dumps({"topic": topic, "acknowledged": deliveries.acknowledged, "failed": failed}))
    else:
        click.echo(f"{deliveries.acknowledged} messages acknowledged in {topic}", err=True)
    if failed:
        wrong.append(deliveries.sentence())
    if wrong:
        raise click.ClickException(" ".join(wrong))
    if is_interrupted:
        raise click.exceptions.Exit(INTERRUPTED)


def _lines(source: BinaryIO) -> Iterator[bytes]:
    """The lines with their ends; of one that is too long the beginning, by one byte too long."""
    return iter(partial(source.readline, MESSAGE_LINE_SIZE_MAX + 1), b"")


def _heed(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _form(
    key_separator: str | None, null: str | None, headers: tuple[str, ...], partition: int | None
) -> Form:
    if key_separator == "":
        raise click.UsageError("--key-separator must not be empty.")
    pairs = [header.partition("=") for header in headers]
    for header, (name, equals, _) in zip(headers, pairs, strict=True):
        if not name or not equals:
            raise click.UsageError(f"--header {header}: write NAME=VALUE.")
    return Form(
        key_separator=key_separator.encode() if key_separator else None,
        null=None if null is None else null.encode(),
        headers=[(name, value.encode()) for name, _, value in pairs],
        partition=PARTITION_OF_KEY if partition is None else partition,
    )


def _split(line: bytes, separator: bytes | None) -> tuple[bytes | None, bytes]:
    if separator is None or separator not in line:
        return None, line
    key, _, value = line.partition(separator)
    return key, value


def _publish(producer: Producer, topic: str, message: dict[str, Any], deliveries: Deliveries) -> None:
    while True:
        try:
            producer.produce(topic, **message, on_delivery=deliveries)
        except BufferError:
            # The client's queue is bounded and its messages expire, so this ends.
            producer.poll(0.1)
        except KafkaException as error:
            deliveries(error.args[0], None)
            return
        else:
            producer.poll(0)
            return
