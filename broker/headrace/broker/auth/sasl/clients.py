"""The client's machine for an identity."""

from __future__ import annotations

from headrace.broker.auth.sasl.credentials import HASHES
from headrace.broker.auth.sasl.exchange import MECHANISMS, OAUTHBEARER, PLAIN, ClientExchange, Identity
from headrace.broker.auth.sasl.oauthbearer import OAuthBearerClient
from headrace.broker.auth.sasl.plain import PlainClient
from headrace.broker.auth.sasl.scram import ScramClient


def client_exchange(identity: Identity, nonce: str) -> ClientExchange:
    """One log-in; `nonce` is drawn anew for each. Raises ValueError for a mechanism that there is not."""
    mechanism = identity.mechanism
    if mechanism == PLAIN:
        return PlainClient(identity.name, identity.password)
    if mechanism in HASHES:
        return ScramClient(mechanism, identity.name, identity.password, nonce, is_token=identity.is_token)
    if mechanism == OAUTHBEARER:
        return OAuthBearerClient(identity.bearer, identity.extensions)
    raise ValueError(f"{mechanism!r} is no SASL mechanism here: choose of {', '.join(MECHANISMS)}")
