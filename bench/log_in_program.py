"""What the cell of log-ins runs in a process of its own: connections that log in by SCRAM-SHA-256 and are closed again.

    python -m bench.log_in_program HOST:PORT NAME PASSWORD CONNECTIONS SECONDS

Each connection is agreed on versions, logged in and closed, and the next one follows. The salted password is computed once, as
RFC 5802 lets a client do (section 5.1): that is the client's work, which would hide the broker's. Prints JSON: log-ins, seconds.
"""

from __future__ import annotations

import functools
import json
import sys
import threading
import time

from headrace.broker.auth.jaas import SCRAM_MODULE
from headrace.broker.auth.sasl import credentials
from headrace.broker.auth.sasl.exchange import SCRAM_SHA_256
from headrace.broker.client.blocking import BlockingLink
from headrace.broker.client.bootstrap import parse_bootstrap
from headrace.broker.client.security import ClientSecurity
from headrace.broker.wire.client.view import Address

MECHANISM = SCRAM_SHA_256
TIMEOUT_SECONDS = 30.0


def security(name: str, password: str) -> ClientSecurity:
    """A client that logs in so, without TLS."""
    return ClientSecurity.of(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": f'{SCRAM_MODULE} required username="{name}" password="{password}";',
        }
    )


def main(address: Address, who: ClientSecurity, connections: int, seconds: float) -> dict[str, float]:
    """Log in on so many connections side by side for so long."""
    credentials.salted_password = functools.cache(credentials.salted_password)
    BlockingLink(address, "bench", TIMEOUT_SECONDS, security=who).close()
    counts, began = [0] * connections, time.monotonic()
    until = began + seconds

    def log_in(number: int) -> None:
        while time.monotonic() < until:
            BlockingLink(address, "bench", TIMEOUT_SECONDS, security=who).close()
            counts[number] += 1

    threads = [threading.Thread(target=log_in, args=(number,)) for number in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"log_ins": sum(counts), "seconds": time.monotonic() - began}


if __name__ == "__main__":
    _, where, name, password, connections, seconds = sys.argv
    (address,) = parse_bootstrap(where)
    print(json.dumps(main(address, security(name, password), int(connections), float(seconds))))
