"""The SCRAM credentials of users, as `/config/users` holds them: followed from there, asked at each log-in.

Invariant: a credential that is stored and cannot be read is none, with a line in the log that says nothing of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.broker.auth.sasl.credentials import HASHES, ScramCredential
from headrace.broker.auth.sasl.exchange import Authenticated
from headrace.broker.auth.sasl.scram import Known
from headrace.broker.quotas.entities import USERS
from headrace.broker.quotas.limits import desanitized, sanitized
from headrace.broker.server.settings.configurations import Configurations
from headrace.broker.server.settings.dynamic_config import Change
from headrace.broker.structured_log import get_logger

logger = get_logger(__name__)


class ScramUsers:
    """Follows `ClientConfigs`."""

    def __init__(self, configurations: Configurations) -> None:
        self._configurations = configurations
        configurations.of_clients.on_change(self.changed)
        self._users: dict[str, dict[str, ScramCredential]] = {}

    def known(self, mechanism: str, user: str) -> Known | None:
        """What is known of a user for a mechanism."""
        credential = self._users.get(user, {}).get(mechanism)
        return None if credential is None else Known(credential, Authenticated(user))

    def changed(self, kind: str, name: str, overrides: Mapping[str, str]) -> None:
        """An entity of that kind has these overrides from now on."""
        if kind != USERS or "/" in name:
            return
        user = desanitized(name)
        found = {}
        for mechanism in HASHES.keys() & overrides.keys():
            try:
                found[mechanism] = ScramCredential.parse(overrides[mechanism])
            except ValueError as error:
                logger.error("a credential is passed over", user=user, mechanism=mechanism, reason=error)
        if found:
            self._users[user] = found
        else:
            self._users.pop(user, None)

    async def stored(self, users: Collection[str] | None) -> dict[str, dict[str, str]]:
        """By user, of these or of all, its credentials' texts by mechanism, as ZooKeeper holds them now."""
        names = None if users is None else [sanitized(user) for user in users]
        stored = await self._configurations.of_clients.stored(USERS, names)
        return {
            desanitized(name): {mechanism: found[mechanism] for mechanism in HASHES.keys() & found.keys()}
            for name, found in stored.items()
            if "/" not in name
        }

    async def alter(self, user: str, change: Change) -> None:
        """Replace what is configured for a user by `change(overrides)`; raises what that raises."""
        await self._configurations.alter_client(USERS, sanitized(user), change, validate_only=False)
