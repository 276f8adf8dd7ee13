"""The file of `headrace mirror run`: which cluster is the target, which number the member has, and what it brings.

    bootstrap.servers=broker-1.offline:9092,broker-2.offline:9092
    zookeeper.connect=zookeeper-1.offline:2181/kafka
    mirror.member.id=101
    security.protocol=SSL
    mirror.sources=dc-east,dc-west
    mirror.dc-east.bootstrap.servers=broker-1.east:9092
    mirror.dc-east.mode=aggregate

What lies below `mirror.` means what it means to a broker. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.broker.client.security import PLAINTEXT, ClientSecurity, is_about_security
from headrace.broker.config import sections
from headrace.broker.config.keys import ConfigurationError, keys_of, parse_section
from headrace.broker.wire.client.view import Address
from headrace.mirror.config import (
    AGGREGATE,
    MODE_SUFFIX,
    PREFIX,
    SOURCES_KEY,
    MirrorConfig,
    parse_addresses,
)

BOOTSTRAP_KEY, MEMBER_KEY, ZOOKEEPER_KEY = "bootstrap.servers", "mirror.member.id", "zookeeper.connect"
METRICS_KEY = "headrace.metrics.listener"
LAST_NUMBER = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberConfig:
    """`properties` is the file as it was read."""

    properties: Mapping[str, str] = field(repr=False)
    bootstrap_servers: tuple[Address, ...]
    member_id: int
    mirror: MirrorConfig
    metrics_listener: str
    security: ClientSecurity = field(default=PLAINTEXT, repr=False)
    """How the target lets in."""

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> MemberConfig:
        """Raises ConfigurationError, also for a key that means nothing."""
        own = {BOOTSTRAP_KEY, MEMBER_KEY, METRICS_KEY, *keys_of(sections.ZooKeeper)}
        for key, text in properties.items():
            if key not in own and not key.startswith(PREFIX) and not is_about_security(key):
                known = ", ".join(sorted(own))
                raise ConfigurationError(
                    key,
                    text,
                    f"taken out: there are {known}, what begins with {PREFIX}, and Kafka's client settings about security",
                )
        mirror = MirrorConfig.from_properties({k: v for k, v in properties.items() if k != MEMBER_KEY})
        for source in mirror.sources:
            key = f"{PREFIX}{source.name}.{MODE_SUFFIX}"
            allowed = f"{AGGREGATE}: copies, which keep offsets, are made by the brokers of the cluster that has them"
            raise ConfigurationError(key, properties.get(key, ""), allowed)
        if not mirror.aggregates:
            raise ConfigurationError(SOURCES_KEY, "", "the names of the clusters that are brought here")
        parse_section(sections.ZooKeeper, properties)
        if not properties.get(ZOOKEEPER_KEY):
            raise ConfigurationError(ZOOKEEPER_KEY, "", "HOST:PORT,HOST:PORT/chroot of the target's ensemble")
        return cls(
            properties=properties,
            bootstrap_servers=parse_addresses(BOOTSTRAP_KEY, properties.get(BOOTSTRAP_KEY, "")),
            member_id=_member_id(properties.get(MEMBER_KEY, "")),
            mirror=mirror,
            metrics_listener=properties.get(METRICS_KEY, ""),
            security=ClientSecurity.of(properties),
        )


def _member_id(text: str) -> int:
    if not (text.isdecimal() and int(text) <= LAST_NUMBER):
        allowed = f"a whole number up to {LAST_NUMBER} that no broker of the target and no other member has"
        raise ConfigurationError(MEMBER_KEY, text, allowed)
    return int(text)
