"""Broker configuration that changes while the broker runs: which keys, how the levels merge, what is refused (KIP-226).

Three levels: `server.properties`, the cluster's default (`/config/brokers/<default>`), this broker's own
(`/config/brokers/<id>`); a later one wins over all synonyms of an earlier one. Only keys that are put to use at once are
dynamic here. Pure: no ZooKeeper, no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headrace.broker.config.broker import BROKER_KEYS, BrokerConfig, is_known
from headrace.broker.config.keys import ConfigurationError
from headrace.broker.config.topics import TOPIC_CONFIGS
from headrace.broker.errors import InvalidRequestError

DYNAMIC_KEYS = frozenset(
    (
        *(config.key.synonyms[0] for config in TOPIC_CONFIGS.values()),
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.threads",
        "max.connections",
        "max.connections.per.ip",
        "producer.id.expiration.ms",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "transaction.partition.verification.enable",
    )
)
# Described only where they are set, and as read-only: Apache Kafka knows them by their dynamic values alone.
QUOTA_KEYS = frozenset(
    (
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
)
_SYNONYMS = {name: config.key.synonyms for config in TOPIC_CONFIGS.values() for name in config.key.synonyms}


def synonyms_of(name: str) -> tuple[str, ...]:
    """The properties that say the same in other units, most specific first; `name` is one of them."""
    return _SYNONYMS.get(name, (name,))


def merged(static: Mapping[str, str], *levels: Mapping[str, str]) -> dict[str, str]:
    """The properties of all levels, later ones over earlier ones."""
    properties = dict(static)
    for level in levels:
        for name, value in level.items():
            for synonym in synonyms_of(name):
                properties.pop(synonym, None)
            properties[name] = value
    return properties


def check(changed: Mapping[str, str]) -> None:
    """Raises InvalidRequestError for a key that is not dynamic and for a value that is not allowed."""
    for name, value in changed.items():
        if name not in DYNAMIC_KEYS:
            reason = (
                "it takes effect at a start only"
                if name in BROKER_KEYS
                else "it has no effect on this broker"
            )
            raise InvalidRequestError(
                f"Cannot update {name} dynamically: {reason if is_known(name) else 'there is no such key'}."
            )
        try:
            BROKER_KEYS[name][1].parse(name, value)
        except ConfigurationError as error:
            raise InvalidRequestError(str(error)) from None


def check_step(current: BrokerConfig, changed: Mapping[str, str]) -> None:
    """Raises InvalidRequestError for values, already checked, that are too far from those in use."""
    if "log.cleaner.threads" in changed:
        now, wanted = current.logs.log_cleaner_threads, int(changed["log.cleaner.threads"])
        if not now / 2 <= wanted <= now * 2:
            raise InvalidRequestError(
                f"log.cleaner.threads={wanted} is less than half or more than double of {now}: change it in steps."
            )


def usable(stored: Mapping[str, str]) -> dict[str, str]:
    """What of a znode's content this broker can use: Apache Kafka may have stored more."""
    found = {}
    for name, value in stored.items():
        try:
            check({name: value})
        except InvalidRequestError:
            continue
        found[name] = value
    return found


def with_levels(static: BrokerConfig, default: Mapping[str, str], own: Mapping[str, str]) -> BrokerConfig:
    """The configuration in effect. Raises ConfigurationError when the levels do not go together.

    Listeners stay those that are bound: their ports may have been chosen by the system.
    """
    config, _ = BrokerConfig.from_properties(merged(static.properties, default, own))
    return replace(config, listeners=static.listeners, advertised_listeners=static.advertised_listeners)
