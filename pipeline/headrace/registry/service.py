"""The registry as one object on the event loop: the machine, its topic, and the wait between them.

Writes go decide → append → wait until read back (and so applied) → answer, one at a time. Whatever else
appends to the topic (another registry process, a restored backup) is applied in the topic's order all the
same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from headrace.registry import errors
from headrace.registry.machine import Decision, Machine
from headrace.registry.records import RecordError, decode, encode
from headrace.registry.topic import CaughtUp, ReadEvent, ReadMessage, TopicAppender, TopicReader

_log = logging.getLogger("headrace.registry")

READ_BACK_SECONDS_MAX: Final = 10.0
WRITES_WAITING_MAX: Final = 1000


class Registry:
    """Owns the machine; all methods but the readers' delivery run on the event loop."""

    def __init__(
        self, *, bootstrap: str, topic: str, replication_factor: int, replay_topics: tuple[str, ...]
    ) -> None:
        self.machine = Machine()
        self._topic = topic
        self._loop = asyncio.get_running_loop()
        self._appender = TopicAppender(bootstrap, topic)
        new_topic = NewTopic(
            topic,
            num_partitions=1,
            replication_factor=replication_factor,
            config={"cleanup.policy": "compact"},
        )
        self._readers = [TopicReader(bootstrap, topic, self._hand_over, create=new_topic)]
        self._readers += [
            TopicReader(bootstrap, name, self._hand_over, create=None) for name in replay_topics
        ]
        self._prefixes = {name: name.removesuffix(topic) for name in replay_topics}
        self._applied_offset = -1
        self._waiter: tuple[int, asyncio.Future[None]] | None = None
        self._writing = asyncio.Lock()
        self._writes_waiting = 0
        self.ready = asyncio.Event()

    def start(self) -> None:
        for reader in self._readers:
            reader.start()

    async def stop(self) -> None:
        await asyncio.gather(*(asyncio.to_thread(reader.stop) for reader in self._readers))

    def read(self) -> Machine:
        """Return the machine for a read; raises RegistryError until the topic has been replayed."""
        if not self.ready.is_set():
            raise errors.not_ready(f"topic {self._topic} has not been read yet, is a broker up?")
        return self.machine

    async def write(self, decide: Callable[[Machine], Decision]) -> Any:
        """Decide on the newest state, append, wait until it is applied; return the decision's answer."""
        if self._writes_waiting >= WRITES_WAITING_MAX:
            raise errors.not_ready(f"{WRITES_WAITING_MAX} writes are waiting")
        self._writes_waiting += 1
        try:
            async with self._writing:
                decision = decide(self.read())
                if decision.records:
                    offset = await self._appender.append([encode(record) for record in decision.records])
                    await self._wait_applied(offset)
                return decision.answer
        finally:
            self._writes_waiting -= 1

    async def _wait_applied(self, offset: int) -> None:
        if self._applied_offset >= offset:
            return
        applied = self._loop.create_future()
        self._waiter = (offset, applied)
        try:
            async with asyncio.timeout(READ_BACK_SECONDS_MAX):
                await applied
        except TimeoutError:
            raise errors.store_timed_out("it was appended but not read back yet") from None
        finally:
            self._waiter = None

    def _hand_over(self, events: list[ReadEvent]) -> None:
        """Called on a reader's thread; waits for the loop, so that a reader is never far ahead of it."""
        asyncio.run_coroutine_threadsafe(self._apply_all(events), self._loop).result()

    async def _apply_all(self, events: list[ReadEvent]) -> None:
        for event in events:
            match event:
                case ReadMessage():
                    self._apply(event)
                case CaughtUp(topic=self._topic) if not self.ready.is_set():
                    _log.info("topic %s is read, %d subjects", event.topic, len(self.machine.subjects()))
                    self.ready.set()
                case CaughtUp():
                    pass
        if self._waiter is not None and self._applied_offset >= self._waiter[0]:
            offset_applied, self._waiter = self._waiter[1], None
            # One that timed out in this very turn of the loop is done already.
            if not offset_applied.done():
                offset_applied.set_result(None)

    def _apply(self, message: ReadMessage) -> None:
        try:
            record = decode(message.key, message.value)
            finding = record and self.machine.apply(record, self._prefixes.get(message.topic, ""))
        except RecordError as error:
            finding = str(error)
        if finding:
            _log.warning("topic %s offset %d: %s", message.topic, message.offset, finding)
        if message.topic == self._topic:
            self._applied_offset = message.offset
