"""Until when the certificate holds that a service shows: of what is served, which an older file may still be.

Only the standard library, in Python 3.9, which does not read a certificate without verifying it: the few elements on the way
to `notAfter` (RFC 5280, section 4.1) are read here.
"""

from __future__ import annotations

import calendar
import socket
import time
from collections.abc import Iterator

from ansible.module_utils.headrace_health import PROBE_TIMEOUT_S, unverified

VERSION_TAG = 0xA0
TIME_FORMATS = {0x17: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}
"""Of UTCTime and GeneralizedTime."""


def served_until(address: str, port: int) -> int | None:
    """Until when the certificate holds that is shown there, in seconds since 1970; None: nobody shows one that can be read."""
    try:
        connection = socket.create_connection((address, port), PROBE_TIMEOUT_S)
        with connection, unverified().wrap_socket(connection) as secured:
            return valid_until(secured.getpeercert(binary_form=True) or b"")
    except (OSError, ValueError, LookupError):
        return None


def valid_until(certificate: bytes) -> int:
    """`notAfter` of a certificate in DER, in seconds since 1970; raises ValueError or LookupError where it is none."""
    (_, signed), *_ = elements(certificate)
    (_, fields), *_ = elements(signed)
    bodies = [body for tag, body in elements(fields) if tag != VERSION_TAG]
    _, (tag, until) = elements(bodies[3])
    return calendar.timegm(time.strptime(until.decode("ascii"), TIME_FORMATS[tag]))


def elements(encoded: bytes) -> Iterator[tuple[int, bytes]]:
    """The tag and the body of each element."""
    while encoded:
        tag, size, start = encoded[0], encoded[1], 2
        if size & 0x80:
            start += size & 0x7F
            size = int.from_bytes(encoded[2:start], "big")
        yield tag, encoded[start : start + size]
        encoded = encoded[start + size :]
