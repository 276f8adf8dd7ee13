"""What librdkafka calls the settings of a `Bootstrap`.

Stores become PEM in memory, since librdkafka reads neither JKS nor stores without their passwords. Must not import the
library: only who uses it has it installed.
"""

from __future__ import annotations

from typing import Any, Final

from headrace.broker.auth.sasl.exchange import OAUTHBEARER
from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.client.identities import extensions_of, identity_of, token_of
from headrace.broker.client.security import HIDDEN, JAAS_KEY, ClientSecurity
from headrace.broker.config.keys import ConfigurationError

PROTOCOL: Final = "security.protocol"


def settings_of(bootstrap: Bootstrap) -> dict[str, Any]:
    """`bootstrap.servers` and what its security says. Raises ConfigurationError where a store cannot be used."""
    return {"bootstrap.servers": bootstrap.servers, **security_settings(bootstrap.security)}


def security_settings(security: ClientSecurity) -> dict[str, Any]:
    """By librdkafka's names; nothing for PLAINTEXT."""
    found: dict[str, Any] = {}
    if security.uses_tls or security.uses_sasl:
        found[PROTOCOL] = security.protocol
    if security.uses_tls:
        found |= _tls(security)
    if security.uses_sasl:
        found |= _sasl(security)
    return found


def _tls(security: ClientSecurity) -> dict[str, Any]:
    # As in `tls_contexts`: only who speaks TLS pays for it.
    from cryptography.hazmat.primitives.serialization import Encoding

    from headrace.broker.tls.contexts import parsed
    from headrace.broker.tls.stores import key_store, trust_store

    tls = parsed(dict(security.settings))
    check = tls.ssl_endpoint_identification_algorithm
    found: dict[str, Any] = {"ssl.endpoint.identification.algorithm": check or "none"}
    trusted, keys = trust_store(tls), key_store(tls)
    if trusted is not None:
        found["ssl.ca.pem"] = b"".join(each.public_bytes(Encoding.PEM) for each in trusted).decode()
    if keys is not None:
        found["ssl.key.pem"] = keys.key_pem().decode()
        found["ssl.certificate.pem"] = keys.chain_pem().decode()
    return found


def _sasl(security: ClientSecurity) -> dict[str, Any]:
    mechanism = security.mechanism
    if mechanism == OAUTHBEARER:
        extensions = dict(extensions_of(security.login_module))
        return {
            "sasl.mechanism": mechanism,
            "oauth_cb": lambda _: (*token_of(security), "", extensions),
        }
    identity = identity_of(security)
    if identity.is_token:
        allowed = (
            "a user and its password: librdkafka, which this asks brokers with, knows no delegation tokens"
        )
        raise ConfigurationError(JAAS_KEY, HIDDEN, allowed)
    return {
        "sasl.mechanism": mechanism,
        "sasl.username": identity.name,
        "sasl.password": identity.password,
    }
