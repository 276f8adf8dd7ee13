"""`headrace consume`: prints a topic's messages, as text, JSON, or decoded with the registry's schemas.

Invariant: a group's offsets pass what was printed, and what --skip-bad lets it skip, nothing else.
"""

from __future__ import annotations

import base64
import json
import math
import signal
import struct
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import click
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from headrace.broker.client.bootstrap import Bootstrap
from headrace.cli.asking import admin_client, asked, client_settings, reason_of
from headrace.cli.group_reset import EARLIEST, ResetPoint, offsets_at, place_of
from headrace.cli.shared import TIMEOUT_SECONDS, bootstrap_option, json_option
from headrace.events.registry_address import RegistryAddress
from headrace.events.registry_client import opened_client
from headrace.events.registry_option import registry_option
from headrace.events.times import AVRO_READERS

POLL_SECONDS: Final = 0.2
ANSWER_SECONDS_MIN: Final = 1.0
"""What the brokers have to answer however short --timeout is."""

NOT_FOUND: Final = 404

Decode = Callable[[bytes | None], Any]


class UndecodableError(Exception):
    """A value is not what the registry's schemas describe; the message says why."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin, and in which partition; None: in all of them."""

    place: ResetPoint
    partition: int | None


@dataclass(slots=True)
class Progress:
    printed: int = 0
    skipped: int = 0


@click.command(
    epilog="Example: headrace consume pageviews --max 10 --timeout 5 --bootstrap 127.0.0.1:9092 "
    "--registry http://127.0.0.1:8081"
)
@click.argument("topic")
@bootstrap_option
@click.option("--group", help="Go on from this group's committed offsets and commit what was printed.")
@click.option(
    "--from",
    "begin",
    metavar="PLACE",
    help="Begin at earliest (without it), latest, an offset, or a time such as 2026-11-28T06:00; not with --group.",
)
@click.option("--partition", type=click.IntRange(min=0), help="Read this partition alone; not with --group.")
@click.option("--max", "count_max", type=click.IntRange(min=1), help="Stop after this many messages.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    help="Stop when no message came for so many seconds; the brokers have as long to answer at first, from 1 to 10.",
)
@registry_option("Decode Avro values with this schema registry.", required=False)
@click.option(
    "--skip-bad",
    is_flag=True,
    help="Go on behind records that do not decode, tell each on standard error, and commit past them with --group.",
)
@json_option
def consume(
    topic: str,
    bootstrap: Bootstrap,
    group: str | None,
    begin: str | None,
    partition: int | None,
    count_max: int | None,
    timeout: float | None,
    registry: RegistryAddress | None,
    skip_bad: bool,
    as_json: bool,
) -> None:
    """Print messages from the beginning, from --from, or from where a group stopped.

    Goes on until --max, --timeout, SIGTERM or Ctrl-C. Exit 1 when --max messages did not come before --timeout, and at the
    first record that does not decode (without --skip-bad).

    Bytes that are no UTF-8 are printed as \\xNN; with --json they are beside that in base64, as key_base64 and value_base64,
    and so are values of headers, which only --json prints.
    With --registry, times are printed as ISO 8601; one before the year 1 or after 9999 as its milliseconds since 1970.
    """
    if skip_bad and not registry:
        raise click.UsageError("--skip-bad is about records that do not decode: it needs --registry.")
    start = _start(begin, partition, group)
    decode = _avro_decoder(registry, topic) if registry else _text
    consumer = Consumer(_config(bootstrap, group))
    stops: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: stops.append(received))
    done = Progress()
    try:
        partitions = _partitions(consumer, topic, timeout)
        if group:
            consumer.subscribe([topic])
        else:
            consumer.assign(_positions(bootstrap, topic, partitions, start))
        for message in _messages(consumer, topic, timeout, lambda: bool(stops)):
            _print(message, decode, done, as_json=as_json, skip_bad=skip_bad)
            if group:
                consumer.store_offsets(message)
            if done.printed == count_max:
                break
        sys.stdout.flush()
    except KafkaException as error:
        raise click.ClickException(f"consume {topic}: {reason_of(error)}.") from error
    finally:
        consumer.close()
        if done.skipped:
            click.echo(f"records skipped: {done.skipped}", err=True)
    if count_max and done.printed < count_max:
        raise click.ClickException(f"only {done.printed} of {count_max} messages came.")


def _config(bootstrap: Bootstrap, group: str | None) -> dict[str, Any]:
    return {
        **client_settings(bootstrap),
        "group.id": group or f"headrace-consume-{uuid.uuid4()}",
        "enable.auto.commit": group is not None,
        # Only what was printed is committed.
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "log_level": 0,
    }


def _start(begin: str | None, partition: int | None, group: str | None) -> Start:
    if group and (begin or partition is not None):
        raise click.UsageError(
            "--from and --partition are not for a group, whose place `headrace groups reset` chooses."
        )
    try:
        return Start(place_of(begin or EARLIEST), partition)
    except ValueError:
        raise click.UsageError(
            f"--from {begin}: write earliest, latest, an offset, or a time such as 2026-11-28T06:00."
        ) from None


def _partitions(consumer: Consumer, topic: str, timeout: float | None) -> list[int]:
    seconds = TIMEOUT_SECONDS if timeout is None else min(max(timeout, ANSWER_SECONDS_MIN), TIMEOUT_SECONDS)
    metadata = asked(f"consume {topic}", lambda: consumer.list_topics(topic, timeout=seconds)).topics[topic]
    if metadata.error is not None:
        raise click.ClickException(f"consume {topic}: {reason_of(metadata.error)}.")
    return sorted(metadata.partitions)


def _positions(bootstrap: Bootstrap, topic: str, partitions: list[int], start: Start) -> list[TopicPartition]:
    """Return where to begin in each partition that is wanted; raises ClickException where there is none."""
    wanted = [each for each in partitions if start.partition in (None, each)]
    if not wanted:
        raise click.ClickException(
            f"consume {topic}: it has no partition {start.partition}, only 0 to {partitions[-1]}."
        )
    if start.place.end == EARLIEST:
        return [TopicPartition(topic, each, OFFSET_BEGINNING) for each in wanted]
    offsets = offsets_at(admin_client(bootstrap), [(topic, each) for each in wanted], start.place)
    return [TopicPartition(*key, offset) for key, offset in offsets.items()]


def _messages(
    consumer: Consumer, topic: str, timeout: float | None, stopped: Callable[[], bool]
) -> Iterator[Message]:
    """Yield messages until told to stop or none came for `timeout` seconds."""
    last = time.monotonic()
    while not stopped():
        message = consumer.poll(POLL_SECONDS)
        error = message.error() if message is not None else None
        if error is not None:
            _raise_unless_passing(error)
        elif message is not None:
            yield message
            last = time.monotonic()
            continue
        if timeout is not None and time.monotonic() - last >= timeout:
            return


def _raise_unless_passing(error: KafkaError) -> None:
    passing = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
    if error.fatal() or not (error.retriable() or error.code() in passing):
        raise KafkaException(error)


def _print(message: Message, decode: Decode, done: Progress, *, as_json: bool, skip_bad: bool) -> None:
    """Print a message; one that does not decode ends the command, or is told and skipped."""
    try:
        line = _line(message, decode, as_json=as_json)
    except UndecodableError as error:
        place = f"{message.topic()} partition {message.partition()} offset {message.offset()}"
        sentence = f"{place} does not decode: {error}"
        if not skip_bad:
            raise click.ClickException(f"{sentence}; --skip-bad goes on behind such records.") from error
        click.echo(f"Skipped: {sentence}", err=True)
        done.skipped += 1
    else:
        click.echo(line)
        done.printed += 1


def _line(message: Message, decode: Decode, *, as_json: bool) -> str:
    value = decode(message.value())
    if not as_json:
        return value if isinstance(value, str) else _json(value)
    _, timestamp = message.timestamp()
    record = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp,
        "key": _text(message.key()) if message.key() is not None else None,
        "value": value if message.value() is not None else None,
        **_base64("key", message.key()),
        **(_base64("value", message.value()) if decode is _text else {}),
        "headers": _headers(message),
    }
    return _json(record)


def _json(value: Any) -> str:
    """Return one line of JSON, which has no number for NaN and Infinity: they are texts."""
    try:
        return json.dumps(value, default=_plain, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), default=_plain, ensure_ascii=False)


def _finite(value: Any) -> Any:
    """Return a value whose numbers are all finite, and the others the texts that `headrace query` has for them."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    return value


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "backslashreplace")


def _headers(message: Message) -> list[dict[str, Any]] | None:
    """Names and values in their order; None: a name is no UTF-8, and the client tells nothing of such headers."""
    try:
        found: Any = message.headers() or []
    except (SystemError, UnicodeDecodeError):
        return None
    return [_header(name, value) for name, value in found]


def _header(name: str, value: bytes | None) -> dict[str, Any]:
    return {
        "name": name,
        "value": None if value is None else _text(value),
        **_base64("value", value),
    }


def _base64(name: str, value: bytes | None) -> dict[str, str]:
    """The bytes themselves, where their text does not tell what they are."""
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return {f"{name}_base64": _plain(value)}
    return {}


def _plain(value: Any) -> Any:
    """Write what JSON lacks: times as ISO 8601, bytes as base64."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _avro_decoder(registry: RegistryAddress, topic: str) -> Decode:
    """Return what decodes a value of the topic, or raises UndecodableError; ClickException where it cannot ask."""
    from confluent_kafka.error import ConsumeError
    from confluent_kafka.schema_registry.avro import AvroDeserializer
    from confluent_kafka.schema_registry.error import SchemaParseException, SchemaRegistryError
    from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError
    from fastavro.read import LOGICAL_READERS

    LOGICAL_READERS.update(AVRO_READERS)
    try:
        deserializer = AvroDeserializer(opened_client(registry, {"max.retries": 1}))
    except ValueError as error:
        raise click.UsageError(f"--registry: {error}.") from error
    context = SerializationContext(topic, MessageField.VALUE)
    odd_values = (ValueError, EOFError, LookupError, TypeError, ArithmeticError, RecursionError, struct.error)
    undecodable = (SerializationError, ConsumeError, SchemaParseException, *odd_values)

    def decode(value: bytes | None) -> Any:
        try:
            return deserializer(value, context)
        except undecodable as error:
            raise UndecodableError(_reason(error)) from error
        except Exception as error:
            if isinstance(error, SchemaRegistryError) and error.http_status_code == NOT_FOUND:
                raise UndecodableError(_reason(error)) from error
            raise click.ClickException(
                f"registry {registry} does not answer: {_reason(error)}; nothing more was read."
            ) from error

    return decode


def _reason(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
