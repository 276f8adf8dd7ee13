"""The metadata cache: what the controller said last, and only of the topic that there is now."""

from uuid import UUID

from headrace.broker.replication.control_requests import UpdateMetadata
from headrace.broker.server.metadata import MetadataCache

OLD, NEW = UUID(int=1), UUID(int=2)


def tell(cache: MetadataCache, topic_id: UUID, *partitions: int) -> None:
    states = [
        {"partition_index": p, "leader": 1, "leader_epoch": 0, "replicas": [1], "isr": [1]}
        for p in partitions
    ]
    topic = {"topic_name": "t", "topic_id": topic_id, "partition_states": states}
    cache.update(
        UpdateMetadata.of(
            {"controller_id": 1, "controller_epoch": 1, "live_brokers": [], "topic_states": [topic]}
        )
    )


def test_a_topic_made_anew_shows_only_its_own_partitions() -> None:
    cache = MetadataCache()
    tell(cache, OLD, 0, 1, 2)
    tell(cache, NEW, 0)
    assert list(cache.topics("t") or ()) == [0]
    assert (cache.topic_id("t"), cache.topic_name(OLD), cache.topic_name(NEW)) == (NEW, None, "t")


def test_partitions_of_the_same_topic_add_up() -> None:
    cache = MetadataCache()
    tell(cache, OLD, 0)
    tell(cache, OLD, 1)
    assert list(cache.topics("t") or ()) == [0, 1]


def test_a_topic_that_is_forgotten_is_gone_and_watchers_hear_of_it() -> None:
    cache = MetadataCache()
    tell(cache, OLD, 0)
    changes = []
    cache.on_change(lambda: changes.append(cache.version))
    cache.forget("t")
    assert (cache.topics("t"), cache.topic_names(), cache.topic_name(OLD)) == (None, [], None)
    assert len(changes) == 1


def test_a_topic_that_is_there_is_expected_until_the_controller_tells_of_it() -> None:
    cache = MetadataCache()
    tell(cache, UUID(int=1), 0)
    cache.expect(["t", "later"])
    assert [cache.is_expected(topic) for topic in ("t", "later", "nowhere")] == [False, True, False]
    cache.expect(["t"])
    assert not cache.is_expected("later")
    fresh = MetadataCache()
    fresh.expect(["t"])
    tell(fresh, UUID(int=1), 0)
    assert not fresh.is_expected("t")
