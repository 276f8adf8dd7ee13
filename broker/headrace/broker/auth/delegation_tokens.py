"""Delegation tokens (KIP-48, KIP-373): who may create, renew, expire and see which, without I/O.

A token's id is public; its HMAC, made from the id with the secret that all brokers share, shows that somebody was given it.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from headrace.broker.auth.principal import Principal
from headrace.broker.auth.sasl.credentials import ITERATIONS_MIN, credential_for
from headrace.broker.auth.sasl.exchange import Authenticated
from headrace.broker.auth.sasl.scram import Known
from headrace.broker.errors import (
    DelegationTokenDisabledError,
    DelegationTokenExpiredError,
    DelegationTokenNotAllowedError,
    DelegationTokenNotFoundError,
    DelegationTokenOwnerMismatchError,
)

TOKENS_COUNT_MAX = 100_000
NO_TIME = -1
_HASH = "sha512"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """`requester` asked for it, `owner` is whom it stands for; times in milliseconds since 1970."""

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_at_ms: int
    expires_at_ms: int
    ends_at_ms: int
    """However often it is renewed."""

    def is_over(self, now_ms: int) -> bool:
        return self.ends_at_ms < now_ms or self.expires_at_ms < now_ms

    def is_of(self, principal: Principal) -> bool:
        """Whether that is its owner or one of its renewers."""
        return principal == self.owner or principal in self.renewers


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetimes:
    """Of tokens: how long they live until they are renewed, and at most."""

    expiry_ms: int
    max_ms: int


@dataclass(slots=True)
class Tokens:
    """The tokens of the cluster; `secret` is None where there are none. What is decided here is made so with `put` and `drop`."""

    secret: bytes | None = field(repr=False)
    lifetimes: Lifetimes
    _tokens: dict[str, Token] = field(default_factory=dict)
    _by_hmac: dict[bytes, str] = field(default_factory=dict, repr=False)
    # By token and mechanism.
    _known: dict[str, dict[str, Known]] = field(default_factory=dict, repr=False)

    def put(self, token: Token) -> None:
        """The token is new, or lives longer or shorter."""
        self._tokens[token.token_id] = token
        self._by_hmac[self.hmac(token.token_id)] = token.token_id
        self._known.pop(token.token_id, None)

    def drop(self, token_id: str) -> None:
        """The token is gone, if there was one."""
        if self._tokens.pop(token_id, None) is not None:
            del self._by_hmac[self.hmac(token_id)]
            self._known.pop(token_id, None)

    def hmac(self, token_id: str) -> bytes:
        assert self.secret is not None, "there are tokens"
        return hmac.digest(self.secret, token_id.encode(), _HASH)

    def created(
        self,
        token_id: str,
        owner: Principal,
        requester: Principal,
        renewers: Iterable[Principal],
        lifetime_ms_max: int,
        now_ms: int,
    ) -> Token:
        """The token for who asks for it; a `lifetime_ms_max` of 0 or less is the longest. Raises KafkaErrors."""
        self._require_secret()
        if len(self._tokens) >= TOKENS_COUNT_MAX:
            raise DelegationTokenNotAllowedError(f"There are {TOKENS_COUNT_MAX} delegation tokens already.")
        longest_ms = self.lifetimes.max_ms
        lifetime_ms = longest_ms if lifetime_ms_max <= 0 else min(lifetime_ms_max, longest_ms)
        return Token(
            token_id=token_id,
            owner=owner,
            requester=requester,
            renewers=tuple(renewers),
            issued_at_ms=now_ms,
            expires_at_ms=now_ms + min(lifetime_ms, self.lifetimes.expiry_ms),
            ends_at_ms=now_ms + lifetime_ms,
        )

    def renewed(self, principal: Principal, mac: bytes, period_ms: int, now_ms: int) -> Token:
        """The token with a longer life; a period below 0 is the usual one. Raises KafkaErrors."""
        token = self._mine(principal, mac)
        _require_alive(token, now_ms)
        period_ms = self.lifetimes.expiry_ms if period_ms < 0 else period_ms
        return replace(token, expires_at_ms=min(token.ends_at_ms, now_ms + period_ms))

    def shortened(self, principal: Principal, mac: bytes, period_ms: int, now_ms: int) -> tuple[Token, bool]:
        """(the token, whether it is over at once): a period below 0 ends it. Raises KafkaErrors."""
        token = self._mine(principal, mac)
        if period_ms < 0:
            return replace(token, expires_at_ms=now_ms), True
        _require_alive(token, now_ms)
        return replace(token, expires_at_ms=min(token.ends_at_ms, now_ms + period_ms)), False

    def over(self, now_ms: int) -> list[Token]:
        """Those that have expired."""
        return [token for token in self._tokens.values() if token.is_over(now_ms)]

    def visible(
        self,
        principal: Principal,
        owners: Iterable[Principal] | None,
        may_see: Callable[[Token], bool],
    ) -> list[Token]:
        """Those of these owners, or of all, that are the principal's to see or that it `may_see`. Raises KafkaErrors."""
        self._require_secret()
        wanted = None if owners is None else list(owners)
        return [
            token
            for token in self._tokens.values()
            if (wanted is None or any(map(token.is_of, wanted)))
            and (token.is_of(principal) or may_see(token))
        ]

    def known(self, mechanism: str, token_id: str, salt: Callable[[], bytes]) -> Known | None:
        """What a log-in by the token is checked with; made when it is first wanted, since that takes milliseconds."""
        token = self._tokens.get(token_id)
        if token is None:
            return None
        by_mechanism = self._known.setdefault(token_id, {})
        known = by_mechanism.get(mechanism)
        if known is None:
            password = b64encode(self.hmac(token_id)).decode()
            credential = credential_for(mechanism, password, salt(), ITERATIONS_MIN)
            found = Authenticated(token.owner.name, token.expires_at_ms, is_by_token=True)
            known = by_mechanism[mechanism] = Known(credential, found)
        return known

    def _mine(self, principal: Principal, mac: bytes) -> Token:
        self._require_secret()
        token_id = self._by_hmac.get(mac)
        if token_id is None:
            raise DelegationTokenNotFoundError("There is no such delegation token.")
        token = self._tokens[token_id]
        if not token.is_of(principal):
            raise DelegationTokenOwnerMismatchError(
                "The delegation token is neither owned nor renewed by the client."
            )
        return token

    def _require_secret(self) -> None:
        if self.secret is None:
            raise DelegationTokenDisabledError(
                "There are no delegation tokens: set delegation.token.secret.key."
            )


def _require_alive(token: Token, now_ms: int) -> None:
    if token.is_over(now_ms):
        raise DelegationTokenExpiredError("The delegation token has expired.")
