"""`headrace topics alter`: a topic's configurations and its number of partitions, as somebody wishes them to be.

Invariants: what is so already is not asked for, so that a command may be run again; the brokers have checked all of a change
before any of it is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
)

from headrace.broker.client.bootstrap import Bootstrap
from headrace.cli.asking import CHANGE_SECONDS_MAX, admin_client, asked, failure
from headrace.cli.cluster_admin import READ_SECONDS, ZooKeeperSilentError
from headrace.cli.controller_watch import controller_of, watched
from headrace.cli.shared import (
    TIMEOUT_SECONDS,
    bootstrap_option,
    json_option,
    no_such_topic,
    parse_settings,
    say,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """What changes of a topic: configurations (None: unset), and its number of partitions from `before` to `after`."""

    configs: Mapping[str, str | None]
    before: int
    after: int

    @property
    def words(self) -> str:
        said = [f"{key} unset" if value is None else f"{key}={value}" for key, value in self.configs.items()]
        grown = [f"{self.after} partitions instead of {self.before}"] if self.after > self.before else []
        return ", ".join([*said, *grown])


def alteration(
    topic: str, before: int, present: Mapping[str, str], wanted: Mapping[str, str | None], after: int | None
) -> Alteration:
    """What has to change; `present` is what was set for the topic itself. Raises ClickException for fewer partitions."""
    if after is not None and after < before:
        raise click.ClickException(
            f"{topic} has {before} partitions, and none can be taken away: make another topic with {after}."
        )
    changed = {key: value for key, value in wanted.items() if present.get(key) != value}
    return Alteration(configs=changed, before=before, after=after or before)


@click.command(
    epilog="Example: headrace topics alter pageviews --set retention.ms=86400000 --unset segment.bytes --partitions 8 "
    "--bootstrap 127.0.0.1:9092"
)
@click.argument("topic")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Topic configuration; may be given again."
)
@click.option("--unset", multiple=True, metavar="KEY", help="Configuration that shall be the brokers' again.")
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="Have so many partitions, no fewer than now; keys of messages go to others then.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be done, and do nothing.")
@bootstrap_option
@json_option
def alter(
    topic: str,
    settings: tuple[str, ...],
    unset: tuple[str, ...],
    partitions: int | None,
    dry_run: bool,
    bootstrap: Bootstrap,
    as_json: bool,
) -> None:
    """Change a topic's configuration, and add partitions to it.

    What is as it is wished to be stays, so the same command may be run again. What brokers refuse changes nothing.
    """
    wanted = _wanted(settings, unset)
    if not wanted and partitions is None:
        raise click.UsageError("Say what to change: --set, --unset or --partitions.")
    admin = admin_client(bootstrap)
    change = alteration(topic, _count(admin, topic), _present(admin, topic), wanted, partitions)
    _make(bootstrap, admin, topic, change, validate_only=True)
    if not dry_run:
        _make(bootstrap, admin, topic, change, validate_only=False)
    verb = "would have" if dry_run else "has"
    sentence = f"{topic} {verb} {change.words}" if change.words else f"{topic} is so already"
    counts = {"partitions": change.after, "partitions_before": change.before}
    say({"topic": topic, "changed": dict(change.configs), **counts}, sentence, as_json=as_json)


def _wanted(settings: tuple[str, ...], unset: tuple[str, ...]) -> dict[str, str | None]:
    found: dict[str, str | None] = {**parse_settings(settings)}
    for key in unset:
        if key in found:
            raise click.UsageError(f"--unset {key}: it is named by --set, too.")
        found[key] = None
    return found


def _count(admin: AdminClient, topic: str) -> int:
    known = asked(f"alter topic {topic}", lambda: admin.list_topics(timeout=TIMEOUT_SECONDS)).topics
    if topic not in known:
        raise no_such_topic(topic)
    return len(known[topic].partitions)


def _present(admin: AdminClient, topic: str) -> dict[str, str]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    future = admin.describe_configs([resource], request_timeout=READ_SECONDS)[resource]
    what = f"alter topic {topic}"
    try:
        entries: Mapping[str, Any] = future.result()
    except KafkaException as error:
        if error.args[0].name() != "_TIMED_OUT":
            raise failure(what, error) from error
        silent = ZooKeeperSilentError("DescribeConfigs", READ_SECONDS)
        raise click.ClickException(f"{what}: {silent.message}") from error
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {name: entry.value for name, entry in entries.items() if entry.source == own}


def _make(
    bootstrap: Bootstrap, admin: AdminClient, topic: str, change: Alteration, *, validate_only: bool
) -> None:
    what = f"alter topic {topic}"
    how = {"request_timeout": CHANGE_SECONDS_MAX, "validate_only": validate_only}
    if change.configs:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=_entries(change))
        asked(what, admin.incremental_alter_configs([resource], **how)[resource].result)
    if change.after > change.before:
        controller = controller_of(admin, what)
        future = admin.create_partitions([NewPartitions(topic, change.after)], **how)[topic]
        grows = "the topic may get its partitions all the same, and `headrace topics list` shows them then"
        doubt = "nothing was changed" if validate_only else grows
        asked(what, lambda: watched(future, controller, bootstrap, what, doubt))


def _entries(change: Alteration) -> list[ConfigEntry]:
    return [
        ConfigEntry(
            key,
            value,
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for key, value in change.configs.items()
    ]
