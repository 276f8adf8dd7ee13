"""The limits of `/config/users` and `/config/clients`, brought to what counts the usage of clients.

Invariant: a limit that is stored and cannot be read is no limit, with a line in the log.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.broker.config.sections import Quotas
from headrace.broker.quotas.buckets import Windows
from headrace.broker.quotas.entities import CLIENTS, USERS
from headrace.broker.quotas.keys import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    number,
)
from headrace.broker.quotas.usage import ClientUsage
from headrace.broker.structured_log import get_logger

logger = get_logger(__name__)


def client_usage(config: Quotas) -> ClientUsage:
    """Nobody has a limit yet."""
    return ClientUsage(
        Windows(count=config.quota_window_num, size_ms=config.quota_window_size_seconds * 1000),
        Windows(
            count=config.controller_quota_window_num,
            size_ms=config.controller_quota_window_size_seconds * 1000,
        ),
    )


class ClientQuotas:
    """Follows `ClientConfigs`."""

    def __init__(self, usage: ClientUsage) -> None:
        self._usage = usage

    def changed(self, kind: str, name: str, overrides: Mapping[str, str]) -> None:
        """An entity of that kind has these overrides from now on."""
        if kind not in (USERS, CLIENTS):
            return
        user, client_id = "", name
        if kind == USERS:
            user, _, rest = name.partition("/")
            client_id = rest.removeprefix(f"{CLIENTS}/")
        self._usage.set_limits(
            (user, client_id),
            produced=limit(overrides, PRODUCER_BYTE_RATE, name),
            fetched=limit(overrides, CONSUMER_BYTE_RATE, name),
            requests=limit(overrides, REQUEST_PERCENTAGE, name),
            mutations=limit(overrides, CONTROLLER_MUTATION_RATE, name),
        )


def limit(overrides: Mapping[str, str], key: str, name: str) -> float | None:
    """What an entity's overrides say of one quota; None: nothing that can be used."""
    text = overrides.get(key)
    if text is None:
        return None
    try:
        return number(text)
    except ValueError:
        logger.error("a quota is passed over", entity=name, key=key, reason=f"{text!r} is not a number")
        return None
