"""Requests about topics: they end in time, within bounds, and when there is a cluster to make them in."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from virtual_time import VirtualLoop

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.sections import Groups, Transactions
from headrace.broker.config.sections import Topics as TopicDefaults
from headrace.broker.coordinators.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from headrace.broker.errors import ErrorCode
from headrace.broker.replication.model import Broker
from headrace.broker.replication.topic_requests import NewTopic, TopicResult
from headrace.broker.server.metadata import MetadataCache
from headrace.broker.server.topics.changes import ZOOKEEPER_MS_MAX, Topics
from headrace.broker.server.topics.checks import PARTITION_COUNT_MAX
from headrace.broker.tasks import Tasks
from headrace.broker.zk.znodes import Znode, ZooKeeperClosedError


async def _anybody(topic: str) -> None:
    """Clients may add partitions to every topic."""


async def never(*_: object, **__: object) -> None:
    await asyncio.Event().wait()


def test_requests_end_in_time_though_zookeeper_does_not_answer() -> None:
    zookeeper: Any = SimpleNamespace(children=never, get=never, ensure=never)
    metadata = MetadataCache()
    metadata._topics["t"] = {0: cast(Any, None)}
    topics = Topics(BrokerConfig(), zookeeper, metadata, Tasks(), _anybody)

    async def script() -> tuple[list[tuple[str | None, ErrorCode]], float]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        new = NewTopic(name="new")
        made = await topics.create([new], timeout_ms=5000, validate_only=False)
        deleted = await topics.delete(["t"], timeout_ms=5000)
        grown = await topics.grow("t", 2, None, timeout_ms=5000, validate_only=False)
        return [(r.name, r.error) for r in (*made, *deleted, grown)], loop.time() - began

    with VirtualLoop() as loop:
        results, seconds = loop.run_until_complete(script())
    assert results == [(name, ErrorCode.REQUEST_TIMED_OUT) for name in ("new", "t", "t")]
    assert seconds == 3 * (5000 + ZOOKEEPER_MS_MAX) / 1000


def test_requests_are_answered_though_the_broker_stops() -> None:
    async def closed(*_: object, **__: object) -> None:
        raise ZooKeeperClosedError("the ZooKeeper session was closed")

    topics = Topics(
        BrokerConfig(),
        cast(Any, SimpleNamespace(children=closed, get=closed)),
        MetadataCache(),
        Tasks(),
        _anybody,
    )
    made = asyncio.run(topics.create([NewTopic(name="new")], timeout_ms=5000, validate_only=False))
    assert [(r.name, r.error) for r in made] == [("new", ErrorCode.REQUEST_TIMED_OUT)]


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        ({"partition_count": PARTITION_COUNT_MAX}, ErrorCode.NONE),
        ({"partition_count": PARTITION_COUNT_MAX + 1}, ErrorCode.INVALID_PARTITIONS),
        ({"assignments": {n: [1] for n in range(PARTITION_COUNT_MAX)}}, ErrorCode.NONE),
        ({"assignments": {n: [1] for n in range(PARTITION_COUNT_MAX + 1)}}, ErrorCode.INVALID_PARTITIONS),
    ],
    ids=["counted", "too many counted", "assigned", "too many assigned"],
)
def test_a_topic_has_a_bounded_number_of_partitions(topic: dict[str, Any], error: ErrorCode) -> None:
    async def nothing(*_: object, **__: object) -> list[str]:
        return []

    metadata = MetadataCache()
    metadata._brokers = {1: Broker(broker_id=1, epoch=1, endpoints=())}
    topics = Topics(BrokerConfig(), cast(Any, SimpleNamespace(children=nothing)), metadata, Tasks(), _anybody)
    new = NewTopic(name="new", **topic)
    (result,) = asyncio.run(topics.create([new], timeout_ms=5000, validate_only=True))
    assert result.error is error


def test_nothing_is_created_on_demand_before_the_controller_has_told_of_the_cluster() -> None:
    """A topic that exists is unknown until then, and there are no brokers to make one on."""
    metadata = MetadataCache()
    started: list[str] = []

    def start(name: str, work: Coroutine[Any, Any, None]) -> None:
        started.append(name)
        work.close()

    tasks, zookeeper = cast(Any, SimpleNamespace(start=start)), cast(Any, None)
    topics = Topics(BrokerConfig(), zookeeper, metadata, tasks, _anybody)
    topics.auto_create(["pageviews"])
    assert started == []
    metadata._brokers[1] = Broker(broker_id=1, epoch=1, endpoints=())
    topics.auto_create(["pageviews"])
    assert started == ["auto-create"]


@pytest.mark.parametrize(
    ("name", "replication_factor", "error"),
    [
        ("page.views", 1, ErrorCode.LEADER_NOT_AVAILABLE),
        ("page.views", 2, ErrorCode.INVALID_REPLICATION_FACTOR),
        ("ad_clicks", 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
    ids=["creatable", "too few brokers", "like another's metric"],
)
def test_why_a_topic_cannot_be_created_on_demand_is_known_at_once(
    name: str, replication_factor: int, error: ErrorCode
) -> None:
    metadata = MetadataCache()
    config = BrokerConfig(topics=TopicDefaults(default_replication_factor=replication_factor))
    topics = Topics(config, cast(Any, None), metadata, Tasks(), _anybody)
    assert topics.error_on_demand(name) is ErrorCode.LEADER_NOT_AVAILABLE
    metadata._brokers = {1: Broker(broker_id=1, epoch=1, endpoints=())}
    metadata._topics["ad.clicks"] = {0: cast(Any, None)}
    assert topics.error_on_demand(name) is error


def test_the_topics_of_coordinators_are_created_on_demand_with_their_own_settings() -> None:
    metadata = MetadataCache()
    metadata._brokers[1] = Broker(broker_id=1, epoch=1, endpoints=())
    works: list[Coroutine[Any, Any, None]] = []
    tasks = cast(Any, SimpleNamespace(start=lambda name, work: works.append(work)))
    config = BrokerConfig(
        groups=Groups(offsets_topic_num_partitions=7, offsets_topic_segment_bytes=77),
        transactions=Transactions(
            transaction_state_log_min_isr=1, transaction_state_log_replication_factor=2
        ),
    )
    topics = Topics(config, cast(Any, None), metadata, tasks, _anybody)
    created: list[NewTopic] = []

    async def create(new: Sequence[NewTopic], **_: Any) -> list[TopicResult]:
        created.extend(new)
        return []

    topics.create = create  # type: ignore[method-assign, assignment]
    topics.auto_create([OFFSETS_TOPIC, TRANSACTIONS_TOPIC, "pageviews"])
    asyncio.run(works.pop())
    offsets, transactions, plain = created
    assert (offsets.partition_count, offsets.replication_factor) == (7, 3)
    assert offsets.configs == {
        "compression.type": "producer",
        "cleanup.policy": "compact",
        "segment.bytes": "77",
    }
    assert (transactions.partition_count, transactions.replication_factor) == (50, 2)
    assert transactions.configs == {
        "compression.type": "uncompressed",
        "cleanup.policy": "compact",
        "min.insync.replicas": "1",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }
    assert plain == NewTopic(name="pageviews")


def test_the_controller_hears_of_a_deletion_before_its_asker_does() -> None:
    """Whatever is asked next must find the topic doomed, however late ZooKeeper's own word comes."""
    story: list[str] = []

    async def ensure(path: str) -> None:
        story.append(path)

    async def nothing(*_: object, **__: object) -> list[str]:
        return []

    metadata = MetadataCache()
    metadata._topics["t"] = {0: cast(Any, None)}
    zookeeper = cast(Any, SimpleNamespace(ensure=ensure, children=nothing))
    topics = Topics(BrokerConfig(), zookeeper, metadata, Tasks(), _anybody)
    topics.on_change(lambda names: story.append(f"written {names}"), lambda: story.append("doomed"))
    (result, unknown) = asyncio.run(topics.delete(["t", "nowhere"], timeout_ms=0))
    assert (result.error, unknown.error) == (
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    assert story == ["/admin/delete_topics/t", "doomed"]
    asyncio.run(topics.delete(["nowhere"], timeout_ms=0))
    assert story[2:] == []


def test_the_controller_hears_of_new_topics_before_their_asker_does() -> None:
    story: list[str] = []

    async def create(path: str, data: bytes) -> None:
        story.append(path)

    async def nothing(*_: object, **__: object) -> list[str]:
        return []

    metadata = MetadataCache()
    metadata._brokers = {1: Broker(broker_id=1, epoch=1, endpoints=())}
    zookeeper = cast(Any, SimpleNamespace(create=create, children=nothing))
    topics = Topics(BrokerConfig(), zookeeper, metadata, Tasks(), _anybody)
    topics.on_change(lambda names: story.append(f"written {names}"), lambda: story.append("doomed"))
    wanted = [NewTopic(name="a"), NewTopic(name="not/legal"), NewTopic(name="b")]
    asyncio.run(topics.create(wanted, timeout_ms=0))
    assert story[-1] == "written ['a', 'b']"
    asyncio.run(topics.create(wanted, timeout_ms=0, validate_only=True))
    assert story.count("written ['a', 'b']") == 1


def test_a_topic_that_is_queued_for_deletion_does_not_grow() -> None:
    """Kafka's controller says so before all else that it has against new partitions."""

    async def get(path: str) -> Znode:
        return Znode(data=b"{}", version=0, ephemeral_owner=0, creation_zxid=1, created_ms=1)

    zookeeper = cast(Any, SimpleNamespace(get=get))
    topics = Topics(BrokerConfig(), zookeeper, MetadataCache(), Tasks(), _anybody)
    result = asyncio.run(topics.grow("t", 1, None, timeout_ms=5000, validate_only=True))
    assert (result.error, result.message) == (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "The topic is queued for deletion.",
    )
