"""Connections of one purpose to the other brokers, one each, where those are now."""

from __future__ import annotations

from typing import Protocol

from headrace.broker.replication.model import Endpoint
from headrace.broker.server.peers.requests import Connect, PeerLink


class Endpoints(Protocol):
    """Where brokers are."""

    def endpoint(self, broker_id: int, listener: str) -> Endpoint | None: ...


class BrokerLinks:
    """Links that call themselves `client_id`; a broker that is somewhere else now has its old one closed."""

    def __init__(
        self, metadata: Endpoints, client_id: str, *, listener: str, timeout_ms: int, connect: Connect
    ) -> None:
        self._metadata = metadata
        self._client_id = client_id
        self._listener = listener
        self._timeout_ms = timeout_ms
        self._connect = connect
        self._links: dict[int, tuple[Endpoint, PeerLink]] = {}

    def to(self, broker_id: int) -> PeerLink | None:
        """The connection to a broker; None while nobody knows where that is."""
        endpoint = self._metadata.endpoint(broker_id, self._listener)
        if endpoint is None:
            return None
        known = self._links.get(broker_id)
        if known is not None and known[0] == endpoint:
            return known[1]
        if known is not None:
            known[1].close()
        link = PeerLink(endpoint, self._client_id, self._timeout_ms, self._connect)
        self._links[broker_id] = (endpoint, link)
        return link

    def close(self) -> None:
        for _, link in self._links.values():
            link.close()
