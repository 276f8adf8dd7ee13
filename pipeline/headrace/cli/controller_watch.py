"""Waits for a change that the controller makes, for as long as it answers other questions meanwhile.

A change may take a minute, as a topic of thousands of partitions does; a controller that hangs is found out long before.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Final, TypeVar

import click
from confluent_kafka.admin import AdminClient, BrokerMetadata

from headrace.broker.client.bootstrap import Bootstrap
from headrace.cli.asking import asked
from headrace.cli.broker_answers import ask_each
from headrace.cli.shared import TIMEOUT_SECONDS

LOOK_SECONDS: Final = 5.0
T = TypeVar("T")


def controller_of(admin: AdminClient, what: str) -> BrokerMetadata | None:
    """Whom `admin` will ask for the change; None: it will wait until there is a controller."""
    metadata = asked(what, lambda: admin.list_topics(timeout=TIMEOUT_SECONDS))
    return metadata.brokers.get(metadata.controller_id)


def watched(
    future: Future[T], controller: BrokerMetadata | None, bootstrap: Bootstrap, what: str, doubt: str
) -> T:
    """The future's result.

    Raises:
        ClickException: the controller does not answer; `doubt` says what may have become of the change.
    """
    while True:
        try:
            return future.result(LOOK_SECONDS)
        except TimeoutError:
            if controller is not None:
                _require_answer(controller, bootstrap, what, doubt)


def _require_answer(controller: BrokerMetadata, bootstrap: Bootstrap, what: str, doubt: str) -> None:
    address = (str(controller.host), controller.port)
    # A link is answered for the first time before there is anything to ask.
    found = ask_each({controller.id: address}, "headrace-topics", lambda *_: None, bootstrap.security)
    silence = found[controller.id]
    if silence is not None:
        raise click.ClickException(
            f"{what}: the controller, broker {controller.id}, does not answer ({silence.reason}); {doubt}."
        )
