"""Broker configuration that changes while the broker runs: which keys, how the levels merge, what is refused (KIP-226).

Three levels: `server.properties`, the cluster's default (`/config/brokers/<default>`), this broker's own
(`/config/brokers/<id>`); a later one wins over all synonyms of an earlier one. Only keys that are put to use at once are
dynamic here. Pure: no ZooKeeper, no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headrace.broker.config.broker import BROKER_KEYS, BrokerConfig, is_known, listener_key
from headrace.broker.config.keys import ConfigurationError, Key
from headrace.broker.config.listeners import LIMITS, STORES, base_name, own_setting
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
        *LIMITS,
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
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


def key_of(name: str) -> Key | None:
    """The key of a dynamic property, whether of the broker or of one of its listeners; None for any other."""
    return BROKER_KEYS[name][1] if name in DYNAMIC_KEYS else listener_key(name)


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
        key = key_of(name)
        if name in STORES:
            raise InvalidRequestError(
                f"Cannot update {name} dynamically for all listeners: give it as listener.name.<name>.{name}."
            )
        if key is None:
            reason = (
                "it takes effect at a start only"
                if base_name(name) in BROKER_KEYS
                else "it has no effect on this broker"
            )
            raise InvalidRequestError(
                f"Cannot update {name} dynamically: {reason if is_known(name) else 'there is no such key'}."
            )
        try:
            parsed = key.parse(name, value)
        except ConfigurationError as error:
            raise InvalidRequestError(str(error)) from None
        if parsed == 0 and name.endswith(LIMITS):
            # Whoever locked all clients out could not take it back.
            raise InvalidRequestError(f"{name}=0 is not allowed while a broker runs: give a number from 1.")


def check_level(changed: Mapping[str, str]) -> None:
    """Raises InvalidRequestError for what brokers have of their own, were it set for all of them."""
    for name in changed:
        if own_setting(name) in STORES:
            raise InvalidRequestError(f"Cannot update {name} for all brokers: name one by its id.")


def check_step(current: BrokerConfig, changed: Mapping[str, str]) -> None:
    """Raises InvalidRequestError for values, already checked, that do not go with those in use."""
    overrides = changed.get(
        "max.connections.per.ip.overrides", current.network.max_connections_per_ip_overrides
    )
    if changed.get("max.connections.per.ip") == "0" and not overrides:
        raise InvalidRequestError(
            "max.connections.per.ip=0 is allowed only beside max.connections.per.ip.overrides."
        )
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
