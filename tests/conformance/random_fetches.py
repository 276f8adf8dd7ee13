"""Random fetches of two connections, and what happens to the partitions between them and while they wait.

A script is data. The generator knows what each step leaves behind, so that
a fetch waits either for what will certainly end it, or only briefly. What is left out is a listed deviation
(docs/compatibility.md), or would be decided by a clock: a partition that comes to be while somebody waits for it, and
records that are deleted below where somebody waits to read. No fetch session outlives a topic that it names by its id.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from random_steps import Name, SessionEpoch, SessionId, Step, TopicId
from sessions import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    FETCH,
    INCREMENTAL_ALTER_CONFIGS,
    PRODUCE,
    Message,
    batch,
)

DELETE_RECORDS, TOPIC = 21, 2
LONG_WAIT_MS = 5_000
SOON_MS = 300
SIZE_MAX = 1 << 20
ENOUGH_BYTES = 400
TOPIC_ID_VERSION, ZSTD_VERSION, SESSION_VERSION = 13, 10, 7
CONFIGS = {
    "compression.type": ("producer", "uncompressed", "zstd"),
    "message.downconversion.enable": ("true", "false"),
    "retention.ms": ("-1", "9000000000000"),
}


class Fetching(NamedTuple):
    """A Fetch of one connection, what happens while it waits, and whether the client stays for the answer."""

    connection: int
    fetch: Step
    meanwhile: tuple[Step, ...] = ()
    stays: bool = True
    deleted: str | None = None
    """The topic that goes meanwhile: what is told of it depends on the moment."""


class AskedPlace(NamedTuple):
    """A partition as a request names it: `birth` tells the topics of one name apart, where they go by their ids."""

    topic: str
    birth: int
    partition: int


class Log:
    """What a partition holds: the offsets after its batches, and their sizes."""

    def __init__(self) -> None:
        self.start = self.end = 0
        self.batches: list[tuple[int, int]] = []

    def available(self, offset: int) -> int:
        return sum(size for end, size in self.batches if end > offset)


class Asker:
    """How a client asks for the time being."""

    def __init__(self) -> None:
        self.version = 17
        self.isolation = 0
        self.wants_session = False
        self.session: dict[AskedPlace, Message] = {}
        self.places: list[tuple[str, int]] = []
        self.offsets: dict[tuple[str, int], int] = {}
        self.common: Message = {}


class Generator:
    """Draws the steps and keeps what they leave behind."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._packs = rng.random() < 0.2
        self._names = [f"f{number}" for number in range(rng.choice((1, 2, 3)))]
        self._births = dict.fromkeys(self._names, 0)
        self._logs: dict[tuple[str, int], Log] = {}
        self._connections = [Asker(), Asker()]

    def opening(self) -> list[Step | Fetching]:
        steps: list[Step | Fetching] = [self._create(name) for name in self._names]
        for connection in self._connections:
            self._turn_to(connection)
        return steps

    def turn(self) -> list[Step | Fetching]:
        return [self._change() if self._chance(0.3) else self._fetch()]

    def closing(self) -> list[Step | Fetching]:
        return []

    def _chance(self, probability: float) -> bool:
        return self._rng.random() < probability

    def _one(self, *values: Any) -> Any:
        return self._rng.choice(values)

    # What happens to partitions

    def _change(self) -> Step:
        gone = [name for name in self._names if not self._partitions_of(name)]
        if gone and self._chance(0.6):
            return self._create(self._one(*gone))
        if not self._logs or self._chance(0.05):
            return self._delete(self._one(*self._names))
        place = self._one(*self._logs)
        draw = self._rng.choices(
            (self._produce, self._delete_records, self._create_partitions, self._configure), (10, 4, 2, 2)
        )[0]
        return draw(place)

    def _partitions_of(self, name: str) -> list[int]:
        return [partition for topic, partition in self._logs if topic == name]

    def _create(self, name: str) -> Step:
        self._births[name] += 1
        count = self._one(1, 2, 4)
        self._logs |= {(name, partition): Log() for partition in range(count)}
        topic = {"name": Name(name), "num_partitions": count, "replication_factor": 1}
        return Step(CREATE_TOPICS, 5, {"topics": [topic], "timeout_ms": 10_000})

    def _delete(self, name: str) -> Step:
        for partition in self._partitions_of(name):
            del self._logs[name, partition]
        return Step(DELETE_TOPICS, 4, {"topic_names": [Name(name)], "timeout_ms": 10_000})

    def _create_partitions(self, place: tuple[str, int]) -> Step:
        count = len(self._partitions_of(place[0])) + 1
        self._logs[place[0], count - 1] = Log()
        topic = {"name": Name(place[0]), "count": count, "assignments": None}
        return Step(CREATE_PARTITIONS, 1, {"topics": [topic], "timeout_ms": 10_000})

    def _configure(self, place: tuple[str, int]) -> Step:
        name = self._one(*CONFIGS)
        value = self._one(*CONFIGS[name][: None if self._packs else 2])
        change = {"name": name, "value": value, "config_operation": 0}
        resource = {"resource_type": TOPIC, "resource_name": Name(place[0]), "configs": [change]}
        return Step(INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})

    def _delete_records(self, place: tuple[str, int]) -> Step:
        log = self._logs[place]
        log.start = self._rng.randint(log.start, log.end)
        partition = {"partition_index": place[1], "offset": log.start}
        topic = {"name": Name(place[0]), "partitions": [partition]}
        return Step(DELETE_RECORDS, 2, {"topics": [topic], "timeout_ms": 5000})

    def _produce(self, *places: tuple[str, int], size: int | None = None) -> Step:
        """A batch of `size` bytes of values, which nothing packs, to each place."""
        topics: dict[str, list[Message]] = {}
        for place in dict.fromkeys(places):
            count = self._one(1, 1, 2, 3)
            value_size = self._one(1, 10, 100, ENOUGH_BYTES) if size is None else size
            records = bytes(batch(*(self._value(value_size) for _ in range(count))))
            log = self._logs[place]
            log.end += count
            log.batches.append((log.end, len(records)))
            topics.setdefault(place[0], []).append({"index": place[1], "records": records})
        data = [{"name": Name(name), "partition_data": each} for name, each in topics.items()]
        return Step(PRODUCE, 7, {"acks": self._one(1, -1), "timeout_ms": 5000, "topic_data": data})

    def _value(self, size: int) -> bytes:
        return self._rng.randbytes(size) if self._packs else b"v" * size

    # What a connection asks for

    def _turn_to(self, connection: Asker) -> None:
        """From now on it asks in another way."""
        connection.version = self._one(*range(4, 18), 11, 17, 17, 3)
        connection.isolation = self._one(0, 0, 1)
        connection.wants_session = connection.version >= SESSION_VERSION and self._chance(0.5)
        connection.session = {}
        connection.common = {
            "current_leader_epoch": self._one(-1, -1, 0),
            "last_fetched_epoch": self._one(-1, -1, 0),
            "log_start_offset": -1,
        }
        self._choose_places(connection)

    def _choose_places(self, connection: Asker) -> None:
        there = list(self._logs)
        connection.places = self._rng.sample(there, self._rng.randint(min(1, len(there)), len(there)))
        if self._chance(0.15):
            connection.places.append((self._one(*self._names, "nowhere"), self._one(0, 9)))
        connection.places = list(dict.fromkeys(connection.places))

    def _is_exact(self, connection: Asker) -> bool:
        """Whether sizes must not decide what is answered: packed and converted ones differ."""
        return self._packs or connection.version < 4

    def _wish(self, connection: Asker, place: tuple[str, int]) -> Message:
        log = self._logs.get(place)
        offset = 0
        if log is not None:
            drawn = self._rng.random()
            offset = log.end
            if drawn < 0.25:
                # What came meanwhile is not known to it.
                offset = connection.offsets.get(place, log.end)
            elif drawn < 0.32:
                offset = self._rng.randint(0, log.end)
            elif drawn < 0.34:
                offset = self._one(log.end + 1, log.start - 1, 0)
            connection.offsets[place] = offset
        is_cut = not self._is_exact(connection) and self._chance(0.04)
        size = self._one(1, 150) if is_cut else SIZE_MAX
        return {
            **connection.common,
            "partition": place[1],
            "fetch_offset": offset,
            "partition_max_bytes": size,
        }

    def _fetch(self) -> Fetching:
        number = self._rng.choices((0, 1), (80, 20))[0]
        connection = self._connections[number]
        if self._chance(0.08):
            self._turn_to(connection)
        elif self._chance(0.12):
            self._choose_places(connection)
        places = {
            self._place(connection, place): self._wish(connection, place) for place in connection.places
        }
        message, effective = self._asked(connection, places)
        # Of a partition that stands twice Kafka reads one.
        is_exact = self._is_exact(connection) or len(message["topics"]) > len({each.topic for each in places})
        message |= {
            "replica_id": -1,
            "min_bytes": self._one(1, 1, 1, 0, ENOUGH_BYTES),
            "max_bytes": SIZE_MAX if is_exact else self._one(*[SIZE_MAX] * 9, 1, 500),
            "isolation_level": connection.isolation,
            "max_wait_ms": self._one(0, 0, 5, SOON_MS),
        }
        if any(wish["partition_max_bytes"] < SIZE_MAX for wish in effective.values()):
            message["min_bytes"] = min(message["min_bytes"], 1)
        step = Step(FETCH, connection.version, message)
        if not self._waits(message, effective):
            return Fetching(number, step)
        return self._while_it_waits(Fetching(number, step), effective)

    def _place(self, connection: Asker, place: tuple[str, int]) -> AskedPlace:
        is_by_id = connection.version >= TOPIC_ID_VERSION
        return AskedPlace(place[0], self._births.get(place[0], 0) if is_by_id else 0, place[1])

    def _asked(
        self, connection: Asker, places: dict[AskedPlace, Message]
    ) -> tuple[Message, dict[AskedPlace, Message]]:
        """(what a request says of partitions and session, what it comes to; nothing when it is refused)."""
        whole = {"topics": self._topics(connection, places)}
        if not connection.wants_session:
            if places and connection.version >= 4 and self._chance(0.04):
                whole["topics"] *= 2
            return {**whole, "session_id": 0, "session_epoch": -1}, places
        if any(place.birth not in (0, self._births.get(place.topic, 0)) for place in connection.session):
            connection.session = {}
        if not connection.session:
            connection.session = dict(places)
            return {**whole, "session_id": SessionId(0), "session_epoch": 0}, places
        drawn = self._rng.random()
        if drawn < 0.04:
            wrong = self._one((1, 0), (0, 1), (0, 5))
            return {**whole, "session_id": SessionId(wrong[0]), "session_epoch": SessionEpoch(wrong[1])}, {}
        if drawn < 0.09:
            connection.session = {}
            return {**whole, "session_id": SessionId(0), "session_epoch": -1}, places
        session = connection.session
        changed = {place: wish for place, wish in places.items() if session.get(place) != wish}
        named = places if self._chance(0.1) else changed
        # Only by its name, or its id of today, can a partition be forgotten.
        left = [p for p in session if p not in places and p == self._place(connection, (p[0], p[2]))]
        forgotten = left if self._chance(0.6) else []
        connection.session = {p: w for p, w in (session | named).items() if p not in forgotten}
        message = {
            "topics": self._topics(connection, named),
            "forgotten_topics_data": [
                {**self._key(connection, place), "partitions": [place.partition]} for place in forgotten
            ],
            "session_id": SessionId(0),
            "session_epoch": SessionEpoch(0),
        }
        return message, dict(connection.session)

    def _topics(self, connection: Asker, places: dict[AskedPlace, Message]) -> list[Message]:
        by_name: dict[str, list[AskedPlace]] = {}
        for place in places:
            by_name.setdefault(place.topic, []).append(place)
        return [
            {**self._key(connection, each[0]), "partitions": [places[place] for place in each]}
            for each in by_name.values()
        ]

    def _key(self, connection: Asker, place: AskedPlace) -> Message:
        if connection.version >= TOPIC_ID_VERSION:
            return {"topic_id": TopicId(place.topic)}
        return {"topic": Name(place.topic)}

    # What a fetch waits for

    def _log(self, place: AskedPlace) -> Log | None:
        is_there = place.birth in (0, self._births.get(place.topic, 0))
        return self._logs.get((place.topic, place.partition)) if is_there else None

    def _waits(self, message: Message, effective: dict[AskedPlace, Message]) -> bool:
        found = [
            (log, wish["fetch_offset"]) for place, wish in effective.items() if (log := self._log(place))
        ]
        is_sound = all(log.start <= offset <= log.end for log, offset in found)
        return bool(found) and is_sound and not self._is_enough(message, effective)

    def _is_enough(self, message: Message, effective: dict[AskedPlace, Message]) -> bool:
        logs = ((self._log(place), wish["fetch_offset"]) for place, wish in effective.items())
        size = sum(log.available(offset) for log, offset in logs if log is not None)
        return bool(size >= min(message["min_bytes"], message["max_bytes"]))

    def _while_it_waits(self, fetching: Fetching, effective: dict[AskedPlace, Message]) -> Fetching:
        message = fetching.fetch.message
        message["max_wait_ms"] = self._one(1, 20, 60)
        drawn = self._rng.random()
        if drawn < 0.2:
            return fetching
        # Nothing that needs time stands before the end of a short wait.
        is_woken = drawn > 0.4
        asides = [self._aside(fetching, effective, is_quick=not is_woken) for _ in range(self._one(0, 1, 2))]
        meanwhile = tuple(step for step in asides if step is not None)
        if not is_woken:
            message["max_wait_ms"] = SOON_MS
            return fetching._replace(meanwhile=meanwhile[:1])
        message["max_wait_ms"] = LONG_WAIT_MS
        if self._chance(0.05):
            self._connections[fetching.connection].session = {}
            return fetching._replace(meanwhile=meanwhile, stays=False)
        there = [(place.topic, place.partition) for place in effective if self._log(place)]
        if self._chance(0.08):
            deleted = self._one(*there)[0]
            return fetching._replace(meanwhile=(*meanwhile, self._delete(deleted)), deleted=deleted)
        woken_by = self._rng.sample(there, min(len(there), self._one(1, 1, 2)))
        return fetching._replace(meanwhile=(*meanwhile, self._produce(*woken_by, size=ENOUGH_BYTES)))

    def _aside(
        self, fetching: Fetching, effective: dict[AskedPlace, Message], *, is_quick: bool
    ) -> Step | None:
        """Something that does not end the wait."""
        asked = {
            (place.topic, place.partition): wish["fetch_offset"]
            for place, wish in effective.items()
            if self._log(place)
        }
        place = self._one(*self._logs)
        offset, log = asked.get(place), self._logs[place]
        kind = self._rng.choice(
            ("produce", "delete records") if is_quick else ("produce", "delete", "change")
        )
        if kind == "produce":
            if offset is None:
                return self._produce(place)
            # Less than a batch of three small records.
            needed = fetching.fetch.message["min_bytes"] - 100
            has = sum(self._logs[each].available(at) for each, at in asked.items())
            return self._produce(place, size=1) if has < needed else None
        if kind.startswith("delete"):
            return self._delete_records(place) if offset in (None, log.end) else None
        if self._chance(0.5):
            return self._configure(place)
        new = place[0], len(self._partitions_of(place[0]))
        is_awaited = any((each.topic, each.partition) == new for each in effective)
        return None if is_awaited else self._create_partitions(place)
