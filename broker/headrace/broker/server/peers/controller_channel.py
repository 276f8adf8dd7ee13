"""What this broker asks the controller when that is another broker: one connection, one request at a time.

Invariants: the controller is the one that the controller's last word (UpdateMetadata) named; an answer of one that is not
controller any more for this broker is not waited for; versions are agreed on, since the controller may be of another kind
or release. Must not know what is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headrace.broker.errors import UnsupportedVersionError, error_of
from headrace.broker.replication.model import Endpoint
from headrace.broker.server.metadata import MetadataCache
from headrace.broker.server.peers.requests import Connect, Link
from headrace.broker.wire.api import k18_api_versions
from headrace.broker.wire.client.exchange import VERSIONS_VERSION
from headrace.broker.wire.fields import Message
from headrace.broker.wire.schema import Api


class NoControllerError(OSError):
    """No controller is known, or it cannot be reached by the listener that brokers use between them."""


class ControllerChannel:
    """See the module's text; not safe for concurrent use."""

    def __init__(
        self, metadata: MetadataCache, *, listener: str, client_id: str, timeout_ms: int, connect: Connect
    ) -> None:
        self._metadata = metadata
        self._listener = listener
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._connect = connect
        self._link: Link | None = None
        self._endpoint: Endpoint | None = None
        self._versions: dict[int, tuple[int, int]] = {}
        self._patience: asyncio.Timeout | None = None
        metadata.on_change(self._metadata_changed)

    async def ask(self, api: Api, version_max: int, message: Callable[[int], Message]) -> tuple[int, Message]:
        """Send `message(version)`, in the highest version up to `version_max` that both sides have; that version, and the
        answer.

        Raises OSError, also when the time is over or another broker became controller, or UnsupportedVersionError.
        """
        try:
            async with asyncio.timeout(self._timeout_ms / 1000) as self._patience:
                link = await self._linked()
                version = self._version(api, version_max)
                return version, await link.ask(api, version, message(version))
        except BaseException:
            self.close()
            raise
        finally:
            self._patience = None

    def close(self) -> None:
        """Close at once; the next request connects anew."""
        if self._link is not None:
            self._link.close()
        self._link = self._endpoint = None

    async def _linked(self) -> Link:
        endpoint = self._controller()
        if endpoint is None:
            raise NoControllerError("this broker does not know where the controller is")
        if self._link is None or endpoint != self._endpoint:
            self.close()
            self._endpoint = endpoint
            address = endpoint.host, endpoint.port
            self._link = await self._connect(address, self._client_id, self._timeout_ms)
            answer = await self._link.ask(k18_api_versions.API, VERSIONS_VERSION, {})
            if answer["error_code"]:
                raise NoControllerError(f"it tells no versions: {error_of(answer['error_code']).code.name}")
            self._versions = {v["api_key"]: (v["min_version"], v["max_version"]) for v in answer["api_keys"]}
        return self._link

    def _controller(self) -> Endpoint | None:
        return self._metadata.endpoint(self._metadata.controller_id, self._listener)

    def _version(self, api: Api, version_max: int) -> int:
        low, high = self._versions.get(api.key, (0, -1))
        version = min(high, version_max, api.versions[1])
        if version < max(low, api.versions[0]):
            raise UnsupportedVersionError(
                f"the controller does not serve {api.name} up to version {version_max}"
            )
        return version

    def _metadata_changed(self) -> None:
        """Give up on an answer of a broker that is not controller any more."""
        patience = self._patience
        if (
            patience is not None
            and not patience.expired()
            and self._endpoint not in (None, self._controller())
        ):
            patience.reschedule(asyncio.get_running_loop().time())
