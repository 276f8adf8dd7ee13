"""What a broker answers to those who ask whether it lives and whether it is ready: load balancers, probes, roll-outs.

Live is whoever answers. Ready is a broker that has opened its logs, serves clients, is registered in its cluster and is not
about to stop; one that is not says how far it is.
"""

from __future__ import annotations

import json
from enum import Enum
from http import HTTPStatus

from headrace.broker.log.progress import OpeningProgress
from headrace.broker.server.membership.zookeeper_watch import ZooKeeperWatch

Answer = tuple[HTTPStatus, str, bytes]
JSON = "application/json"


class Phase(Enum):
    """How far a broker's life is."""

    STARTING = "starting"
    RECOVERING = "recovering"
    REGISTERING = "registering"
    SERVING = "serving"
    DRAINING = "draining"


class Readiness:
    """`phase` is set by whoever starts and stops the broker."""

    def __init__(self, opening: OpeningProgress, zookeeper: ZooKeeperWatch) -> None:
        self.phase = Phase.STARTING
        self._opening = opening
        self._zookeeper = zookeeper

    @property
    def is_ready(self) -> bool:
        return self.phase is Phase.SERVING and self._zookeeper.is_registered

    async def live(self) -> Answer:
        """The answer to GET /live."""
        return HTTPStatus.OK, JSON, b'{"live": true}\n'

    async def ready(self) -> Answer:
        """The answer to GET /ready: 200, or 503 with what is missing."""
        opening = self._opening
        told = {
            "ready": self.is_ready,
            "state": self.phase.value,
            "registered": self._zookeeper.is_registered,
            "logs_opened": opening.logs_opened,
            "logs_left": opening.logs_left,
            "bytes_checked": opening.bytes_checked,
            "bytes_left": opening.bytes_left,
        }
        status = HTTPStatus.OK if self.is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        return status, JSON, json.dumps(told).encode() + b"\n"
