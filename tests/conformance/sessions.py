"""Scripted client sessions: raw frames to headrace and to Apache Kafka, whole decoded answers compared.

A script is a function of a `Session`; `Pair.compare(script)` runs it against both and requires the same transcript. What may
differ is listed here, each with its reason, and nowhere else:

- PORTS: both listen on ports of their own.
- IDENTITIES: topic, member and fetch session ids are random, producer ids go on from those asked for before; the same
  one must come back wherever it did before.
- CLOCKS: broker time stamps (LogAppendTime) are replaced by "a time".
- NONCES: those of SCRAM are random, and signatures are made of them.
- TEXTS: error messages are for people and ours say what to do, also where Kafka gives only the code.
- ORDER: lists that are sets (topics, partitions, brokers, keys, members, configurations) come in hash order from Kafka.
"""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar, NamedTuple
from uuid import UUID

from kafka_oracle import KafkaBroker
from kazoo.client import KazooClient
from processes import BrokerProcess, eventually
from raw_client import read_frame

from headrace.broker.wire import batches, frames
from headrace.broker.wire.api import APIS

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 8, 9, 10
JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, DESCRIBE_GROUPS, LIST_GROUPS = 11, 12, 13, 14, 15, 16
API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS, INIT_PRODUCER_ID = 18, 19, 20, 22
ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, TXN_OFFSET_COMMIT = 24, 25, 26, 28
DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS = 29, 30, 31
DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 65, 66
OFFSET_FOR_LEADER_EPOCH, DESCRIBE_CONFIGS, CREATE_PARTITIONS, DELETE_GROUPS = 23, 32, 37, 42
INCREMENTAL_ALTER_CONFIGS, OFFSET_DELETE, DESCRIBE_CLUSTER = 44, 47, 60
CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE = 68, 69

CLOSED = "connection closed"
# A JVM that has just started needs twenty seconds for a thousand requests while others use the processors.
ANSWER_SECONDS_MAX = 60
TIMESTAMP_MS = 1_700_000_000_000
IDENTITY_FIELDS = ("topic_id", "member_id", "leader", "session_id", "producer_id", "token_id", "hmac")
TEXT_FIELDS = ("error_message", "batch_index_error_message", "documentation")
CLOCK_FIELDS = (
    "log_append_time_ms",
    "transaction_start_time_ms",
    "issue_timestamp",
    "issue_timestamp_ms",
    "expiry_timestamp",
    "expiry_timestamp_ms",
    "max_timestamp",
    "max_timestamp_ms",
)
SET_FIELDS = {
    "topics": ("name", "topic", "topic_id"),
    "responses": ("name", "topic", "topic_id"),
    "partitions": ("partition_index",),
    "partition_responses": ("index",),
    "brokers": ("node_id", "broker_id"),
    "api_keys": ("api_key",),
    "configs": ("name",),
    "groups": ("group_id",),
    "results": ("group_id", "name", "resource_name", "user"),
    "tokens": ("token_id",),
    "results_by_partition": ("partition_index",),
    "results_by_topic_v3_and_below": ("name",),
    "results_by_transaction": ("transactional_id",),
    "topic_results": ("name",),
    "transaction_states": ("transactional_id",),
}
SETS = ("members", "resources", "acls", "matching_acls", "mechanisms")
"""Lists that are sets of elements without a name of their own."""

Message = dict[str, Any]
# Topic settings of tiered storage and compression levels, which headrace does not have.
NOT_HAD = {
    "local.retention.bytes",
    "local.retention.ms",
    "remote.storage.enable",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.zstd.level",
}


class Session:
    """One client of one broker. `ask` notes each answer in the transcript; a closed connection is an answer, too."""

    def __init__(self, address: tuple[str, int], source: str = "") -> None:
        """`source` is the address that it comes from; the system's choice when there is none."""
        self._address = address
        self._source = (source, 0) if source else None
        self._socket: socket.socket | None = None
        self.transcript: list[tuple[str, Any]] = []
        self.seen = Seen()
        self._identities: dict[Any, str] = {}

    def ask(self, key: int, version: int, message: Message | None = None, *, note: str = "") -> Message:
        """The answer as it came; its comparable form goes into the transcript."""
        return self.send_frame(self.frame(key, version, message or {}), key, version, note=note)

    def look(self, key: int, version: int, message: Message | None = None, *, noted: bool = False) -> Message:
        """Like `ask`, without a note: for waiting until something has come about, or when the script itself notes it."""
        self._write(self.frame(key, version, message or {}))
        answer = self._decode(self._read(), key, version)
        if noted:
            self.seen.add(key, version, answer)
        return answer

    def frame(self, key: int, version: int, message: Message, client: str | None = "script") -> bytes:
        header = frames.encode_request_header(key, version, 7, client)
        return frames.frame(header, APIS[key].encode_request(version, message))

    def send_frame(self, data: bytes, key: int, version: int, *, note: str = "") -> Message:
        """Send bytes that may be anything; an answer is decoded as that of `key` in `version`."""
        label = f"{APIS[key].name if key in APIS else key} v{version} {note}".strip()
        try:
            self._write(data)
            answer = self._decode(self._read(), key, version)
        except (ConnectionError, TimeoutError) as error:
            self.close()
            self.transcript.append((label, "no answer" if isinstance(error, TimeoutError) else CLOSED))
            return {}
        self.transcript.append((label, self.comparable(answer)))
        self.seen.add(key, version, answer)
        return answer

    def send_only(self, data: bytes) -> None:
        self._write(data)

    def next_answer(self, key: int, version: int, *, note: str = "") -> Message:
        """The next answer to what `send_only` sent."""
        return self.send_frame(b"", key, version, note=note)

    def note(self, what: str, value: Any) -> None:
        """Compare `value`, too."""
        self.transcript.append((what, value))

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def another(self, address: tuple[str, int] | None = None, *, source: str = "") -> Session:
        """A second connection of the same script, to `address` when that is another; its answers are noted in the
        same transcript.
        """
        session = Session(address or self._address, source)
        session.transcript, session._identities = self.transcript, self._identities
        session.seen = self.seen
        return session

    def _write(self, data: bytes) -> None:
        if self._socket is None:
            self._socket = socket.create_connection(
                self._address, timeout=ANSWER_SECONDS_MAX, source_address=self._source
            )
        self._socket.sendall(data)

    def _read(self) -> bytes:
        assert self._socket is not None
        return read_frame(self._socket)

    @staticmethod
    def _decode(reply: bytes, key: int, version: int) -> Message:
        correlation_id, offset = frames.read_response_header(key, version, reply)
        assert correlation_id == 7
        return APIS[key].decode_response(version, reply, offset)

    def comparable(self, value: Any, name: str = "") -> Any:
        """`value` without what may differ (see the module's docstring)."""
        if isinstance(value, dict):
            return {k: self.comparable(v, k) for k, v in value.items() if k not in TEXT_FIELDS}
        if isinstance(value, list):
            found = [self.comparable(v) for v in _in_order(value, SET_FIELDS.get(name, ()))]
            is_set = name in SETS or (name == "partitions" and all(isinstance(v, int) for v in value))
            return sorted(found, key=str) if is_set else found
        if isinstance(value, memoryview):
            value = bytes(value)
        if name == "auth_bytes":
            value = _without_nonces(value)
        if name == "records" and value:
            return _batches(value)
        if name == "port":
            return "a port" if value > 0 else value
        if name in CLOCK_FIELDS:
            return "a time" if value > 0 else value
        if isinstance(value, UUID) or name in IDENTITY_FIELDS:
            return self._identity(value)
        return value

    def _identity(self, value: Any) -> Any:
        if value in (None, "", 0, -1, UUID(int=0)):
            return value
        return self._identities.setdefault(value, f"identity {len(self._identities)}")


def _without_nonces(auth_bytes: bytes) -> bytes:
    """SCRAM's messages without what is random, and what is made of that."""
    return re.sub(rb"^v=.*", b"v=a signature", re.sub(rb"^r=[^,]*", b"r=a nonce", auth_bytes))


def _in_order(values: list[Any], keys: tuple[str, ...]) -> list[Any]:
    key = next((k for k in keys if values and isinstance(values[0], dict) and k in values[0]), None)
    return values if key is None else sorted(values, key=lambda v: f"{v[key] or 0!s:>20}")


def _batches(records: bytes) -> list[Any]:
    """Each batch with its header and the bytes of its records; what is cut off at the end by its size."""
    found: list[Any] = []
    end = 0
    for position, header in batches.iter_batches(records):
        found.append((header._asdict(), records[position + batches.HEADER_SIZE : position + header.size]))
        end = position + header.size
    return [*found, f"{len(records) - end} bytes of a cut batch"] if end < len(records) else found


class Seen(dict[int, dict[str, set[int]]]):
    """Which versions of each key were answered, and with which error codes."""

    compared: ClassVar[Seen]
    """What both brokers answered alike since it was cleared."""

    def add(self, key: int, version: int, answer: Message) -> None:
        entry = self.setdefault(key, {"versions": set(), "codes": set()})
        entry["versions"].add(version)
        entry["codes"].update(_error_codes(answer))

    def merge(self, other: Seen) -> None:
        for key, entry in other.items():
            mine = self.setdefault(key, {"versions": set(), "codes": set()})
            for name, values in entry.items():
                mine[name] |= values


Seen.compared = Seen()


def _error_codes(value: Any) -> Iterator[int]:
    if isinstance(value, dict):
        for name, each in value.items():
            if name in ("error_code", "partition_error_code"):
                yield int(each)
            else:
                yield from _error_codes(each)
    elif isinstance(value, list):
        for each in value:
            yield from _error_codes(each)


class Pair(NamedTuple):
    """The two brokers."""

    headrace: BrokerProcess
    kafka: KafkaBroker
    znodes: KazooClient

    def wait_for_producer_ids(self) -> None:
        """A broker refuses the first producers while it fetches a block of ids; afterwards both count alike."""
        for address in (self.kafka.address, self.headrace.addresses[0]):
            session = Session(address)
            eventually(partial(_has_producer_id, session), what="producer ids")
            session.close()

    def wait_for_coordinator(self) -> None:
        """The first to ask for a coordinator makes the offsets topic; afterwards both answer about groups."""
        for address in (self.kafka.address, self.headrace.addresses[0]):
            session = Session(address)
            eventually(partial(_has_coordinator, session), what="a coordinator")
            session.close()

    def compare(self, script: Callable[[Session], None]) -> list[tuple[str, Any]]:
        """Run the script against both and require the same transcript, which is returned."""
        theirs, ours = Session(self.kafka.address), Session(self.headrace.addresses[0])
        for session in (theirs, ours):
            script(session)
            session.close()
        assert [label for label, _ in ours.transcript] == [label for label, _ in theirs.transcript]
        pairs = zip(ours.transcript, theirs.transcript, strict=True)
        differences = [
            f"{label}{place}: headrace {our!r}, Kafka {their!r}"
            for (label, ours_), (_, theirs_) in pairs
            for place, our, their in _differences(ours_, theirs_)
        ]
        assert not differences, "\n".join(differences)
        assert theirs.transcript, "a script that notes nothing compares nothing"
        assert ours.seen == theirs.seen
        Seen.compared.merge(theirs.seen)
        return theirs.transcript


def _has_producer_id(session: Session) -> bool:
    message: Message = {"transactional_id": None, "transaction_timeout_ms": 1000}
    return bool(session.look(INIT_PRODUCER_ID, 4, message)["error_code"] == 0)


def _has_coordinator(session: Session) -> bool:
    found = session.look(FIND_COORDINATOR, 2, {"key": "any", "key_type": 0})["error_code"]
    return bool(
        found == 0 and session.look(OFFSET_FETCH, 5, {"group_id": "any", "topics": []})["error_code"] == 0
    )


def _differences(ours: Any, theirs: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(place, ours, theirs) of the smallest parts that differ."""
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        for name in ours:
            yield from _differences(ours[name], theirs[name], f"{place}.{name}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (our, their) in enumerate(zip(ours, theirs, strict=True)):
            yield from _differences(our, their, f"{place}[{index}]")
    elif ours != theirs:
        yield place, ours, theirs


def create_topic(
    session: Session, name: str, partitions: int = 1, configs: dict[str, str] | None = None
) -> Any:
    """Make a topic, wait until it is led, and give its id."""
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "configs": [{"name": k, "value": v} for k, v in (configs or {}).items()],
    }
    session.look(CREATE_TOPICS, 5, {"topics": [topic], "timeout_ms": 10_000})
    found: Message = {}

    def is_led() -> bool:
        found.update(
            session.look(METADATA, 12, {"topics": [{"name": name}], "allow_auto_topic_creation": False})
        )
        topic = found["topics"][0]
        return topic["error_code"] == 0 and all(p["error_code"] == 0 for p in topic["partitions"])

    eventually(is_led, what=f"topic {name}")
    return found["topics"][0]["topic_id"]


def batch(*values: bytes, timestamp_ms: int = TIMESTAMP_MS, **options: Any) -> bytearray:
    """A batch of records without keys, a millisecond apart."""
    records = [batches.Record(0, timestamp_ms + n, None, value, []) for n, value in enumerate(values)]
    return batches.encode_batch(records, **options)


def produce_message(
    topic: str,
    records: bytes | bytearray | None,
    *,
    partition: int = 0,
    acks: int = 1,
    timeout_ms: int = 5000,
) -> Message:
    data = [
        {
            "name": topic,
            "partition_data": [{"index": partition, "records": None if records is None else bytes(records)}],
        }
    ]
    return {"acks": acks, "timeout_ms": timeout_ms, "topic_data": data}


def raw_frame(body: bytes, size: int | None = None) -> bytes:
    """Any bytes as a frame, with a size of one's own when that is wanted."""
    return struct.pack(">i", len(body) if size is None else size) + body
