"""Waits for a change that the controller makes, for as long as it answers other questions meanwhile.

A change may take a minute, as a topic of thousands of partitions does; a controller that hangs, or that waits for a ZooKeeper
that is away, is found out long before.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import click
from confluent_kafka.admin import AdminClient

from headrace.broker.client.blocking import BlockingLink
from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.wire.api import k19_create_topics, k32_describe_configs
from headrace.cli.asking import asked
from headrace.cli.broker_answers import ask_each
from headrace.cli.cluster_admin import DESCRIBE_VERSION, READ_SECONDS, TOPIC, ZooKeeperSilentError
from headrace.cli.shared import TIMEOUT_SECONDS

LOOK_SECONDS: Final = 5.0
CREATE_VERSION: Final = 4
_NEW_TOPIC = {"name": "new", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
_CHECK: Final[dict[str, Any]] = {"topics": [_NEW_TOPIC], "timeout_ms": 0, "validate_only": True}
"""Whether a topic could be made, of a cluster that has none to ask about."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """Who makes the change; `topic` is one that there is, if any."""

    broker_id: int
    address: tuple[str, int]
    topic: str | None


def controller_of(admin: AdminClient, what: str) -> Controller | None:
    """Whom `admin` will ask for the change; None: it will wait until there is a controller."""
    metadata = asked(what, lambda: admin.list_topics(timeout=TIMEOUT_SECONDS))
    found = metadata.brokers.get(metadata.controller_id)
    if found is None:
        return None
    topic = min(metadata.topics, default=None)
    return Controller(broker_id=found.id, address=(str(found.host), found.port), topic=topic)


def watched(
    future: Future[T], controller: Controller | None, bootstrap: Bootstrap, what: str, doubt: str
) -> T:
    """The future's result.

    Raises:
        ClickException: the controller, or its ZooKeeper, does not answer; `doubt` says what may have become of the change.
    """
    while True:
        try:
            return future.result(LOOK_SECONDS)
        except TimeoutError:
            if controller is not None:
                _require_answer(controller, bootstrap, what, doubt)


def _require_answer(controller: Controller, bootstrap: Bootstrap, what: str, doubt: str) -> None:
    def look(_: int, link: BlockingLink) -> None:
        try:
            _look_into_zookeeper(link, controller.topic)
        except ZooKeeperSilentError as error:
            reason = error.message.rstrip(".")
            raise click.ClickException(f"{what}: {reason}; {doubt}.") from error

    found = ask_each({controller.broker_id: controller.address}, "headrace-topics", look, bootstrap.security)
    silence = found[controller.broker_id]
    if silence is not None:
        raise click.ClickException(
            f"{what}: the controller, broker {controller.broker_id}, does not answer ({silence.reason}); {doubt}."
        )


def _look_into_zookeeper(link: BlockingLink, topic: str | None) -> None:
    """Ask for what the broker has from there; raises ZooKeeperSilentError."""
    if topic is None:
        api, version, question = k19_create_topics.API, CREATE_VERSION, _CHECK
    else:
        resource = {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": []}
        api, version, question = k32_describe_configs.API, DESCRIBE_VERSION, {"resources": [resource]}
    try:
        link.ask(api, version, question, READ_SECONDS)
    except TimeoutError as error:
        raise ZooKeeperSilentError(api.name, READ_SECONDS) from error
