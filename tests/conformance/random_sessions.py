"""The rules of random client sessions: a list of requests, the same for whoever is asked.

A session is data, so that it can be shrunk: what only a broker knows (topic ids, fetch sessions) stands in it as a place
holder, and topic names get the prefix of the run when they are asked for. What is left out is a listed deviation
(docs/compatibility.md), or would be decided by a clock.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any
from uuid import UUID

from random_configs import BAD_VALUES, VALUES
from random_records import PRODUCERS, Sequences, Style, random_records, stops_apache_kafka
from random_steps import Name, SessionEpoch, SessionId, Step, TopicId
from sessions import (
    API_VERSIONS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    FETCH,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    TIMESTAMP_MS,
    Message,
)

from headrace.broker.wire.api import APIS

DELETE_RECORDS, ALTER_CONFIGS, DESCRIBE_LOG_DIRS, DESCRIBE_PRODUCERS = 21, 33, 35, 61
TOPIC = 2
BAD_NAMES = ("not/legal", "", "no such", "x" * 250)

MAX_INT = (1 << 31) - 1


class Generator:
    """Draws the steps; knows only what it asked for, not what was answered. `now_ms` is all that differs between two days."""

    def __init__(self, rng: Random, now_ms: int) -> None:
        self._rng = rng
        codecs = rng.choice(((0,), (0,), (0, 0, 0, 1, 2, 3, 4), (0, 1, 2, 3, 4)))
        self._style = Style(
            codecs=codecs,
            append_time=rng.random() < 0.25,
            has_producers=rng.random() < 0.5,
            now_ms=now_ms,
        )
        self._sequences = Sequences()
        self._names = [f"t{number}" for number in range(rng.choice((1, 2, 4)))]

    def opening(self) -> list[Any]:
        return [
            self._step(CREATE_TOPICS, {"topics": [self._new_topic(name)], **self._unhurried()})
            for name in self._names
        ]

    def turn(self) -> list[Any]:
        draws, weights = zip(*self._actions(), strict=True)
        drawn = self._rng.choices(draws, weights)[0]()
        return drawn if isinstance(drawn, list) else [drawn]

    def closing(self) -> list[Any]:
        return []

    def _actions(self) -> list[tuple[Callable[[], Step], int]]:
        return [
            (self._produce, 40),
            (self._fetch, 24),
            (self._list_offsets, 8),
            (self._epoch_ends, 4),
            (self._delete_records, 5),
            (self._create_topics, 4),
            (self._create_partitions, 3),
            (self._delete_topics, 2),
            (self._alter_configs, 3),
            (self._incremental_alter_configs, 5),
            (self._describe_configs, 5),
            (self._describe_log_dirs, 0 if self._style.packs else 3),
            (self._metadata, 4),
            (self._describe_producers, 4),
            (self._init_producer_id, 2),
            (self._describe_cluster, 1),
            (self._api_versions, 1),
        ]

    # What all of them draw from

    def _step(self, key: int, message: Message, version: int | None = None) -> Step:
        if version is None:
            version = self._version(key)
        return Step(key, version, message, tagged=self._chance(0.05) and APIS[key].is_flexible(version))

    def _version(self, key: int) -> int:
        low, high = APIS[key].versions
        return high if self._chance(0.3) else self._rng.randint(low, high)

    def _chance(self, probability: float) -> bool:
        return self._rng.random() < probability

    def _one(self, *values: Any) -> Any:
        return self._rng.choice(values)

    def _several(self, draw: Callable[[], Any], most: int = 3) -> list[Any]:
        """Mostly one; sometimes the same twice, sometimes none."""
        count = self._rng.choices(range(most + 1), (1, *[30] * 1, *[6] * (most - 1)))[0]
        found = [draw() for _ in range(count)]
        return found + found[:1] if self._chance(0.04) else found

    def _distinct(self, key: str, draw: Callable[[], Message], most: int = 3) -> list[Message]:
        """For requests in which a partition stands once."""
        return list({each[key]: each for each in self._several(draw, most)}.values())

    def _name(self) -> Any:
        if self._chance(0.94):
            return Name(self._rng.choice(self._names))
        return self._one(Name("nowhere"), *BAD_NAMES)

    def _partition(self) -> int:
        return int(self._rng.choices((0, 1, 2, 9, -1), (60, 20, 10, 3, 1))[0])

    def _epoch(self) -> int:
        return int(self._rng.choices((-1, 0, 1, -2, MAX_INT), (60, 20, 3, 2, 1))[0])

    def _offset(self) -> int:
        return int(self._rng.choices((0, self._rng.randrange(40), -1, -5, 1000), (40, 50, 3, 2, 3))[0])

    def _unhurried(self) -> Message:
        return {"timeout_ms": 10_000, "validate_only": False}

    def _timeouts(self) -> Message:
        hurried = self._chance(0.05)
        return {
            "timeout_ms": self._one(0, -1) if hurried else 10_000,
            "validate_only": self._chance(0.15),
        }

    # Topics and their configuration

    def _value(self, key: str) -> str | None:
        if self._chance(0.1):
            bad: str | None = self._one(None, *BAD_VALUES)
            return bad
        values = VALUES[key]
        if key == "message.timestamp.type" and not self._style.append_time:
            values = values[:1]
        if key == "compression.type" and not self._style.packs:
            values = values[:2]
        if key == "segment.bytes" and (self._style.packs or self._style.has_producers):
            values = values[2:]
        if key == "cleanup.policy" and not self._style.has_producers:
            # What the cleaner does to segments that are no longer active is a matter of when.
            values = values[:1]
        if key == "segment.ms" and self._style.has_producers:
            values = values[1:]
        return self._rng.choice(values)

    def _key(self) -> str:
        return (
            self._one("no.such.key", "", "segment.BYTES")
            if self._chance(0.03)
            else self._rng.choice(tuple(VALUES))
        )

    def _config(self) -> Message:
        key = self._key()
        if key not in VALUES:
            return {"name": key, "value": "1"}
        return {"name": key, "value": self._value(key)}

    def _configs(self, most: int = 4) -> list[Message]:
        found = [self._config() for _ in range(self._rng.randrange(most + 1))]
        return found + found[:1] if self._chance(0.03) else found

    def _new_topic(self, name: Any, *, sound: bool = True) -> Message:
        configs = self._configs(3)
        if sound:
            configs = [c for c in configs if c["name"] in VALUES and c["value"] in VALUES[c["name"]]]
        return {
            "name": Name(name) if isinstance(name, str) and name in self._names else name,
            "num_partitions": self._one(1, 1, 2, 3),
            "replication_factor": 1,
            "configs": configs,
        }

    def _create_topics(self) -> Step:
        def draw() -> Message:
            topic = self._new_topic(self._one(self._name(), Name(f"n{self._rng.randrange(6)}")), sound=False)
            kind = self._rng.random()
            if kind < 0.15:
                topic |= {
                    "num_partitions": self._one(0, -1, -2),
                    "replication_factor": self._one(0, -1, 1, 2),
                }
            elif kind < 0.3:
                topic |= {"num_partitions": -1, "replication_factor": -1, "assignments": self._assignments()}
            return topic

        return self._step(CREATE_TOPICS, {"topics": self._several(draw), **self._timeouts()})

    def _assignments(self) -> list[Message]:
        lists: list[list[int]] = self._one([[1]], [[1], [1]], [[1, 1]], [[1], []])
        first = self._one(0, 0, 0, 1)
        return [{"partition_index": n + first, "broker_ids": ids} for n, ids in enumerate(lists)]

    def _create_partitions(self) -> Step:
        def draw() -> Message:
            count = self._one(1, 2, 3, 4, 0, -1)
            assignments = self._one(None, None, None, [], [[1]], [[1], [1]], [[1, 1]])
            listed = assignments and [{"broker_ids": ids} for ids in assignments]
            return {"name": self._name() or Name("nowhere"), "count": count, "assignments": listed}

        return self._step(CREATE_PARTITIONS, {"topics": self._several(draw, 2), **self._timeouts()})

    def _delete_topics(self) -> Step:
        version = self._version(DELETE_TOPICS)
        name = Name(self._one(*self._names, *(f"n{n}" for n in range(6)), "nowhere"))
        timeout_ms = {"timeout_ms": self._one(10_000, 10_000, 10_000, 0)}
        if version < 6:
            names = [name, name] if self._chance(0.1) else [name]
            return self._step(DELETE_TOPICS, {"topic_names": names, **timeout_ms}, version)
        nothing = UUID(int=0)
        topic = self._one(
            {"name": name, "topic_id": nothing},
            {"name": None, "topic_id": TopicId(name.plain)},
            {"name": name, "topic_id": TopicId(name.plain)}
            if self._chance(0.3)
            else {"name": name, "topic_id": nothing},
        )
        return self._step(DELETE_TOPICS, {"topics": [topic], **timeout_ms}, version)

    def _resource(self) -> Message:
        kind = TOPIC if self._chance(0.97) else self._one(0, 1, 3, 99)
        return {"resource_type": kind, "resource_name": self._name()}

    def _alter_configs(self) -> Step:
        resource = {**self._resource(), "configs": self._configs()}
        return self._step(ALTER_CONFIGS, {"resources": [resource], "validate_only": self._chance(0.2)})

    def _incremental_alter_configs(self) -> Step:
        def draw() -> Message:
            configs = [
                {**config, "config_operation": self._operation(config["name"])} for config in self._configs(3)
            ]
            return {**self._resource(), "configs": configs}

        return self._step(
            INCREMENTAL_ALTER_CONFIGS,
            {"resources": self._several(draw, 2), "validate_only": self._chance(0.2)},
        )

    def _operation(self, key: str) -> int:
        weights = (4, 2, 3, 3) if key == "cleanup.policy" else (20, 8, 1, 1)
        return self._rng.choices((0, 1, 2, 3), weights)[0]

    def _describe_configs(self) -> Step:
        def draw() -> Message:
            keys = self._one(None, [], [self._key() for _ in range(3)], [self._key()] * 2)
            return {**self._resource(), "configuration_keys": keys}

        message = {
            "resources": self._several(draw),
            "include_synonyms": self._chance(0.5),
            "include_documentation": self._chance(0.2),
        }
        return self._step(DESCRIBE_CONFIGS, message)

    # Records

    def _produce(self) -> Step:
        version = self._version(PRODUCE)

        def draw_topic() -> Message:
            name = self._name()
            return {
                "name": name,
                "partition_data": self._distinct("index", lambda: self._partition_data(name, version)),
            }

        message = {
            "acks": self._rng.choices((-1, 1, 0), (50, 50, 4))[0],
            "timeout_ms": self._rng.choices((5000, 0, -1, MAX_INT), (90, 3, 3, 3))[0],
            "topic_data": self._distinct("name", draw_topic, 2),
        }
        return self._step(PRODUCE, message, version)

    def _partition_data(self, name: Any, version: int) -> Message:
        index = self._partition()
        records = random_records(self._rng, self._style, self._sequences, (name, index), version)
        while stops_apache_kafka(records):
            records = random_records(self._rng, self._style, self._sequences, (name, index), version)
        return {"index": index, "records": records}

    def _fetch(self) -> Step:
        version = self._version(FETCH)
        if self._style.packs:
            version = max(4, version)
        exact = self._style.packs or version <= 3 or self._style.append_time
        message = {
            "replica_id": -1,
            "max_wait_ms": self._one(0, 0, 0, 5),
            "min_bytes": self._one(0, 1, 1, 100, MAX_INT),
            "max_bytes": 1 << 20 if exact else self._one(1 << 20, 1 << 20, 0, 1, 100, 300, 1000),
            "isolation_level": self._one(0, 0, 1),
            "rack_id": self._one("", "", "rack"),
            **self._fetch_session(),
        }
        key = "topic_id" if version >= 13 else "topic"

        def draw_topic() -> Message:
            partitions = self._distinct("partition", lambda: self._wish(exact=exact))
            return {key: self._fetch_key(key), "partitions": partitions}

        message["topics"] = self._distinct(key, draw_topic)
        if version >= 7 and self._chance(0.15):
            forgotten = [{key: self._fetch_key(key), "partitions": [self._partition() for _ in range(2)]}]
            message["forgotten_topics_data"] = forgotten
        if version >= 7 and message["session_epoch"] != -1 and self._chance(0.4):
            message["topics"] = []
        return self._step(FETCH, message, version)

    def _fetch_key(self, key: str) -> Any:
        if key == "topic":
            return self._name()
        if self._chance(0.03):
            return UUID(int=7)
        return TopicId(self._one(*self._names))

    def _fetch_session(self) -> Message:
        kind = self._rng.random()
        if kind < 0.45:
            return {"session_id": 0, "session_epoch": -1}
        if kind < 0.6:
            return {"session_id": 0, "session_epoch": 0}
        if kind < 0.9:
            return {"session_id": SessionId(0), "session_epoch": SessionEpoch(0)}
        if kind < 0.95:
            return {
                "session_id": SessionId(self._one(0, 0, 1)),
                "session_epoch": SessionEpoch(self._one(1, -1, 5)),
            }
        return {"session_id": SessionId(0), "session_epoch": self._one(-1, 0)}

    def _wish(self, *, exact: bool) -> Message:
        return {
            "partition": self._partition(),
            "current_leader_epoch": self._epoch(),
            "fetch_offset": self._offset(),
            "last_fetched_epoch": self._rng.choices((-1, 0, 1), (40, 3, 1))[0],
            "log_start_offset": self._one(-1, -1, 0),
            "partition_max_bytes": 1 << 20 if exact else self._one(1 << 20, 1 << 20, 0, 1, 100, 300),
        }

    def _list_offsets(self) -> Step:
        def draw_partition() -> Message:
            special = (
                (-1, -2, -4, -5, -6, 0, MAX_INT)
                if self._style.append_time
                else (-1, -2, -3, -4, -5, -6, 0, MAX_INT)
            )
            timestamp = self._one(self._one(*special), TIMESTAMP_MS + self._rng.randrange(300) * 1000)
            return {
                "partition_index": self._partition(),
                "current_leader_epoch": self._epoch(),
                "timestamp": timestamp,
                "max_num_offsets": self._one(1, 5, 0),
            }

        def draw_topic() -> Message:
            return {"name": self._name(), "partitions": self._several(draw_partition)}

        message = {
            "replica_id": -1,
            "isolation_level": self._one(0, 0, 1),
            "topics": self._several(draw_topic, 2),
        }
        return self._step(LIST_OFFSETS, message)

    def _epoch_ends(self) -> Step:
        def draw_partition() -> Message:
            epochs = {"current_leader_epoch": self._epoch(), "leader_epoch": self._epoch()}
            return {"partition": self._partition(), **epochs}

        def draw_topic() -> Message:
            return {"topic": self._name(), "partitions": self._several(draw_partition)}

        message = {"replica_id": self._one(-2, -1, -1), "topics": self._several(draw_topic, 2)}
        return self._step(OFFSET_FOR_LEADER_EPOCH, message)

    def _delete_records(self) -> Step:
        def draw_partition() -> Message:
            return {"partition_index": self._partition(), "offset": self._offset()}

        def draw_topic() -> Message:
            return {"name": self._name(), "partitions": self._several(draw_partition)}

        return self._step(
            DELETE_RECORDS,
            {"topics": self._several(draw_topic, 2), "timeout_ms": self._one(5000, 5000, 0, -1)},
        )

    # What describes

    def _describe_log_dirs(self) -> Step:
        def draw() -> Message:
            return {"topic": self._name(), "partitions": self._several(self._partition)}

        return self._step(DESCRIBE_LOG_DIRS, {"topics": self._one(None, self._several(draw))})

    def _metadata(self) -> Step:
        version = self._version(METADATA)

        def draw() -> Message:
            if version >= 12 and self._chance(0.4):
                return {"name": None, "topic_id": TopicId(self._one(*self._names, "nowhere"))}
            return {"name": self._name(), "topic_id": UUID(int=0)}

        message = {
            "topics": None if version >= 1 and self._chance(0.1) else self._several(draw),
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": self._chance(0.3),
            "include_topic_authorized_operations": self._chance(0.3),
        }
        return self._step(METADATA, message, version)

    def _describe_producers(self) -> Step:
        def draw() -> Message:
            return {"name": self._name(), "partition_indexes": self._several(self._partition)}

        return self._step(DESCRIBE_PRODUCERS, {"topics": self._several(draw)})

    def _init_producer_id(self) -> Step:
        message = {
            "transactional_id": self._one(None, None, None, ""),
            "transaction_timeout_ms": self._one(1000, 0, -1, MAX_INT),
            "producer_id": self._one(-1, -1, PRODUCERS[0], 0),
            "producer_epoch": self._one(-1, -1, 0, 3),
        }
        return self._step(INIT_PRODUCER_ID, message)

    def _describe_cluster(self) -> Step:
        message = {
            "include_cluster_authorized_operations": self._chance(0.5),
            "endpoint_type": self._one(1, 1, 2, 0),
        }
        return self._step(DESCRIBE_CLUSTER, message)

    def _api_versions(self) -> Step:
        message = {
            "client_software_name": self._one("x", "", "a b", "-x"),
            "client_software_version": self._one("1", "", "1.0 b"),
        }
        return self._step(API_VERSIONS, message)
