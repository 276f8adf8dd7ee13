"""Who a client says that it is when it logs in: names and passwords as they stand, tokens where their settings say.

Owns asking for tokens: by client credentials (RFC 6749, section 4.4) from an endpoint, or from a file, which somebody else
renews. Invariants: a token is asked for again once `RENEWED_FROM` of its life is over; an answer has at most
`ANSWER_SIZE_MAX` bytes; no error has a secret.
"""

from __future__ import annotations

import base64
import json
import secrets
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple

from headrace.broker.auth.jaas import LoginModule
from headrace.broker.auth.sasl.exchange import OAUTHBEARER, Identity
from headrace.broker.client.security import CONNECT_MS_KEY, READ_MS_KEY, TOKEN_URL_KEY, ClientSecurity
from headrace.broker.client.tls_contexts import context_of
from headrace.broker.wire.client.login import Asked, Login, LoginError

ANSWER_SIZE_MAX: Final = 256 * 1024
TOKENS_MAX: Final = 64
RENEWED_FROM: Final = 0.8
"""Kafka's default of sasl.login.refresh.window.factor."""
LIFE_SECONDS_DEFAULT: Final = 60.0
NONCE_SIZE: Final = 24
EXTENSION_PREFIX: Final = "extension_"


class Token(NamedTuple):
    """A bearer token, and until when it holds (seconds since 1970)."""

    text: str
    expires_at: float


_tokens: dict[ClientSecurity, tuple[Token, float]] = {}
_asking = Lock()


def nonce() -> str:
    """For one log-in."""
    return secrets.token_urlsafe(NONCE_SIZE)


def advanced(steps: Login, answer: dict[str, Any] | None) -> Asked | int:
    """What to ask next, or how long the session lasts. A broker says how much work this is for SCRAM. Raises LoginError."""
    try:
        return steps.send(answer)  # type: ignore[arg-type]
    except StopIteration as end:
        return int(end.value)


def identity_of(security: ClientSecurity) -> Identity:
    """Blocks where a token has to be asked for. Raises LoginError."""
    module = security.login_module
    if security.mechanism != OAUTHBEARER:
        return Identity(security.mechanism, module.username, module.password, module.is_token)
    return Identity(OAUTHBEARER, bearer=token_of(security).text, extensions=extensions_of(module))


def extensions_of(module: LoginModule) -> tuple[tuple[str, str], ...]:
    """What is said beside a token (KIP-342)."""
    return tuple(
        (name.removeprefix(EXTENSION_PREFIX), value)
        for name, value in module.options.items()
        if name.startswith(EXTENSION_PREFIX)
    )


def token_of(security: ClientSecurity) -> Token:
    """The token to show now. Blocks, one asker at a time. Raises LoginError."""
    with _asking:
        known, now = _tokens.get(security), time.time()
        if known is not None and now < known[1]:
            return known[0]
        url = security.value(TOKEN_URL_KEY)
        if url.startswith("file:"):
            return _token(_read(url))
        found = _token(_asked(security, url, security.login_module))
        if len(_tokens) >= TOKENS_MAX:
            _tokens.clear()
        _tokens[security] = found, now + (found.expires_at - now) * RENEWED_FROM
        return found


def _read(url: str) -> str:
    path = urllib.parse.unquote(urllib.parse.urlsplit(url).path)
    try:
        with Path(path).open(encoding="ascii") as file:
            return file.read(ANSWER_SIZE_MAX).strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in ASCII"
        raise LoginError(f"the token of {TOKEN_URL_KEY}={url} cannot be read ({reason})") from None


def _asked(security: ClientSecurity, url: str, module: LoginModule) -> str:
    """The token that an endpoint gives for the client id and secret of the login module."""
    options = module.options
    form = {"grant_type": "client_credentials"} | (
        {"scope": options["scope"]} if options.get("scope") else {}
    )
    pair = f"{options.get('clientId', '')}:{options.get('clientSecret', '')}"
    request = urllib.request.Request(
        url,
        urllib.parse.urlencode(form).encode(),
        {
            "Accept": "application/json",
            "Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}",
            "Content-Type": "application/x-www-form-urlencoded",
        },
    )
    seconds_max = max(security.timeout_seconds(CONNECT_MS_KEY), security.timeout_seconds(READ_MS_KEY))
    context = context_of(security) if url.startswith("https:") else None
    try:
        with urllib.request.urlopen(request, timeout=seconds_max, context=context) as answer:
            return str(json.loads(answer.read(ANSWER_SIZE_MAX))["access_token"])
    except urllib.error.HTTPError as error:
        reason = f"HTTP status {error.code}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        is_answered = not isinstance(error, OSError)
        reason = "its answer has no access_token" if is_answered else str(getattr(error, "reason", error))
    raise LoginError(f"the endpoint {url} gave no token ({reason})")


def _token(text: str) -> Token:
    """With the end of life that it says itself; it is checked by who is shown it."""
    try:
        body = text.split(".")[1]
        claims: Any = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        return Token(text, float(claims["exp"]))
    except (IndexError, ValueError, KeyError, TypeError):
        return Token(text, time.time() + LIFE_SECONDS_DEFAULT)
