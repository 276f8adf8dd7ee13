"""The keys of an issuer of bearer tokens, read from its JWKS again and again (`sasl.oauthbearer.jwks.endpoint.url`).

Invariants: what cannot be read leaves the last keys in use, with a line in the log; a token that names a key which is not known
has them read sooner, but never twice within `SOONER_MS_MIN`, since anybody may send such a token. An answer has at most
`JWKS_SIZE_MAX` bytes, and `file:` is read only where the broker's own configuration says so.
"""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from urllib.parse import unquote, urlsplit

from joserfc.jwk import Key

from headrace.broker.auth.sasl import signed_tokens
from headrace.broker.auth.sasl.exchange import Authenticated
from headrace.broker.auth.sasl.signed_tokens import Expectations
from headrace.broker.config.keys import ConfigurationError
from headrace.broker.config.sections import Sasl
from headrace.broker.structured_log import get_logger
from headrace.broker.tls.contexts import client_context

logger = get_logger(__name__)
URL_KEY = "sasl.oauthbearer.jwks.endpoint.url"
JWKS_SIZE_MAX = 1 << 20
READ_SECONDS_MAX = 10.0
SOONER_MS_MIN = 10_000
_ALLOWED = "an address of file:, http: or https:, such as https://issuer.example/jwks.json"


class IssuerKeys:
    """Checks tokens; `run` keeps the keys fresh."""

    def __init__(self, settings: Sasl, options: Mapping[str, str]) -> None:
        """`options` of the login module: its `ssl.…` say whom to trust, as in Kafka.

        Raises ConfigurationError for an address that cannot be one, a file that has no keys, or stores that cannot be read.
        """
        self._url = settings.sasl_oauthbearer_jwks_endpoint_url or ""
        parts = urlsplit(self._url)
        if parts.scheme not in ("file", "http", "https") or not (parts.netloc or parts.scheme == "file"):
            raise ConfigurationError(URL_KEY, self._url, _ALLOWED)
        self._tls = {name: text for name, text in options.items() if name.startswith("ssl.")}
        if parts.scheme == "https":
            client_context(self._tls)
        self._refresh_s = settings.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000
        self._retry_s = settings.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms / 1000
        self._retry_s_max = settings.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms / 1000
        self._expected = Expectations(
            audiences=settings.sasl_oauthbearer_expected_audience or (),
            issuer=settings.sasl_oauthbearer_expected_issuer,
            clock_skew_s=settings.sasl_oauthbearer_clock_skew_seconds,
            scope_claim=settings.sasl_oauthbearer_scope_claim_name,
            subject_claim=settings.sasl_oauthbearer_sub_claim_name,
        )
        self._keys: tuple[Key, ...] = ()
        self._is_missed = asyncio.Event()
        if parts.scheme == "file":
            try:
                self._keys = read(self._url, self._tls)
            except (OSError, ValueError) as error:
                raise ConfigurationError(URL_KEY, self._url, f"a file with a JWKS ({error})") from None

    def check(self, token: str, now_ms: int) -> Authenticated:
        """Whom the token names; raises RefusedError."""
        wanted = signed_tokens.key_id(token)
        if not self._keys or (wanted is not None and all(key.kid != wanted for key in self._keys)):
            self._is_missed.set()
        return signed_tokens.check(token, self._keys, self._expected, now_ms)

    async def run(self) -> None:
        """Read the keys now and then, for ever."""
        failures = 0
        while True:
            try:
                self._keys = await asyncio.to_thread(read, self._url, self._tls)
                failures, pause_s = 0, self._refresh_s
            except (OSError, ValueError) as error:
                logger.warning("an issuer's keys cannot be read", url=self._url, reason=error)
                pause_s = min(self._retry_s * 2 ** min(failures, 30), self._retry_s_max)
                failures += 1
            sooner_s = min(SOONER_MS_MIN / 1000, pause_s)
            self._is_missed.clear()
            await asyncio.sleep(sooner_s)
            try:
                async with asyncio.timeout(pause_s - sooner_s):
                    await self._is_missed.wait()
            except TimeoutError:
                continue


def read(url: str, tls: Mapping[str, str]) -> tuple[Key, ...]:
    """The keys that are there now. Blocks; raises OSError and ValueError."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        with Path(unquote(parts.path)).open("rb") as file:
            return _keys(file.read(JWKS_SIZE_MAX + 1))
    # No handler for other addresses: a redirection must not make this read a file.
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=client_context(tls) if parts.scheme == "https" else None),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    try:
        with opener.open(url, timeout=READ_SECONDS_MAX) as answer:
            return _keys(answer.read(JWKS_SIZE_MAX + 1))
    except HTTPException as error:
        raise OSError(f"it does not speak HTTP ({type(error).__name__})") from None


def _keys(text: bytes) -> tuple[Key, ...]:
    if len(text) > JWKS_SIZE_MAX:
        raise ValueError(f"it has more than {JWKS_SIZE_MAX} bytes")
    return signed_tokens.read_keys(text)
