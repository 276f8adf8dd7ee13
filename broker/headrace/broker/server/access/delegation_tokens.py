"""The delegation tokens that ZooKeeper holds: read at the start, kept true by its notifications, written when clients ask.

Invariants: a token that is answered is in ZooKeeper, and every other broker is told of it; what is read there wins over what was
known. Nothing is read or written where `delegation.token.secret.key` is not set. An HMAC is never stored and never logged.
"""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from functools import partial
from uuid import uuid4

from headrace.broker.auth.delegation_tokens import Lifetimes, Token, Tokens
from headrace.broker.auth.principal import Principal
from headrace.broker.auth.sasl.scram import Known
from headrace.broker.clock import Clock
from headrace.broker.config.sections import DelegationTokens as Settings
from headrace.broker.server.mailbox import Mailbox
from headrace.broker.structured_log import get_logger
from headrace.broker.zk import paths
from headrace.broker.zk.client import ZooKeeperClient
from headrace.broker.zk.reads import understood
from headrace.broker.zk.znodes import NoZnodeError, ZnodeExistsError

logger = get_logger(__name__)
NOTIFICATION_LIFE_MS = 15 * 60 * 1000
SALT_SIZE = 24


class DelegationTokens:
    """`book` decides; this class reads, writes and tells."""

    def __init__(
        self, settings: Settings, zookeeper: ZooKeeperClient, mailbox: Mailbox, clock: Clock
    ) -> None:
        secret = settings.delegation_token_secret_key or settings.delegation_token_master_key
        lifetimes = Lifetimes(
            expiry_ms=settings.delegation_token_expiry_time_ms,
            max_ms=settings.delegation_token_max_lifetime_ms,
        )
        self.book = Tokens(secret.encode() if secret else None, lifetimes)
        self.check_interval_ms = settings.delegation_token_expiry_check_interval_ms
        self._zookeeper = zookeeper
        self._mailbox = mailbox
        self._clock = clock
        self._seen: dict[str, int] = {}

    @property
    def is_enabled(self) -> bool:
        return self.book.secret is not None

    def known(self, mechanism: str, token_id: str) -> Known | None:
        """What is known of a token for a mechanism."""
        return self.book.known(mechanism, token_id, partial(secrets.token_bytes, SALT_SIZE))

    async def load(self) -> None:
        """Read all tokens."""
        if self.is_enabled:
            for path in (paths.TOKENS, paths.TOKEN_CHANGES):
                await self._zookeeper.ensure(path)
            await self._read(await self._zookeeper.children(paths.TOKENS))

    def watch(self) -> None:
        """Follow what other brokers change from now on."""
        if self.is_enabled:
            self._zookeeper.watch_children(
                paths.TOKEN_CHANGES, lambda names: self._mailbox.post(lambda: self._notified(names))
            )

    async def create(
        self, owner: Principal, requester: Principal, renewers: Sequence[Principal], lifetime_ms_max: int
    ) -> tuple[Token, bytes]:
        """(the new token, its HMAC); raises KafkaErrors."""
        token_id = urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
        now_ms = self._clock.now_ms()
        token = self.book.created(token_id, owner, requester, renewers, lifetime_ms_max, now_ms)
        await self._write(token)
        logger.info("delegation token created", token=token_id, owner=owner, requester=requester)
        return token, self.book.hmac(token_id)

    async def renew(self, principal: Principal, mac: bytes, period_ms: int) -> Token:
        """The token as it is now; raises KafkaErrors."""
        token = self.book.renewed(principal, mac, period_ms, self._clock.now_ms())
        await self._write(token)
        logger.info("delegation token renewed", token=token.token_id, by=principal)
        return token

    async def expire(self, principal: Principal, mac: bytes, period_ms: int) -> Token:
        """The token as it is now, or was until now; raises KafkaErrors."""
        token, is_over = self.book.shortened(principal, mac, period_ms, self._clock.now_ms())
        if is_over:
            await self._remove(token)
        else:
            await self._write(token)
        logger.info("delegation token expires", token=token.token_id, by=principal)
        return token

    async def expire_all(self) -> None:
        """Remove what has expired."""
        for token in self.book.over(self._clock.now_ms()):
            logger.info("delegation token expired", token=token.token_id, owner=token.owner)
            await self._remove(token)

    async def _write(self, token: Token) -> None:
        path, data = paths.token(token.token_id), paths.encode_token(token)
        try:
            await self._zookeeper.set(path, data)
        except NoZnodeError:
            try:
                await self._zookeeper.create(path, data)
            except ZnodeExistsError:
                await self._zookeeper.set(path, data)
        self.book.put(token)
        await self._tell(token.token_id)

    async def _remove(self, token: Token) -> None:
        await self._zookeeper.delete(paths.token(token.token_id))
        self.book.drop(token.token_id)
        await self._tell(token.token_id)

    async def _tell(self, token_id: str) -> None:
        await self._zookeeper.create(paths.TOKEN_CHANGE_PREFIX, token_id.encode(), sequence=True)

    async def _read(self, token_ids: Sequence[str]) -> None:
        znodes = await self._zookeeper.get_many([paths.token(token_id) for token_id in token_ids])
        for token_id, znode in zip(token_ids, znodes, strict=True):
            if znode is None:
                self.book.drop(token_id)
                continue
            for token in understood([znode], partial(paths.decode_token, paths.token(token_id))):
                self.book.put(token)

    async def _notified(self, names: Sequence[str]) -> None:
        new = [name for name in names if name not in self._seen]
        self._seen = {name: created_ms for name, created_ms in self._seen.items() if name in names}
        znodes = await self._zookeeper.get_many([f"{paths.TOKEN_CHANGES}/{name}" for name in new])
        changed: dict[str, None] = {}
        for name, znode in zip(new, znodes, strict=True):
            if znode is not None:
                self._seen[name] = znode.created_ms
                changed[znode.data.decode("utf-8", "replace")] = None
        await self._read([token_id for token_id in changed if token_id and "/" not in token_id])
        oldest_ms = self._clock.now_ms() - NOTIFICATION_LIFE_MS
        for name in [name for name, created_ms in self._seen.items() if created_ms < oldest_ms]:
            await self._zookeeper.delete(f"{paths.TOKEN_CHANGES}/{name}")
