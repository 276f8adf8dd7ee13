"""The registry as one object on the event loop: the machine, its topics, and the writer between them.

The writer decides what is appended and when (see `writer`); this performs it: one append at a time, a clock, and a
future for every request.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka.admin import NewTopic

from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.structured_log import get_logger
from headrace.registry import errors
from headrace.registry.errors import RegistryError
from headrace.registry.machine import Decision, Machine
from headrace.registry.records import RecordError, decode, encode
from headrace.registry.topic import CaughtUp, ReadEvent, ReadMessage, TopicAppender, TopicReader
from headrace.registry.writer import Append, Request, Settled, Writer

logger = get_logger(__name__)

TICK_SECONDS: Final = 0.25
COMPACTION_LAG_MS: Final = 24 * 3600 * 1000
"""So long a record stays beside one of the same key, also one that came after its writer's turn and does not count."""


class Registry:
    """Owns the machine; all methods but the readers' delivery run on the event loop."""

    def __init__(
        self, *, bootstrap: Bootstrap, topic: str, replication_factor: int, replay_topics: tuple[str, ...]
    ) -> None:
        self._prefixes = {topic: "", **{name: name.removesuffix(topic) for name in replay_topics}}
        self.machine = Machine(prefix for prefix in self._prefixes.values() if prefix)
        self._writer = Writer(self.machine, uuid.uuid4().hex)
        self._topic = topic
        self._loop = asyncio.get_running_loop()
        self._appender = TopicAppender(bootstrap, topic)
        new_topic = NewTopic(
            topic,
            num_partitions=1,
            replication_factor=replication_factor,
            config={"cleanup.policy": "compact", "min.compaction.lag.ms": str(COMPACTION_LAG_MS)},
        )
        self._readers = [TopicReader(bootstrap, topic, self._hand_over, create=new_topic)]
        self._readers += [
            TopicReader(bootstrap, name, self._hand_over, create=None) for name in replay_topics
        ]
        self._answers: dict[Request, asyncio.Future[Any]] = {}
        self._to_append: asyncio.Queue[Append] = asyncio.Queue(maxsize=1)
        self.ready = asyncio.Event()
        self.passed_over = 0
        """Records of the topics that were not applied."""

    async def run(self) -> None:
        """Read the topics and write what is asked for, until cancelled."""
        for reader in self._readers:
            reader.start()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._append_all())
                tasks.create_task(self._tick())
        finally:
            await asyncio.gather(*(asyncio.to_thread(reader.stop) for reader in self._readers))

    def read(self) -> Machine:
        """Return the machine for a read; raises RegistryError until the topic has been replayed."""
        if not self.ready.is_set():
            raise errors.not_ready(f"topic {self._topic} has not been read yet, is a broker up?")
        return self.machine

    async def write(self, decide: Callable[[Machine], Decision]) -> Any:
        """Decide in a turn of this process, append, wait until it is applied; return the decision's answer."""
        self.read()
        request = self._writer.submit(decide, _now_ms())
        if isinstance(request, Settled):
            return _outcome(request)
        answer = self._answers[request] = self._loop.create_future()
        self._step()
        try:
            return _outcome(await answer)
        finally:
            self._answers.pop(request, None)

    def _step(self) -> None:
        """Let the writer go on, unless the topic has not been replayed."""
        if not self.ready.is_set():
            return
        settled, append = self._writer.step(_now_ms())
        self._tell(settled)
        if append is not None:
            self._to_append.put_nowait(append)

    def _tell(self, settled: list[Settled]) -> None:
        for outcome in settled:
            answer = self._answers.pop(outcome.request, None)
            if answer is not None and not answer.done():
                answer.set_result(outcome)

    async def _append_all(self) -> None:
        while True:
            append = await self._to_append.get()
            error: RegistryError | None = None
            try:
                await self._appender.append([encode(record) for record in append.records], append.turn)
            except RegistryError as failure:
                error = failure
            self._tell(self._writer.appended(error, _now_ms()))
            self._step()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._step()

    def _hand_over(self, events: list[ReadEvent]) -> None:
        """Called on a reader's thread; waits for the loop, so that a reader is never far ahead of it."""
        asyncio.run_coroutine_threadsafe(self._apply_all(events), self._loop).result()

    async def _apply_all(self, events: list[ReadEvent]) -> None:
        for event in events:
            match event:
                case ReadMessage():
                    self._apply(event)
                case CaughtUp(topic=self._topic) if not self.ready.is_set():
                    logger.info("topic read", topic=event.topic, subjects=len(self.machine.subjects()))
                    self.ready.set()
                case CaughtUp():
                    pass
        self._step()

    def _apply(self, message: ReadMessage) -> None:
        finding: str | None = None
        try:
            record = decode(message.key, message.value)
        except RecordError as error:
            record, finding = None, str(error)
        if record is not None and message.topic == self._topic:
            finding = self._writer.read(record, message.turn)
        elif record is not None:
            finding = self.machine.apply(record, self._prefixes[message.topic], message.turn)
        if finding:
            self.passed_over += 1
            logger.warning("record passed over", topic=message.topic, offset=message.offset, reason=finding)


def _outcome(settled: Settled) -> Any:
    if settled.error is not None:
        raise settled.error
    return settled.answer


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
