"""`headrace publish-accounts`: what killed producers left in their spool files is published by hand, as their last accounts.

The next start of the same service does the same by itself; this is for services that do not come back.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as KafkaProducer

from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.client.bootstrap_option import bootstrap_option, require_entrance
from headrace.broker.client.librdkafka import settings_of
from headrace.events.avro_schemas import MONITORING_TOPIC, schema_text, subject_of
from headrace.events.registry_address import RegistryAddress
from headrace.events.registry_option import registry_option
from headrace.producer.author import Author
from headrace.producer.client import DEFAULTS
from headrace.producer.life import now_ms
from headrace.producer.registration import RegistrationError, register
from headrace.producer.spool import LeftBehind, folder_of, left_behind, of_cluster
from headrace.producer.spool_layout import Head, cluster_number
from headrace.producer.stream import Encoder

PUBLISH_SECONDS_MAX: Final = 130.0
REACH_SECONDS_MAX: Final = 30.0
REGISTRY_SECONDS_MAX: Final = 30.0


@click.command(
    epilog="Example: headrace publish-accounts --datacenter dc-east --bootstrap 127.0.1.100:9092 "
    "--registry http://127.0.1.12:8081"
)
@bootstrap_option("Brokers of the datacenter.")
@registry_option("Schema registry.")
@click.option(
    "--datacenter", required=True, help="Name of this datacenter: producers of others are left alone."
)
@click.option("--service", help="Only producers of this service.")
@click.option(
    "--spool",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the spool files; by default that of HEADRACE_SPOOL, or /dev/shm/headrace-UID.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def publish_accounts(
    bootstrap: Bootstrap,
    registry: RegistryAddress,
    datacenter: str,
    service: str | None,
    spool: Path | None,
    as_json: bool,
) -> None:
    """Publish the last accounts of producers on this host that were killed, and remove their spool files.

    Producers that live are left alone, and so are those that published to another cluster. Exit 1 when some of what was found
    could not be published; it is kept then.
    """
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s"
    )

    def is_wanted(head: Head) -> bool:
        return head.datacenter == datacenter and service in (None, head.service)

    found = list(left_behind(folder_of(spool), is_wanted, now_ms))
    ours: list[LeftBehind] = []
    published: list[LeftBehind] = []
    if found:
        require_entrance(bootstrap)
        try:
            encoder = _encoder(registry)
            client = KafkaProducer({**DEFAULTS, **settings_of(bootstrap)})
        except (RegistrationError, KafkaException) as error:
            raise click.ClickException(f"{error}.") from error
        ours = list(of_cluster(found, _cluster_of(client, bootstrap), bootstrap.servers))
        published = _published(client, encoder, ours)
    for left in published:
        left.forget()
    _print([_row(left) for left in published], as_json)
    if not ours and not as_json:
        click.echo("no producer that was killed has left anything to publish")
    if len(published) < len(ours):
        raise click.ClickException(
            f"the accounts of {len(ours) - len(published)} producers were not delivered, their files are kept: "
            f"check --bootstrap, and that the topic {MONITORING_TOPIC} is there"
        )


def _encoder(registry: RegistryAddress) -> Encoder:
    text = schema_text("monitoring_event")
    subject = subject_of(MONITORING_TOPIC)
    return Encoder(text, register(registry, subject, text, seconds_max=REGISTRY_SECONDS_MAX))


def _cluster_of(client: KafkaProducer, bootstrap: Bootstrap) -> int:
    try:
        found = client.list_topics(MONITORING_TOPIC, timeout=REACH_SECONDS_MAX)
    except KafkaException as error:
        raise click.ClickException(
            f"none of {bootstrap} answers ({error.args[0].str()}), nothing is published: check --bootstrap"
        ) from error
    return cluster_number(found.cluster_id or "")


def _published(client: KafkaProducer, encoder: Encoder, found: list[LeftBehind]) -> list[LeftBehind]:
    """Publish the accounts of each; return those of which all were delivered."""
    missing = [len(left.accounts) for left in found]

    def on_delivery(index: int, error: KafkaError | None, _: Any) -> None:
        missing[index] -= error is None

    deadline = time.monotonic() + PUBLISH_SECONDS_MAX
    for index, left in enumerate(found):
        author = Author.of(left.head, left.sequence)
        for topic, account in left.accounts:
            message = author.message(encoder, topic, account, now_ms())
            author.sequence += 1
            _produce(client, message, partial(on_delivery, index), deadline)
    client.flush(max(0.0, deadline - time.monotonic()))
    return [left for left, count in zip(found, missing, strict=True) if not count]


def _produce(client: KafkaProducer, message: Mapping[str, Any], on_delivery: Any, deadline: float) -> None:
    while time.monotonic() < deadline:
        try:
            client.produce(MONITORING_TOPIC, **message, on_delivery=on_delivery)
            return
        except BufferError:
            client.poll(0.1)


def _row(left: LeftBehind) -> dict[str, Any]:
    head = left.head
    return {
        "server": head.server,
        "service": head.service,
        "producer": head.producer,
        **head.process._asdict(),
        "topics": list(head.topics),
        "acknowledged": left.acknowledged,
        "unknown": left.unknown,
    }


def _print(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(rows))
        return
    for row in rows:
        click.echo(
            f"published the last accounts of server {row['server']}, service {row['service']} (producer {row['producer']}, "
            f"process {row['pid']} on {row['host']}): {row['acknowledged']} events acknowledged, {row['unknown']} of which "
            "nobody knows whether they arrived"
        )
