"""How this broker is let in by the others: by the listener that brokers use between them, as a client of it.

The listener's own `ssl.…` is what it shows and trusts, and its own module of `sasl.mechanism.inter.broker.protocol` says who
it is (`listener.name.<name>.<mechanism>.sasl.jaas.config`, or `sasl.jaas.config`), as in Kafka. Pure.
"""

from __future__ import annotations

from headrace.broker.client.security import (
    JAAS_KEY,
    MECHANISM_KEY,
    PLAINTEXT,
    PROTOCOL_KEY,
    ClientSecurity,
)
from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.keys import ConfigurationError
from headrace.broker.config.listeners import told_of

MECHANISM_SETTING = "sasl.mechanism.inter.broker.protocol"


def security_between_brokers(config: BrokerConfig) -> ClientSecurity:
    """Raises ConfigurationError where the listener's settings do not say enough for a client."""
    name = config.inter_broker_listener
    protocols = {each.name: each.security_protocol for each in config.advertised_listeners}
    protocol = protocols.get(name, PLAINTEXT.protocol)
    if protocol == PLAINTEXT.protocol:
        return PLAINTEXT
    given = config.settings_of(name)
    found = {key: text for key, text in given.items() if key.startswith("ssl.")}
    found[PROTOCOL_KEY] = protocol
    if protocol.startswith("SASL"):
        mechanism = given.get(MECHANISM_SETTING, "").strip()
        own = f"{mechanism.lower()}.{JAAS_KEY}"
        found[MECHANISM_KEY] = mechanism
        found[JAAS_KEY] = given.get(own, given.get(JAAS_KEY, ""))
        found |= {key: text for key, text in given.items() if key.startswith("sasl.oauthbearer.")}
        found |= {key: text for key, text in given.items() if key.startswith("sasl.login.")}
    try:
        return ClientSecurity.of(found)
    except ConfigurationError as error:
        key = MECHANISM_SETTING if error.key == MECHANISM_KEY else error.key
        told = ConfigurationError(key, error.value, error.allowed)
        raise told_of(config.properties, name, told) from None
