"""The limits of connections, from the configuration and from `/config/ips`, brought to what counts them.

Hosts may be given by name; an address counts from when it is known. Invariant: what is stored and cannot be read is no limit,
with a line in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.quotas.buckets import Windows
from headrace.broker.quotas.connections import ConnectionLimits, Connections, ListenerLimits
from headrace.broker.quotas.entities import IPS
from headrace.broker.quotas.keys import CONNECTION_CREATION_RATE
from headrace.broker.quotas.limits import DEFAULT, desanitized
from headrace.broker.server.settings.addresses import numeric, resolve
from headrace.broker.server.settings.client_quotas import limit
from headrace.broker.structured_log import get_logger
from headrace.broker.tasks import Tasks

logger = get_logger(__name__)


class ConnectionQuotas:
    """Follows the configuration in effect and `ClientConfigs`; `on_change()` is called after each change."""

    def __init__(self, config: BrokerConfig, tasks: Tasks) -> None:
        self._tasks = tasks
        self._config = config
        # What names of hosts stand for.
        self._addresses: dict[str, str] = {}
        self.on_change: Callable[[], None] = lambda: None
        windows = Windows(
            count=config.quotas.quota_window_num, size_ms=config.quotas.quota_window_size_seconds * 1000
        )
        self.connections = Connections(self._limits(), windows)

    def use_config(self, config: BrokerConfig) -> None:
        self._config = config
        self.connections.use(self._limits())
        self.on_change()

    def changed(self, kind: str, name: str, overrides: Mapping[str, str]) -> None:
        """An entity of that kind has these overrides from now on."""
        if kind != IPS:
            return
        found = limit(overrides, CONNECTION_CREATION_RATE, name)
        rate = None if found is None else int(found)
        if name == DEFAULT:
            self.connections.limit_address(None, rate)
            return
        host = desanitized(name)
        self._with_address(host, lambda address: self.connections.limit_address(address, rate))

    def _limits(self) -> ConnectionLimits:
        config, network = self._config, self._config.network
        overrides: dict[str, int] = {}
        for host, count in config.connections_per_address.items():
            address = self._addresses.get(host) or numeric(host)
            if address is None:
                self._with_address(host, lambda _: self.use_config(self._config))
            else:
                overrides[address] = count
        return ConnectionLimits(
            count_max=network.max_connections,
            rate=network.max_connection_creation_rate,
            per_address_max=network.max_connections_per_ip,
            per_address_overrides=overrides,
            listeners={
                listener.name: ListenerLimits(
                    count_max=config.value_of_listener(listener.name, "max.connections"),
                    rate=config.value_of_listener(listener.name, "max.connection.creation.rate"),
                )
                for listener in config.listeners
            },
            protected=config.inter_broker_listener if len(config.listeners) > 1 else None,
        )

    def _with_address(self, host: str, use: Callable[[str], None]) -> None:
        """Call `use(address)` now, or, for a name, when somebody knows it."""
        address = self._addresses.get(host) or numeric(host)
        if address is not None:
            use(address)
        else:
            self._tasks.start("resolve a host", self._resolved(host, use))

    async def _resolved(self, host: str, use: Callable[[str], None]) -> None:
        address = await resolve(host)
        if address is None:
            logger.error("a limit of connections is passed over", host=host, reason="nobody knows that host")
        else:
            self._addresses[host] = address
            use(address)
