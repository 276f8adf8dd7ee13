"""Whose messages a topic has where no configuration says it: what is written, read, and refused for it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from headrace.broker.errors import KafkaError
from headrace.broker.wire.batches import Record
from headrace.mirror.aggregate import merged_notes, topics
from headrace.mirror.aggregate.merged_notes import SourceNotes
from headrace.mirror.aggregate.wire_cluster import RELEASE, WireCluster
from headrace.mirror.memory.orders import MERGED, decode_merged, encode_merged, key_of
from headrace.mirror.memory.own_topics import STATES
from headrace.mirror.memory.states import States
from headrace.mirror.source import CONFIG_MAX_AGE_MS, SourceTopic

KEY = key_of("clicks", MERGED)


def topic(name: str, **configs: str) -> SourceTopic:
    known = {"cleanup.policy": "delete", **{key.replace("_", "."): value for key, value in configs.items()}}
    return SourceTopic(name=name, topic_id=UUID(int=1), partitions={0: (1, 0)}, configs=known)


def test_the_last_word_about_a_topic_counts_and_what_names_no_clusters_none() -> None:
    pairs = [
        (KEY, encode_merged({"EAST"})),
        (b"clicks/pause", b"{}"),
        (KEY, b"rubbish"),
        (KEY, encode_merged({"WEST", "EAST"})),
        (KEY, None),
        (None, b"{}"),
    ]
    assert merged_notes.folded(pairs) == {"clicks": {"EAST", "WEST"}}
    states = States()
    states.take(0, Record(0, 0, KEY, encode_merged({"EAST"}), []))
    assert [states.merged_of(name) for name in ("clicks", "others")] == [frozenset({"EAST"}), frozenset()]
    with pytest.raises(ValueError, match="no ids of clusters"):
        decode_merged(b"{}")


def test_a_topic_that_has_this_clusters_messages_is_not_brought_back() -> None:
    known = {
        name: topic(name, **configs)
        for name, configs in {
            "clicks": {},
            "others": {},
            "marked": {"headrace_mirror_merged": "NORTH"},
        }.items()
    }
    found = merged_notes.marked(known, {"clicks": frozenset({"HERE"}), "marked": frozenset({"EAST"})})
    assert found["others"] is known["others"]
    assert found["marked"].configs["headrace.mirror.merged"] == "EAST,NORTH"
    here = cast("Any", SimpleNamespace(cluster_id="HERE", configs_of=lambda name: {}))
    refused = {name for name, one in found.items() if topics.refusal(here, one)}
    assert refused == {"clicks"}


class Client:
    """The source's cluster, of either engine."""

    release: bool = False

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    def __init__(self, *_: object) -> None:
        self.leaders, self.brokers = {(STATES, 0): 1}, [1]

    async def broker_configs(self, broker: int, keys: tuple[str, ...]) -> dict[str, str]:
        return {RELEASE: "1"} if self.release else {}

    async def read(self, name: str) -> dict[int, list[Record]]:
        return {0: [Record(0, 0, KEY, encode_merged({"HERE"}), [])]}


@pytest.mark.parametrize("is_headrace", [False, True])
def test_a_source_of_another_engine_is_asked_once_a_minute(
    is_headrace: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0]
    asked: list[int] = []
    secured = object()
    monkeypatch.setattr(Client, "release", is_headrace)

    def client(bootstrap: object, client_id: str, security: object) -> Client:
        assert security is secured
        asked.append(now[0])
        return Client()

    monkeypatch.setattr(merged_notes, "ClusterClient", client)
    source = SimpleNamespace(
        clock=SimpleNamespace(monotonic_ms=lambda: now[0]),
        addresses={1: ("h", 1)},
        client_id="id",
        config=SimpleNamespace(name="dc", security=secured),
        topics={},
    )
    notes = SourceNotes(cast("Any", source))
    for now[0] in (0, CONFIG_MAX_AGE_MS - 1, CONFIG_MAX_AGE_MS):
        source.topics = {"clicks": topic("clicks")}
        assert asyncio.run(notes.look())
        assert ("headrace.mirror.merged" in source.topics["clicks"].configs) is not is_headrace
    assert asked == [0, CONFIG_MAX_AGE_MS]


def test_a_target_that_keeps_no_marks_has_them_written_beside_those_that_are_there() -> None:
    written: list[tuple[bytes, frozenset[str]]] = []
    cluster = WireCluster([("h", 1)], {}, 7, cast("Any", None), 1000)

    async def publish(name: str, partition: int, key: bytes, value: bytes) -> int:
        assert (name, partition) == (STATES, 0)
        written.append((key, decode_merged(value)))
        return 0

    cluster._client = cast("Any", SimpleNamespace(publish=publish))
    mark = {"headrace.mirror.merged": "EAST"}
    with pytest.raises(KafkaError, match="is not read yet"):
        asyncio.run(cluster.mark("clicks", mark))
    cluster.merged_of = lambda name: frozenset({"WEST"}) if name == "clicks" else frozenset()
    assert cluster.configs_of("clicks") == {"headrace.mirror.merged": "WEST"}
    assert cluster.configs_of("others") == {}
    asyncio.run(cluster.mark("clicks", mark))
    assert written == [(KEY, frozenset({"EAST", "WEST"}))]
