"""`headrace topics`: list, describe, create and delete topics, through the Kafka admin protocol."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from rich.console import Console
from rich.table import Table

TIMEOUT_SECONDS: Final = 10.0

Answer = TypeVar("Answer")

bootstrap_option = click.option("--bootstrap", required=True, metavar="HOST:PORT,...", help="Brokers to ask.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def asked(what: str, call: Callable[[], Answer]) -> Answer:
    """Return what the brokers answer; a failure becomes the command's one line and exit 1."""
    try:
        return call()
    except KafkaException as error:
        raise click.ClickException(f"{what}: {reason_of(error)}.") from error


def reason_of(error: KafkaException) -> str:
    reason = error.args[0]
    name = reason.name()
    if name in ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE"):
        return f"no broker answered ({reason.str()}); check --bootstrap and that a broker runs there"
    return str(reason.str()).rstrip(".")


def admin_client(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


@click.group(epilog="Example: headrace topics list --bootstrap 127.0.0.1:9092")
def topics() -> None:
    """List, describe, create and delete topics."""


@topics.command("list", epilog="Example: headrace topics list --bootstrap 127.0.0.1:9092 --json")
@bootstrap_option
@json_option
def list_topics(bootstrap: str, as_json: bool) -> None:
    """Print the topics with their partitions and replicas."""
    metadata = asked("list topics", lambda: admin_client(bootstrap).list_topics(timeout=TIMEOUT_SECONDS))
    rows = [
        {
            "topic": name,
            "partitions": len(topic.partitions),
            "replicas": max((len(each.replicas) for each in topic.partitions.values()), default=0),
        }
        for name, topic in sorted(metadata.topics.items())
    ]
    _print(rows, as_json=as_json)


@topics.command(epilog="Example: headrace topics describe pageviews --bootstrap 127.0.0.1:9092")
@click.argument("topic")
@bootstrap_option
@json_option
def describe(topic: str, bootstrap: str, as_json: bool) -> None:
    """Print a topic's partitions and the configuration that was set for it."""
    admin = admin_client(bootstrap)
    metadata = asked("describe topic", lambda: admin.list_topics(timeout=TIMEOUT_SECONDS))
    found = metadata.topics.get(topic)
    if found is None:
        raise click.ClickException(
            f"topic {topic} does not exist; `headrace topics list` shows those that do."
        )
    partitions = [
        {"partition": each.id, "leader": each.leader, "replicas": each.replicas, "isrs": each.isrs}
        for each in sorted(found.partitions.values(), key=lambda each: each.id)
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    answer = asked(
        "describe topic",
        admin.describe_configs([resource], request_timeout=TIMEOUT_SECONDS)[resource].result,
    )
    configuration = {
        name: entry.value
        for name, entry in sorted(answer.items())
        if not (entry.is_default or entry.is_read_only)
    }
    if as_json:
        click.echo(json.dumps({"topic": topic, "partitions": partitions, "configuration": configuration}))
        return
    _print(partitions, as_json=False)
    for name, value in configuration.items():
        click.echo(f"{name}={value}")


@topics.command(
    epilog="Example: headrace topics create pageviews --partitions 4 --set retention.ms=86400000 "
    "--bootstrap 127.0.0.1:9092"
)
@click.argument("topic")
@bootstrap_option
@click.option(
    "--partitions", type=click.IntRange(min=1), default=1, show_default=True, help="Number of partitions."
)
@click.option(
    "--replication-factor",
    type=click.IntRange(min=1, max=32767),
    default=1,
    show_default=True,
    help="Replicas of each partition.",
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Topic configuration.")
@json_option
def create(
    topic: str,
    bootstrap: str,
    partitions: int,
    replication_factor: int,
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Create a topic."""
    new_topic = NewTopic(topic, partitions, replication_factor, config=parse_settings(settings))
    admin = admin_client(bootstrap)
    future = admin.create_topics([new_topic], request_timeout=TIMEOUT_SECONDS)[topic]
    asked(f"create topic {topic}", future.result)
    _say({"topic": topic, "created": True}, f"created {topic} with {partitions} partitions", as_json=as_json)


@topics.command(epilog="Example: headrace topics delete pageviews --bootstrap 127.0.0.1:9092")
@click.argument("topic")
@bootstrap_option
@json_option
def delete(topic: str, bootstrap: str, as_json: bool) -> None:
    """Delete a topic and all its messages."""
    admin = admin_client(bootstrap)
    future = admin.delete_topics([topic], request_timeout=TIMEOUT_SECONDS)[topic]
    asked(f"delete topic {topic}", future.result)
    _say({"topic": topic, "deleted": True}, f"deleted {topic}", as_json=as_json)


def parse_settings(settings: tuple[str, ...]) -> dict[str, str]:
    """Return KEY=VALUE arguments as a dictionary; anything else is wrong use."""
    parsed = {}
    for setting in settings:
        key, separator, value = setting.partition("=")
        if not separator or not key:
            raise click.UsageError(f"--set {setting}: write KEY=VALUE.")
        parsed[key] = value
    return parsed


def _say(result: dict[str, Any], sentence: str, *, as_json: bool) -> None:
    click.echo(json.dumps(result) if as_json else sentence)


def _print(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(rows))
        return
    table = Table(box=None)
    for name in rows[0] if rows else ():
        table.add_column(name)
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    Console().print(table)
