"""Whether a cluster lets a client in, asked before a library is handed over to that would only say that nobody answers.

Nothing is asked in plaintext, where everybody is let in. A broker that does not answer at all says nothing about it.
"""

from __future__ import annotations

from typing import Final

from headrace.broker.client.blocking import BlockingLink
from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.client.tls_contexts import TlsError
from headrace.broker.wire.client.login import LoginError

NOT_LET_IN: Final = (TlsError, LoginError)
TIMEOUT_SECONDS: Final = 10.0


def refusal(bootstrap: Bootstrap) -> str:
    """Why brokers do not let in; empty where they do, or none answers."""
    try:
        check_entrance(bootstrap)
    except NOT_LET_IN as error:
        return str(error)
    return ""


def check_entrance(bootstrap: Bootstrap, client_id: str = "headrace") -> None:
    """Returns where one of the brokers lets in, or none answers; raises one of NOT_LET_IN with a sentence where they refuse."""
    security = bootstrap.security
    if not (security.uses_tls or security.uses_sasl):
        return
    refusal: Exception | None = None
    for address in bootstrap.addresses:
        try:
            BlockingLink(address, client_id, TIMEOUT_SECONDS, security=security).close()
        except NOT_LET_IN as error:
            refusal = refusal or error
        except OSError:
            continue
        else:
            return
    if refusal is not None:
        raise refusal
