"""What clients connect with: `ssl.SSLContext` of a security, and the sentence for each way in which TLS fails.

A context is made anew once a store that it was made of has changed, so that a renewed certificate is shown from the next
connection on.
"""

from __future__ import annotations

import os
import ssl
from functools import lru_cache
from typing import Final

from headrace.broker.client.security import ClientSecurity
from headrace.broker.wire.client.exchange import ProtocolError
from headrace.broker.wire.client.view import Address

CONTEXTS_MAX: Final = 32
_STORES = ("ssl.keystore.location", "ssl.truststore.location")
_Stamp = tuple[int, int, int] | None


class TlsError(ProtocolError):
    """The two sides do not agree on TLS, or one of them does not trust the other; the message is a sentence."""


def context_of(security: ClientSecurity) -> ssl.SSLContext:
    """Raises ConfigurationError where a store cannot be used."""
    return _context(security, tuple(_stamp(security.value(name)) for name in _STORES))


@lru_cache(CONTEXTS_MAX)
def _context(security: ClientSecurity, stamps: tuple[_Stamp, ...]) -> ssl.SSLContext:
    # Certificates cost a fifth of a second to be able to read: only who speaks TLS pays for it.
    from headrace.broker.tls.contexts import client_context

    return client_context({k: v for k, v in security.settings if k.startswith("ssl.")})


def _stamp(path: str) -> _Stamp:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def tls_error(address: Address, error: ssl.SSLError) -> TlsError:
    """The sentence for a failure at this address."""
    place = f"{address[0]}:{address[1]}"
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = error.verify_message.rstrip(".")
        return TlsError(f"the certificate of {place} is not accepted: {reason}")
    if isinstance(error, ssl.SSLEOFError):
        return TlsError(f"{place} closed the connection before TLS was agreed on")
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if error.reason in ("WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"):
        return TlsError(f"{place} does not speak TLS on this port ({reason})")
    if "ALERT" in (error.reason or "") and "CERTIFICATE" in (error.reason or ""):
        return TlsError(
            f"{place} wants another certificate of this client than that of ssl.keystore ({reason})"
        )
    return TlsError(f"{place} does not agree on TLS ({reason})")
