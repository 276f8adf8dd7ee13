"""Writing to a topic that brokers share: order, what is sent again, and with how many replicas topics are made."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.broker.errors import ErrorCode, KafkaError, StorageError, error_of
from headrace.broker.wire.batches import decode_records, read_header
from headrace.mirror.memory import shared_topic
from headrace.mirror.memory.shared_topic import BROKERS_WAIT_MS, WRITE_SIZE_MAX, SharedTopic, shared_topics


class Log:
    """The partition's leader: answers each batch with the next of `answers`, or takes it."""

    def __init__(self, answers: Sequence[Exception | None] = ()) -> None:
        self.answers = list(answers)
        self.sent: list[tuple[int, int, list[bytes | None]]] = []
        self.producers = 0
        self.end = 0

    def __call__(self, *_: object) -> Log:
        return self

    def close(self) -> None: ...

    async def new_producer(self) -> tuple[int, int]:
        self.producers += 1
        return self.producers, 0

    async def append(self, batch: bytes) -> int:
        header = read_header(batch)
        keys = [record.key for record in decode_records(batch, 0, header)]
        self.sent.append((header.producer_id, header.base_sequence, keys))
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer
        self.end += len(keys)
        return self.end - len(keys)


def host_of(**parts: Any) -> Any:
    clock = SimpleNamespace(now_ms=lambda: 5, monotonic_ms=lambda: 0)
    metadata = SimpleNamespace(topics=lambda name: {0: None}, brokers={1: None})
    return SimpleNamespace(**{"clock": clock, "metadata": metadata, **parts})


def written(
    monkeypatch: pytest.MonkeyPatch, log: Log, appends: Sequence[Sequence[bytes]], host: Any = None
) -> list[int]:
    """Append these keys, and answer where the last of each lay when all were committed."""
    monkeypatch.setattr(shared_topic, "LeaderLink", log)
    monkeypatch.setattr(shared_topic, "WRITE_PAUSE_SECONDS_MIN", 0.0)
    told: list[int] = []

    async def run() -> None:
        done = asyncio.Event()

        def committed(offset: int) -> None:
            told.append(offset)
            if len(told) == len(appends):
                done.set()

        async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
            topic = SharedTopic(host or host_of(), "headrace.mirror", tasks)
            for keys in appends:
                topic.append([(key, b"x" * 1000) for key in keys], committed)
            await done.wait()
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())
    return told


def test_what_comes_together_is_written_together_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    assert written(monkeypatch, log, [[b"a", b"b"], [b"c"]]) == [1, 2]
    assert log.sent == [(1, 0, [b"a", b"b", b"c"])]


def test_a_batch_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    count = 2 * WRITE_SIZE_MAX // 1000
    assert written(monkeypatch, log, [[b"%d" % number for number in range(count)]]) == [count - 1]
    assert len(log.sent) > 1
    assert [sequence for _, sequence, _ in log.sent][1] == len(log.sent[0][2])


def test_what_got_no_answer_is_sent_again_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log([TimeoutError(), error_of(ErrorCode.NOT_LEADER_OR_FOLLOWER), None])
    assert written(monkeypatch, log, [[b"a"], [b"b"]]) == [0, 1]
    assert log.sent == [(1, 0, [b"a", b"b"])] * 3, "the same sequence numbers: the leader knows it"


def test_a_producer_that_the_leader_does_not_know_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log([None, error_of(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)])
    keys = [[b"a" * 1000 for _ in range(WRITE_SIZE_MAX // 2000 + 1)], [b"z"]]
    written(monkeypatch, log, keys)
    assert [(producer, sequence) for producer, sequence, _ in log.sent] == [
        (1, 0),
        (1, len(log.sent[0][2])),
        (2, 0),
    ]


def test_a_topic_that_was_deleted_ends_the_mirror_which_makes_it_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log([error_of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)])
    gone = SimpleNamespace(topics=lambda name: None)
    with pytest.raises(ExceptionGroup) as failed:
        written(monkeypatch, log, [[b"a"]], host_of(metadata=gone))
    assert isinstance(failed.value.exceptions[0], StorageError)


class Cluster:
    """Brokers that come one by one, each a while after the last; topics are there once they are made."""

    def __init__(self, brokers: Sequence[int], factor: int, refusal: ErrorCode = ErrorCode.NONE) -> None:
        self.come_ms, self.factor, self.refusal = brokers, factor, refusal
        self.now_ms = 0
        self.made: dict[str, Any] = {}

    @property
    def host(self) -> Any:
        brokers = cast("Any", self)

        class Metadata:
            topics = staticmethod(lambda name: {0: None} if name in brokers.made else None)

            @property
            def brokers(self) -> list[int]:
                return [number for number, ms in enumerate(brokers.come_ms) if ms <= brokers.now_ms]

        return SimpleNamespace(
            clock=SimpleNamespace(monotonic_ms=lambda: self.now_ms),
            metadata=Metadata(),
            internal_replication_factor=self.factor,
            leader_address=lambda name, partition: ("h", 1),
            topics=SimpleNamespace(create=self.create),
        )

    async def create(self, topics: Sequence[Any], *, timeout_ms: int) -> list[Any]:
        if self.refusal is ErrorCode.NONE:
            self.made |= {topic.name: topic for topic in topics}
        return [SimpleNamespace(name=t.name, error=self.refusal, message="no") for t in topics]

    def opened(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        async def sleep(seconds: float) -> None:
            self.now_ms += round(seconds * 1000)

        monkeypatch.setattr(asyncio, "sleep", sleep)
        asyncio.run(shared_topics(self.host, {"headrace.mirror": {"cleanup.policy": "compact"}}))
        return self.made["headrace.mirror"]


@pytest.mark.parametrize(
    ("brokers", "factor", "replicas", "in_sync"),
    [
        ((0,), 1, 1, None),
        ((0, 900, 1800), 3, 3, "2"),
        ((0, 900), 2, 2, None),
        ((0, 900), 3, 2, None),
        ((0, 900, BROKERS_WAIT_MS * 2), 3, 2, None),
    ],
)
def test_topics_get_as_many_replicas_as_brokers_allow(
    monkeypatch: pytest.MonkeyPatch, brokers: Sequence[int], factor: int, replicas: int, in_sync: str | None
) -> None:
    topic = Cluster(brokers, factor).opened(monkeypatch)
    assert (topic.partition_count, topic.replication_factor) == (1, replicas)
    assert topic.configs["cleanup.policy"] == "compact"
    assert topic.configs.get("min.insync.replicas") == in_sync


def test_a_topic_that_cannot_be_made_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KafkaError, match=r"headrace[.]mirror cannot be made: no"):
        Cluster((0,), 1, ErrorCode.POLICY_VIOLATION).opened(monkeypatch)
    made = Cluster((0,), 1)
    made.made["headrace.mirror"] = "by another broker"
    assert made.opened(monkeypatch) == "by another broker"
