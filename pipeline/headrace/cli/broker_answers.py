"""One question to each of several brokers, all at the same time: those that hang cost one time-out together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

from headrace.broker.client.blocking import BlockingLink
from headrace.broker.client.security import PLAINTEXT, ClientSecurity
from headrace.broker.errors import KafkaError, reason_of
from headrace.broker.wire.client.view import Address
from headrace.broker.wire.fields import MalformedError

TIMEOUT_SECONDS: Final = 5.0
BROKERS_ASKED_MAX: Final = 16

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Silence:
    """Why a broker does not answer."""

    reason: str


def ask_each(
    brokers: Mapping[int, Address],
    client_id: str,
    question: Callable[[int, BlockingLink], Answer],
    security: ClientSecurity = PLAINTEXT,
) -> dict[int, Answer | Silence]:
    """What each broker answers to `question`, which is put on a link of its own."""

    def ask(broker_id: int) -> Answer | Silence:
        try:
            with BlockingLink(brokers[broker_id], client_id, TIMEOUT_SECONDS, security=security) as link:
                return question(broker_id, link)
        except (OSError, MalformedError, KafkaError) as error:
            return Silence(reason_of(error))

    with ThreadPoolExecutor(BROKERS_ASKED_MAX) as threads:
        return dict(zip(brokers, threads.map(ask, brokers), strict=True))
