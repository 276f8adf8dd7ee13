"""`headrace topics`: list, describe, create, alter and delete topics by the Kafka admin protocol; `reassign` moves them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Final

import click
from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigEntry, ConfigResource, NewTopic
from rich.text import Text

from headrace.broker.client.bootstrap import Bootstrap
from headrace.cli.asking import CHANGE_SECONDS_MAX, admin_client, asked, failure
from headrace.cli.cluster_admin import ZooKeeperSilentError
from headrace.cli.cluster_status import named
from headrace.cli.controller_watch import controller_of, watched
from headrace.cli.reassign import reassign
from headrace.cli.shared import (
    TIMEOUT_SECONDS,
    bootstrap_option,
    cell,
    json_option,
    no_such_topic,
    parse_settings,
    print_rows,
    say,
)
from headrace.cli.topic_alteration import alter
from headrace.cli.topic_deletion import MARKED, doomed_topics, is_marked, moving_partitions

DELETION_SECONDS_MAX: Final = 50.0
"""How long a topic may take to be deleted before its deletion is said to wait."""

DESCRIPTION_SECONDS: Final = 3.0
"""What brokers have to look up in ZooKeeper what was set for one topic."""

SHOW: Final = "headrace topics reassign show"


@click.group(epilog="Example: headrace topics list --bootstrap 127.0.0.1:9092")
def topics() -> None:
    """List, describe, create, alter and delete topics, and move their partitions to other brokers."""


topics.add_command(alter)
topics.add_command(reassign)


@topics.command("list", epilog="Example: headrace topics list --bootstrap 127.0.0.1:9092 --json")
@bootstrap_option
@json_option
def list_topics(bootstrap: Bootstrap, as_json: bool) -> None:
    """Print the topics with their partitions and replicas, and which of them are marked for deletion."""
    metadata = asked("list topics", lambda: admin_client(bootstrap).list_topics(timeout=TIMEOUT_SECONDS))
    doomed = doomed_topics(bootstrap)
    rows = [
        {
            "topic": name,
            "partitions": len(topic.partitions),
            "replicas": max((len(each.replicas) for each in topic.partitions.values()), default=0),
            "marked_for_deletion": is_marked(name, doomed),
        }
        for name, topic in sorted(metadata.topics.items())
    ]
    if as_json:
        click.echo(json.dumps(rows))
    else:
        columns = ("topic", "partitions", "replicas")
        shown = [{name: row[name] for name in columns} for row in rows]
        marks = [MARKED if row["marked_for_deletion"] else "" for row in rows]
        print_rows([{**row, "": mark} for row, mark in zip(shown, marks, strict=True)])


@topics.command(epilog="Example: headrace topics describe pageviews --bootstrap 127.0.0.1:9092")
@click.argument("topic")
@bootstrap_option
@json_option
def describe(topic: str, bootstrap: Bootstrap, as_json: bool) -> None:
    """Print a topic's partitions and the configuration that was set for it; exit 1 when nobody tells the latter.

    Replicas out of sync and partitions without a leader are marked; a topic that is deleted once its partitions have moved
    is said to be marked for deletion.
    """
    admin = admin_client(bootstrap)
    metadata = asked("describe topic", lambda: admin.list_topics(timeout=TIMEOUT_SECONDS))
    view = metadata.topics.get(topic)
    if view is None:
        raise no_such_topic(topic)
    partitions = [
        {
            "partition": each.id,
            "leader": each.leader,
            "replicas": each.replicas,
            "isrs": each.isrs,
            "out_of_sync": [replica for replica in each.replicas if replica not in each.isrs],
        }
        for each in sorted(view.partitions.values(), key=lambda each: each.id)
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    configs = admin.describe_configs([resource], request_timeout=DESCRIPTION_SECONDS)[resource]
    marked = is_marked(topic, doomed_topics(bootstrap))
    configuration = _configuration(configs)
    if as_json:
        found = {"topic": topic, "partitions": partitions, "configuration": configuration}
        click.echo(json.dumps({**found, "marked_for_deletion": marked}))
    else:
        if marked:
            click.echo(f"{MARKED}: it goes once its partitions have moved (headrace topics reassign show)")
        print_rows([_marked(partition) for partition in partitions])
        for name, value in (configuration or {}).items():
            click.echo(f"{name}={value}")
    if configuration is None:
        silent = ZooKeeperSilentError("DescribeConfigs", DESCRIPTION_SECONDS)
        raise click.ClickException(f"the configuration of {topic} is not known: {silent.message}")


def _configuration(answer: Future[Mapping[str, ConfigEntry]]) -> dict[str, str | None] | None:
    """What was set for a topic; None where brokers, which look into ZooKeeper for it, do not answer."""
    try:
        entries = answer.result()
    except KafkaException as error:
        if error.args[0].name() != "_TIMED_OUT":
            raise failure("describe topic", error) from error
        return None
    return {
        name: entry.value
        for name, entry in sorted(entries.items())
        if not (entry.is_default or entry.is_read_only)
    }


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
    bootstrap: Bootstrap,
    partitions: int,
    replication_factor: int,
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Create a topic."""
    new_topic = NewTopic(topic, partitions, replication_factor, config=parse_settings(settings))
    admin = admin_client(bootstrap)
    what = f"create topic {topic}"
    controller = controller_of(admin, what)
    future = admin.create_topics([new_topic], request_timeout=CHANGE_SECONDS_MAX)[topic]
    doubt = "the topic may be created all the same, and `headrace topics list` shows it then"
    asked(what, lambda: watched(future, controller, bootstrap, what, doubt))
    say({"topic": topic, "created": True}, f"created {topic} with {partitions} partitions", as_json=as_json)


@topics.command(epilog="Example: headrace topics delete pageviews --bootstrap 127.0.0.1:9092")
@click.argument("topic")
@bootstrap_option
@json_option
def delete(topic: str, bootstrap: Bootstrap, as_json: bool) -> None:
    """Delete a topic and all its messages.

    A topic of which partitions move is marked for deletion, and goes once they have moved.
    """
    moving = moving_partitions(bootstrap, topic)
    if moving:
        click.echo(f"{topic} goes once its partitions have moved ({named(moving)}): {SHOW}", err=True)
    admin = admin_client(bootstrap)
    what = f"delete topic {topic}"
    controller = controller_of(admin, what)
    seconds = DELETION_SECONDS_MAX
    asked_s = {"operation_timeout": seconds, "request_timeout": seconds + TIMEOUT_SECONDS}
    future = admin.delete_topics([topic], **asked_s)[topic]
    doubt = "the topic may be deleted all the same, and `headrace topics list` shows it until then"
    try:
        watched(future, controller, bootstrap, what, doubt)
    except KafkaException as error:
        if error.args[0].name() != "REQUEST_TIMED_OUT":
            raise failure(what, error) from error
        raise click.ClickException(
            f"{topic} is {MARKED}, and still there after {seconds:.0f} s: `{SHOW}` shows the partitions that it waits for."
        ) from error
    say({"topic": topic, "deleted": True}, f"deleted {topic}", as_json=as_json)


def _marked(partition: dict[str, Any]) -> dict[str, Any]:
    """A row for people: what is wrong with a partition stands in words in the last column."""
    late = partition["out_of_sync"]
    marks = [Text("no leader", "bold red")] if partition["leader"] < 0 else []
    if late:
        marks.append(Text(f"out of sync: {cell(late)}", "yellow"))
    leader = "none" if partition["leader"] < 0 else partition["leader"]
    return {
        "partition": partition["partition"],
        "leader": leader,
        "replicas": partition["replicas"],
        "in sync": partition["isrs"],
        "": Text("; ").join(marks),
    }
