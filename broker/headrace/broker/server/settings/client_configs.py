"""What `/config/users`, `/config/clients` and `/config/ips` hold: who has quotas, and users' credentials.

An entity is named by its kind and its path below that: `users`, `alice` or `alice/clients/reports`, each name sanitized. Who
follows with `on_change` is told of each entity once at the start, and then again after each notified change; who asks with
`stored` gets what ZooKeeper holds now. Must not know what a configuration means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from headrace.broker.quotas.entities import CLIENTS, IPS, USERS
from headrace.broker.structured_log import get_logger
from headrace.broker.zk import paths
from headrace.broker.zk.client import ZooKeeperClient
from headrace.broker.zk.reads import understood
from headrace.broker.zk.znodes import Znode

logger = get_logger(__name__)
KINDS = (USERS, CLIENTS, IPS)
Follow = Callable[[str, str, Mapping[str, str]], None]


class ClientConfigs:
    """Reads and cleans away; `DynamicConfigs` writes, and tells of changes."""

    def __init__(self, zookeeper: ZooKeeperClient) -> None:
        self._zookeeper = zookeeper
        self._callbacks: list[Follow] = []

    def on_change(self, callback: Follow) -> None:
        """Call `callback(kind, name, overrides)` for each entity at the start, and after each notified change."""
        self._callbacks.append(callback)

    async def load(self) -> None:
        """Tell of all entities that there are."""
        for kind in KINDS:
            for name, overrides in (await self.stored(kind)).items():
                self._tell(kind, name, overrides)

    async def changed(self, kind: str, name: str) -> None:
        """An entity's configuration was changed, so one was told."""
        path = paths.entity_config(kind, name)
        found = decoded(path, await self._zookeeper.get(path))
        if found is not None:
            logger.info("client configuration changed", kind=kind, entity=name, keys=",".join(sorted(found)))
            self._tell(kind, name, found)

    async def stored(self, kind: str, names: Sequence[str] | None = None) -> dict[str, dict[str, str]]:
        """The configurations of that kind by name, of these names or of all, as ZooKeeper holds them now."""
        if names is None:
            names = await self._names(kind)
        entity_paths = [paths.entity_config(kind, name) for name in names]
        znodes = await self._zookeeper.get_many(entity_paths)
        return {
            name: decoded(path, znode) or {}
            for name, path, znode in zip(names, entity_paths, znodes, strict=True)
        }

    async def _names(self, kind: str) -> list[str]:
        names = await self._zookeeper.children(f"{paths.CONFIG}/{kind}")
        if kind == USERS:
            folders = [paths.entity_config(USERS, f"{user}/{CLIENTS}") for user in names]
            found = await asyncio.gather(*map(self._zookeeper.children, folders))
            names += [
                f"{user}/{CLIENTS}/{client}"
                for user, clients in zip(list(names), found, strict=True)
                for client in clients
            ]
        return names

    async def stored_of(self, kind: str, name: str) -> dict[str, str]:
        """The configuration of one of them, as ZooKeeper holds it now."""
        path = paths.entity_config(kind, name)
        return decoded(path, await self._zookeeper.get(path)) or {}

    async def clean(self, kind: str, name: str, version: int | None) -> bool:
        """Remove an entity that has nothing configured any more, as Kafka does; False where others lie below it.

        `version` is that of its znode, None when there is none.
        """
        path = paths.entity_config(kind, name)
        if await self._zookeeper.children(path):
            return False
        if version is not None:
            await self._zookeeper.delete(path, version)
        user, slash, _ = name.partition("/")
        if slash:
            await self._clean_user(user)
        return True

    async def _clean_user(self, user: str) -> None:
        """A user whose last client is gone, and who has nothing configured."""
        path = paths.entity_config(USERS, user)
        if await self._zookeeper.children(f"{path}/{CLIENTS}"):
            return
        await self._zookeeper.delete(f"{path}/{CLIENTS}")
        znode = await self._zookeeper.get(path)
        if znode is not None and decoded(path, znode) == {} and not await self._zookeeper.children(path):
            await self._zookeeper.delete(path, znode.version)

    def _tell(self, kind: str, name: str, overrides: Mapping[str, str]) -> None:
        for callback in self._callbacks:
            callback(kind, name, overrides)


def decoded(path: str, znode: Znode | None) -> dict[str, str] | None:
    """The overrides in a znode; None, and a line in the log, for what no Kafka wrote: the last ones stay."""
    if znode is None:
        return {}
    return next(iter(understood([znode], partial(paths.decode_config, path))), None)
