"""Disks without room: others lead what this broker led there, and it takes part again once there is some.

A disk has none when it refused a write and has no room for a file of `ROOM_SIZE` bytes. Apache Kafka gives such a data
directory up until the broker starts again (KIP-112); the controller, of either kind, hears of it here in the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from headrace.broker.handlers.refused_writes import RefusedWrites
from headrace.broker.log.files import Files
from headrace.broker.server.replicas.hosted import Partitions
from headrace.broker.structured_log import get_logger
from headrace.broker.tasks import Tasks

logger = get_logger(__name__)
ROOM_SIZE = 16 * 1024 * 1024
"""Some of the largest requests."""
PAUSE_SECONDS = 2.0
"""Between two looks at disks that refuse writes: a controller moves thousands of partitions in that time."""
REFUSED_INTERVAL_MS = 10_000


class FullDisks:
    """See the module's text. `ask_controller()` has it ask which replicas of this broker are out of reach."""

    def __init__(
        self,
        files: Files,
        refused_writes: RefusedWrites,
        partitions: Partitions,
        ask_controller: Callable[[], None],
    ) -> None:
        self._files = files
        self._refused_writes = refused_writes
        self._partitions = partitions
        self._ask_controller = ask_controller
        self._refused = asyncio.Event()
        refused_writes.on_refused = self._refused.set

    def start(self, tasks: Tasks) -> None:
        """Begin to look after them."""
        tasks.start("full disks", self._run())
        tasks.every("room on full disks", REFUSED_INTERVAL_MS, self._look_for_room)

    async def _run(self) -> None:
        while True:
            await self._refused.wait()
            self._refused.clear()
            if await self._hand_over():
                self._refused.set()
            await asyncio.sleep(PAUSE_SECONDS)

    async def _hand_over(self) -> bool:
        """Whether this broker still leads what others are to lead."""
        full = await self._without_room(self._refused_writes.directories)
        count = self._partitions.hand_over(full)
        if count:
            logger.warning(
                "disk has no room, others are to lead what is led on it",
                directories=sorted(full),
                partitions=count,
            )
            self._ask_controller()
        return count > 0

    async def _look_for_room(self) -> None:
        """Where there is some again no write is refused, and the controller is to send what this broker could not take."""
        refusing = {*self._refused_writes.directories}
        full = await self._without_room(refusing | self._partitions.handed_over_in())
        self._refused_writes.directories -= refusing - full
        if self._partitions.ask_again(full):
            self._ask_controller()

    async def _without_room(self, directories: Collection[str]) -> set[str]:
        """Those of them whose disks have none."""
        return {
            d for d in sorted(directories) if not await asyncio.to_thread(self._files.has_room, d, ROOM_SIZE)
        }
