"""One connection to one broker for an event loop.

Every wait is bounded by the time-out. Answers are views of one buffer: they are valid until the next request on this link.
Where the security wants it, a link logs in before its first request, and again before its session is over (KIP-368).
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from headrace.broker.client.async_carriers import Carrier, connected
from headrace.broker.client.identities import advanced, identity_of, nonce
from headrace.broker.client.security import PLAINTEXT, ClientSecurity
from headrace.broker.errors import UnsupportedVersionError
from headrace.broker.wire.client.exchange import A, Exchange, Q, Spoken
from headrace.broker.wire.client.login import log_in, renewal_after_ms
from headrace.broker.wire.client.view import Address
from headrace.broker.wire.fields import MalformedError

FAILURES = (OSError, MalformedError, UnsupportedVersionError)
"""What a request may raise, OSError also for a time-out; the link is of no use afterwards."""


class AsyncLink:
    """Made by `open`; one request at a time."""

    def __init__(
        self, carrier: Carrier, exchange: Exchange, timeout_ms: int, security: ClientSecurity
    ) -> None:
        self._carrier = carrier
        self._exchange = exchange
        self._timeout_ms = timeout_ms
        self._security = security
        self._login_due: float | None = None

    @classmethod
    async def open(
        cls,
        address: Address,
        client_id: str,
        timeout_ms: int,
        *,
        negotiates: bool = True,
        security: ClientSecurity = PLAINTEXT,
    ) -> AsyncLink:
        """Connect, agree on versions unless it `negotiates` none, and log in; raises FAILURES, or ConfigurationError where a
        store of the security cannot be used.
        """
        async with asyncio.timeout(timeout_ms / 1000):
            carrier = await connected(address, security)
        exchange = Exchange(client_id, negotiates=negotiates)
        link = cls(carrier, exchange, timeout_ms, security)
        try:
            if negotiates:
                await link._carry(exchange.versions_request())
            if security.uses_sasl:
                await link._log_in()
        except BaseException:
            link.close()
            raise
        return link

    def close(self) -> None:
        self._carrier.close()

    async def __aenter__(self) -> AsyncLink:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def version(self, api: Spoken[Any, Any], highest: int) -> int:
        """The highest version up to `highest` that the other side serves; -1 when it serves none."""
        return self._exchange.version(api, highest)

    async def ask(self, api: Spoken[Q, A], highest: int, message: Q) -> A:
        """Send a request in a version up to `highest` and return its decoded answer; raises FAILURES."""
        if self._login_due is not None and asyncio.get_running_loop().time() >= self._login_due:
            await self._log_in()
        answer: A = await self._carry(self._exchange.request(api, highest, message))
        return answer

    async def _log_in(self) -> None:
        """In threads, as tokens are waited for and passwords are hashed as often as the broker says."""
        steps = log_in(await asyncio.to_thread(identity_of, self._security), nonce())
        asked = advanced(steps, None)
        while not isinstance(asked, int):
            answer = await self._carry(self._exchange.request(*asked))
            asked = await asyncio.to_thread(advanced, steps, answer)
        after_ms = renewal_after_ms(asked, random.random())
        now = asyncio.get_running_loop().time()
        self._login_due = None if after_ms is None else now + after_ms / 1000

    async def _carry(self, request: bytes) -> Any:
        exchange, carrier = self._exchange, self._carrier
        answer = None
        async with asyncio.timeout(self._timeout_ms / 1000):
            await carrier.send(request)
            # Neither call lets go of the loop where the other side is quick: who asks again and again would keep it.
            await asyncio.sleep(0)
            while answer is None:
                answer = exchange.received(await carrier.receive(exchange.writable(), exchange.missing))
        return answer
