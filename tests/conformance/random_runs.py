"""Runs a random session against both brokers in lockstep, and finds the first difference.

What may differ beyond the list of `sessions`: packed bytes and what depends on their size (codecs are other programs), and
time stamps of the moment. The segments of all partitions are compared at the end, byte for byte in the same sense.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from kafka_oracle import KafkaBroker
from processes import BrokerProcess, eventually
from random_records import PRODUCERS
from random_steps import Name, SessionEpoch, SessionId, Step, TopicId
from sessions import (
    API_VERSIONS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    FETCH,
    INCREMENTAL_ALTER_CONFIGS,
    METADATA,
    NOT_HAD,
    PRODUCE,
    Message,
    Pair,
    Session,
    _differences,
    batch,
    produce_message,
)

from headrace.broker.handlers.table import HANDLERS
from headrace.broker.legacy.message_sets import inner_messages, iter_messages
from headrace.broker.wire.api import APIS
from headrace.broker.wire.batches import (
    HEADER_SIZE,
    RECORDS_SIZE_MAX,
    BatchHeader,
    decode_records,
    read_header,
)
from headrace.broker.wire.fields import Array, Struct

ALTER_CONFIGS, DESCRIBE_LOG_DIRS = 33, 35
# What a fetch session says of a topic that was deleted: a listed deviation.
GONE = (100, 103)
REQUEST_TIMED_OUT, UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, TOPIC_EXISTS = 7, 3, 5, 36
SIZE_AT, MAGIC_AT, ENTRY_SIZE = 8, 16, 12
MOMENT_MS, DAY_MS = 3_600_000, 86_400_000
OF_MACHINES = ("log_dir", "total_bytes", "usable_bytes")
MOMENTS = ("timestamp", "last_timestamp", "log_append_time_ms")
_runs = itertools.count()
Broker = BrokerProcess | KafkaBroker


def address_of(broker: Broker) -> tuple[str, int]:
    return broker.address if isinstance(broker, KafkaBroker) else broker.addresses[0]


class RandomSession(Session):
    """One broker's side: puts what it knows in the place holders, and waits until what was asked for has come about."""

    files_tries = 20

    def __init__(self, broker: Broker, prefix: str) -> None:
        super().__init__(address_of(broker))
        self._prefix = prefix
        self._topic_ids: dict[str, UUID] = {}
        self._fetch_session = (0, 0)
        self.names: set[str] = set()
        self._is_converted = False
        self._is_probed = False
        self._probe_is_shut = False

    def perform(self, step: Step) -> tuple[str, Any]:
        """(label, comparable answer) of the step."""
        message = fitting(APIS[step.key].request, step.version, self._filled(step.message))
        self._is_converted = step.key == FETCH and step.version <= 3
        data = self.frame(step.key, step.version, message)
        if step.tagged and data[-1] == 0:
            data = _with_tagged_field(data)
        if step.key == PRODUCE and message["acks"] == 0:
            self.send_only(data)
            self.ask(API_VERSIONS, 0, note="after acks=0")
            return self.transcript[-1]
        answer = self.send_frame(data, step.key, step.version)
        if answer:
            self._settle(step, message, answer)
        label, comparable = self.transcript[-1]
        return label, self._own(step, message, comparable)

    def _filled(self, value: Any) -> Any:
        if isinstance(value, Name):
            self.names.add(self._named(value.plain))
            return self._named(value.plain)
        if isinstance(value, TopicId):
            return self._topic_ids.get(self._named(value.plain), uuid5(NAMESPACE_OID, value.plain))
        if isinstance(value, SessionId):
            return self._fetch_session[0] ^ value.off_by
        if isinstance(value, SessionEpoch):
            return max(-1, self._fetch_session[1] + value.off_by)
        if isinstance(value, dict):
            return {name: self._filled(each) for name, each in value.items()}
        return [self._filled(each) for each in value] if isinstance(value, list) else value

    def _named(self, plain: str) -> str:
        return f"{self._prefix}-{plain}"

    # What may differ

    def comparable(self, value: Any, name: str = "") -> Any:
        if name == "records":
            found = comparable_records(bytes(value or b""))
            # Kafka fills up what it announced before it converted.
            return found[:-1] if self._is_converted and found and isinstance(found[-1], str) else found
        if name == "active_producers":
            value = sorted(value, key=lambda producer: producer["producer_id"])
        if name == "producer_id" and value in PRODUCERS:
            return value
        if name in OF_MACHINES:
            return "of this machine"
        if name in MOMENTS and isinstance(value, int) and is_now(value):
            return "now"
        if name == "is_default":
            return "not compared"
        if name == "api_keys":
            value = [k for k in value if k["api_key"] in HANDLERS]
        if name == "configs" and value:
            value = [c for c in value if c["name"] not in NOT_HAD]
        found = super().comparable(value, name)
        if name == "responses":
            found = _merged(found)
        return found

    def _identity(self, value: Any) -> Any:
        """Ids of topics by name, so that both brokers' lists have one order."""
        if isinstance(value, UUID) and value.int:
            known = {topic_id: name for name, topic_id in self._topic_ids.items()}
            return f"id of {known.get(value, 'no known topic')}"
        return super()._identity(value)

    def _own(self, step: Step, message: Message, comparable: Any) -> Any:
        """Without the topics of others, when all were asked for."""
        if step.key == METADATA and not message["topics"] and isinstance(comparable, dict):
            comparable["topics"] = [t for t in comparable["topics"] if t["name"] in self.names]
        if step.key == FETCH and step.version >= 13 and message["session_epoch"] > 0:
            for partition in _partitions(comparable):
                if partition["error_code"] in (*GONE, UNKNOWN_TOPIC):
                    partition |= {"error_code": UNKNOWN_TOPIC, "aborted_transactions": "not compared"}
        if step.key == DESCRIBE_LOG_DIRS and message["topics"] is None and isinstance(comparable, dict):
            for result in comparable["results"]:
                result["topics"] = [t for t in result["topics"] if t["name"] in self.names]
        return comparable

    # Waiting

    def _settle(self, step: Step, message: Message, answer: Message) -> None:
        if step.key == FETCH and step.version >= 7:
            self._note_fetch_session(message, answer)
        if message.get("validate_only"):
            return
        if step.key in (CREATE_TOPICS, CREATE_PARTITIONS):
            wanted = {t["name"]: t for t in message["topics"]}
            for topic in answer["topics" if step.key == CREATE_TOPICS else "results"]:
                if topic["error_code"] in (0, REQUEST_TIMED_OUT):
                    asked = wanted[topic["name"]]
                    self._wait_until_led(topic["name"], asked.get("count", 1))
        for name in _created(step, answer):
            self._wait_until_led(name, 1)
        for name in _deleted(step, answer):
            self._wait_until_gone(name)
        is_change = step.key in (ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS)
        if is_change and any(r["error_code"] == 0 for r in answer["responses"]):
            self._wait_until_configured()

    def _note_fetch_session(self, message: Message, answer: Message) -> None:
        if message["session_epoch"] == 0 and answer["session_id"]:
            self._fetch_session = (answer["session_id"], 1)
        elif message["session_epoch"] > 0 and answer["error_code"] == 0:
            self._fetch_session = (message["session_id"], message["session_epoch"] + 1)

    def _wait_until_led(self, name: str, count: int) -> None:
        def is_led() -> bool:
            topic = self._described(name)
            led = [p["error_code"] == 0 for p in topic["partitions"]]
            self._topic_ids[name] = topic["topic_id"]
            return topic["error_code"] == 0 and len(led) >= count and all(led)

        eventually(is_led, what=f"{name} with {count} partitions")

    def _described(self, name: str) -> Message:
        message = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
        topic: Message = self.look(METADATA, 12, message)["topics"][0]
        return topic

    def _wait_until_gone(self, name: str) -> None:
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
        wish = {"topics": [topic], "timeout_ms": 1000, "validate_only": True}

        def is_gone() -> bool:
            is_free = self.look(CREATE_TOPICS, 5, wish)["topics"][0]["error_code"] != TOPIC_EXISTS
            return bool(is_free and self._described(name)["error_code"] == UNKNOWN_TOPIC)

        eventually(is_gone, what=f"the end of {name}")

    def _wait_until_configured(self) -> None:
        """Changes take effect in their order: so one is made that shows in a topic of its own."""
        name = self._probe()
        self._probe_is_shut = not self._probe_is_shut
        value = "1" if self._probe_is_shut else "100000"
        change = {"name": "max.message.bytes", "config_operation": 0, "value": value}
        resource = {"resource_type": 2, "resource_name": name, "configs": [change]}
        self.look(INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})

        def has_changed() -> bool:
            answer = self.look(PRODUCE, 8, produce_message(name, batch(b"probe")))
            refused = answer["responses"][0]["partition_responses"][0]["error_code"] != 0
            return bool(refused == self._probe_is_shut)

        eventually(has_changed, what="a change of configuration")

    def _probe(self) -> str:
        name = self._named("probe")
        if not self._is_probed:
            topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
            self.look(CREATE_TOPICS, 5, {"topics": [topic], "timeout_ms": 10_000})
            self._wait_until_led(name, 1)
            self._is_probed = True
        return name

    def logs_differ(self, ours: Path, theirs: Path) -> list[str]:
        """What differs in two folders of a partition."""
        return differing_files(ours, theirs, ("*.log", "*.index", "leader-epoch-checkpoint"))

    def clean_up(self) -> None:
        self.delete_topics([*self.names, self._named("probe")])

    def delete_topics(self, names: Sequence[str]) -> None:
        self.look(DELETE_TOPICS, 4, {"topic_names": names, "timeout_ms": 10_000})
        self.close()


def _created(step: Step, answer: Message) -> list[str]:
    """What a metadata request makes on its way."""
    topics = answer["topics"] if step.key == METADATA else []
    return [topic["name"] for topic in topics if topic["error_code"] == LEADER_NOT_AVAILABLE]


def _deleted(step: Step, answer: Message) -> list[str]:
    topics = answer["responses"] if step.key == DELETE_TOPICS else []
    return [t["name"] for t in topics if t["error_code"] in (0, REQUEST_TIMED_OUT) and t["name"]]


def _partitions(answer: Any) -> list[Message]:
    topics = answer["responses"] if isinstance(answer, dict) else []
    return [partition for topic in topics for partition in topic["partitions"]]


def _merged(topics: list[Message]) -> list[Message]:
    """The topics of an answer in order, each once: where Kafka names one twice is decided by what is absent."""
    merged: dict[Any, Message] = {}
    for topic in topics:
        key = tuple(str(topic.get(name)) for name in ("name", "topic", "topic_id"))
        if "partitions" in merged.setdefault(key, topic) and merged[key] is not topic:
            merged[key]["partitions"] += topic["partitions"]
        if "partitions" in topic:
            merged[key]["partitions"].sort(key=lambda partition: str(partition.get("partition_index")))
    return [merged[key] for key in sorted(merged)]


def fitting(fields: Sequence[Any], version: int, message: Message) -> Message:
    """The message without the fields that this version lacks."""
    found: Message = {}
    for field in fields:
        if field.name in message and field.present_in(version):
            value = message[field.name]
            inner = field.type.of if isinstance(field.type, Array) else field.type
            if isinstance(inner, Struct) and isinstance(value, list):
                value = [fitting(inner.fields, version, each) for each in value]
            if value is None and not field.nullable_in(version):
                value = field.new_default()
            found[field.name] = value
    return found


def _with_tagged_field(data: bytes) -> bytes:
    body = data[4:-1] + bytes((1, 99, 3)) + b"abc"
    return len(body).to_bytes(4, "big") + body


def is_now(time_ms: int) -> bool:
    return abs(time_ms - time.time() * 1000) < MOMENT_MS


def comparable_records(data: bytes) -> list[Any]:
    """Each batch or message, unpacked, with time stamps of the moment replaced; what is cut off at the end by its size."""
    found: list[Any] = []
    position = 0
    while len(data) - position > MAGIC_AT:
        end = position + ENTRY_SIZE + int.from_bytes(data[position + SIZE_AT : position + ENTRY_SIZE], "big")
        if end > len(data):
            break
        found.append((_batch if data[position + MAGIC_AT] == 2 else _message)(data[position:end]))
        position = end
    return [*found, f"{len(data) - position} bytes of a cut batch"] if position < len(data) else found


def _batch(data: bytes) -> Any:
    header = read_header(data)
    fields: dict[str, Any] = header._asdict()
    body: Any = data[HEADER_SIZE:]
    if is_now(header.max_timestamp):
        fields |= {"max_timestamp": "now", "crc": "not compared"}
    if header.delete_horizon_ms is not None:
        days, over_ms = divmod(header.delete_horizon_ms - int(time.time() * 1000) + MOMENT_MS, DAY_MS)
        fields |= {"base_timestamp": f"now and {days} days", "crc": "not compared"}
        assert over_ms < 2 * MOMENT_MS, f"tombstones may go at {header.delete_horizon_ms}"
        body = _records(data, header)
    if header.codec:
        fields |= {"length": "packed", "crc": "not compared"}
        body = _records(data, header)
    return fields, body


def _records(data: bytes, header: BatchHeader) -> list[dict[str, Any]]:
    """A broker that stamps the time of an append stamps it on every record."""
    return [_timeless(record) for record in decode_records(data, 0, header)]


def _message(data: bytes) -> Any:
    (message,) = iter_messages(data)
    if message.codec:
        inner = inner_messages(message, RECORDS_SIZE_MAX)[0]
        return _timeless(message._replace(value=b"")), [_timeless(each) for each in inner]
    return _timeless(message)


def _timeless(message: Any) -> dict[str, Any]:
    fields: dict[str, Any] = message._asdict()
    return fields | {"timestamp_ms": "now"} if is_now(message.timestamp_ms) else fields


Kind = Callable[[Broker, str], RandomSession]


def first_difference(pair: Pair, steps: Sequence[Any], kind: Kind = RandomSession) -> tuple[int, str] | None:
    """(number of the step, what differs) or None; files are compared after the last step."""
    prefix = f"random{next(_runs)}"
    theirs, ours = kind(pair.kafka, prefix), kind(pair.headrace, prefix)
    try:
        for number, step in enumerate(steps):
            label, our = ours.perform(step)
            _, their = theirs.perform(step)
            found = [f"{place}: headrace {a!r}, Kafka {b!r}" for place, a, b in _differences(our, their)]
            if found:
                return number, "\n".join([label, *found])
        found = _settled_files_differ(pair, theirs)
        return (len(steps), "\n".join(found)) if found else None
    finally:
        theirs.clean_up()
        ours.clean_up()


def _settled_files_differ(pair: Pair, session: RandomSession) -> list[str]:
    """What differs in the files of its topics, also a while later: both write and delete in the background."""
    for _ in range(session.files_tries):
        found = [
            difference
            for topic in sorted(session.names)
            for difference in _files_differ(pair, session, topic)
        ]
        if not found:
            break
        time.sleep(0.1)
    return found


def _files_differ(pair: Pair, session: RandomSession, topic: str) -> list[str]:
    theirs, ours = (
        {p.name: p for p in b.home.glob(f"*/{topic}-[0-9]*") if p.name[len(topic) + 1 :].isdigit()}
        for b in (pair.kafka, pair.headrace)
    )
    if theirs.keys() != ours.keys():
        return [f"directories: headrace {sorted(ours)}, Kafka {sorted(theirs)}"]
    return [found for name in theirs for found in session.logs_differ(ours[name], theirs[name])]


def differing_files(ours: Path, theirs: Path, patterns: Sequence[str]) -> list[str]:
    """What differs in the files of two folders."""
    found = []
    for pattern in patterns:
        our, their = (_contents(directory, pattern) for directory in (ours, theirs))
        if our.keys() != their.keys():
            found.append(f"{ours.name}: headrace {sorted(our)}, Kafka {sorted(their)}")
            continue
        for file, data in our.items():
            if data != their[file]:
                a, b = (comparable_records(d) if pattern == "*.log" else d for d in (data, their[file]))
                found += [
                    f"{ours.name}/{file}{p}: headrace {x!r}, Kafka {y!r}" for p, x, y in _differences(a, b)
                ]
    return found


def _contents(directory: Path, pattern: str) -> dict[str, bytes]:
    """The files by name; without the active segment's index, which Kafka preallocates."""
    paths = sorted(directory.glob(pattern))
    return {path.name: path.read_bytes() for path in (paths[:-1] if pattern == "*.index" else paths)}


def kind_of(difference: str) -> str:
    """What the request was and which field differs first, without numbers."""
    return re.sub(r"[0-9]+", "", "".join(line.partition(": ")[0] for line in difference.splitlines()[:2]))
