"""Every znode that headrace reads or writes: its path, and its JSON as Apache Kafka 3.9 writes it.

Field order and types are Kafka's (kafka.zk.ZkData), so that both kinds of broker share one ZooKeeper.
Decoders take what any version since 0.10 wrote and raise `MalformedZnodeError` otherwise. Knows nothing of
sessions or versions of znodes.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from headrace.broker.addresses import PORT_MAX, address_text
from headrace.broker.auth.delegation_tokens import Token
from headrace.broker.auth.principal import Principal
from headrace.broker.quotas.limits import desanitized, sanitized
from headrace.broker.replication.model import (
    NO_ZXID,
    RECOVERED,
    RECOVERING,
    Broker,
    Endpoint,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
)
from headrace.broker.wire.fields import ZERO_UUID

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE_ID = "/brokers/seqid"
TOPICS = "/brokers/topics"
CLUSTER_ID = "/cluster/id"
CONFIG = "/config"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = "/config/changes/config_change_"
DELETE_TOPICS = "/admin/delete_topics"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
REASSIGNMENT = "/admin/reassign_partitions"
ISR_CHANGES = "/isr_change_notification"
LOG_DIRECTORY_EVENTS = "/log_dir_event_notification"
LOG_DIRECTORY_EVENT_PREFIX = "/log_dir_event_notification/log_dir_event_"
LOG_DIRECTORY_FAILURE = 1
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
TOKENS = "/delegation_token/tokens"
TOKEN_CHANGES = "/delegation_token/token_changes"
TOKEN_CHANGE_PREFIX = "/delegation_token/token_changes/token_change_"
TOKEN_VERSION = 3
FEATURE = "/feature"
DEFAULT_ENTITY = "<default>"
# Credentials of users, and passwords of brokers.
_SECRET_PREFIXES = (f"{CONFIG}/users/", f"{CONFIG}/brokers/")
INT32_MAX = 2**31 - 1

PERSISTENT_PATHS = (
    "/consumers",
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE_ID,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIRECTORY_EVENTS,
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
)
"""What every broker makes sure of when it starts."""


class MalformedZnodeError(ValueError):
    """A znode holds something that no Kafka wrote."""


def broker(broker_id: int) -> str:
    """The ephemeral registration of a broker."""
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    """A topic's id and assignment."""
    return f"{TOPICS}/{name}"


def topic_partitions(name: str) -> str:
    """The parent of a topic's partition znodes."""
    return f"{TOPICS}/{name}/partitions"


def topic_partition(name: str, partition: int) -> str:
    """The parent of a partition's state."""
    return f"{TOPICS}/{name}/partitions/{partition}"


def partition_state(name: str, partition: int) -> str:
    """Leader and in-sync replicas of a partition."""
    return f"{TOPICS}/{name}/partitions/{partition}/state"


def entity_config(kind: str, name: str) -> str:
    """Dynamic configuration of an entity; `kind` is topics, brokers, clients, users or ips."""
    return f"{CONFIG}/{kind}/{name}"


def consumer_group(group: str) -> str:
    """What ZooKeeper knows of a consumer group."""
    return f"/consumers/{group}"


def consumer_offsets(group: str) -> str:
    """The offsets that version 0 of OffsetCommit stores."""
    return f"{consumer_group(group)}/offsets"


def consumer_topic(group: str, topic: str) -> str:
    """A group's offsets in one topic."""
    return f"{consumer_offsets(group)}/{topic}"


def is_name(name: str) -> bool:
    """Whether a znode may have that name (ZooKeeper's PathUtils, which counts in UTF-16: nothing beyond U+FFFF)."""
    return name not in ("", ".", "..") and _NOT_IN_NAMES.search(name) is None


def consumer_offset(group: str, topic: str, partition: int) -> str:
    """A group's offset in one partition."""
    return f"{consumer_topic(group, topic)}/{partition}"


def decode_consumer_offset(path: str, data: bytes) -> int:
    """The offset, which is stored in decimal digits, as Java's `Long.parseLong` reads them."""
    if not _LONG.fullmatch(data) or not -(2**63) <= int(data) < 2**63:
        raise MalformedZnodeError(f"{path} holds no offset: {data[:200]!r}")
    return int(data)


def delete_topic(name: str) -> str:
    """The wish that a topic be deleted."""
    return f"{DELETE_TOPICS}/{name}"


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _load(path: str, data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MalformedZnodeError(f"{path} holds no JSON: {_shown(path, data)}") from error
    if not isinstance(value, dict):
        raise MalformedZnodeError(f"{path} holds no JSON object: {_shown(path, data)}")
    return value


def _shown(path: str, data: bytes) -> str:
    """The beginning of what a znode holds, for people; not where that may be a secret."""
    return "[hidden]" if path.startswith(_SECRET_PREFIXES) else repr(data[:200])


@contextmanager
def fields_of(path: str, data: bytes) -> Iterator[dict[str, Any]]:
    """The fields of a znode; whatever they are not as Kafka writes them is a MalformedZnodeError."""
    fields = _load(path, data)
    try:
        yield fields
    except MalformedZnodeError:
        raise
    except KeyError as error:
        raise MalformedZnodeError(f"{path} lacks {error}: {_shown(path, data)}") from error
    except (AttributeError, TypeError, ValueError) as error:
        raise MalformedZnodeError(
            f"{path} holds what no Kafka writes ({error}): {_shown(path, data)}"
        ) from error


def _int32(value: int | str, *, least: int = -(2**31)) -> int:
    """A number of the protocol's width; raises ValueError."""
    if isinstance(value, bool | float) or not least <= int(value) < 2**31:
        raise ValueError(f"{value!r} is no number from {least} to 2147483647")
    return int(value)


def _broker_ids(values: Iterable[int]) -> tuple[int, ...]:
    if not isinstance(values, list | tuple):
        raise ValueError(f"{values!r} is no list of broker ids")
    return tuple(_int32(value, least=0) for value in values)


def encode_uuid(value: UUID) -> str:
    """Kafka's text form of a UUID: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def decode_uuid(text: str) -> UUID:
    """The UUID of Kafka's text form; raises MalformedZnodeError."""
    try:
        return UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except ValueError as error:
        raise MalformedZnodeError(f"{text!r} is no UUID in URL-safe base64") from error


def encode_broker(registration: Broker, *, jmx_port: int, now_ms: int) -> bytes:
    """Version 5 of a broker's registration; `host` and `port` are those of the first PLAINTEXT endpoint."""
    plaintext = next((e for e in registration.endpoints if e.security_protocol == "PLAINTEXT"), None)
    fields: dict[str, Any] = {
        "features": {},
        "listener_security_protocol_map": {e.listener: e.security_protocol for e in registration.endpoints},
        "endpoints": [f"{e.listener}://{address_text(e.host, e.port)}" for e in registration.endpoints],
        "rack": registration.rack,
        "jmx_port": jmx_port,
        "port": plaintext.port if plaintext else -1,
        "host": plaintext.host if plaintext else None,
        "version": 5,
        "timestamp": str(now_ms),
    }
    if registration.rack is None:
        del fields["rack"]
    return _dump(fields)


def decode_broker(broker_id: int, data: bytes, epoch: int) -> Broker:
    """A registration of version 2 to 5; `epoch` is the znode's creation zxid."""
    with fields_of(broker(broker_id), data) as fields:
        protocols = dict(fields.get("listener_security_protocol_map") or {})
        endpoints = tuple(_endpoint(text, protocols) for text in fields.get("endpoints") or ())
        rack = fields.get("rack")
        return Broker(
            broker_id=broker_id, epoch=epoch, endpoints=endpoints, rack=None if rack is None else str(rack)
        )


_NOT_IN_NAMES = re.compile("[/\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")
_LONG = re.compile(rb"[+-]?[0-9]{1,100}")
_ENDPOINT = re.compile(r"(?P<listener>[^:]+)://\[?(?P<host>[^\]]*?)\]?:(?P<port>\d+)")


def _endpoint(text: str, protocols: Mapping[str, str]) -> Endpoint:
    match = _ENDPOINT.fullmatch(text)
    if match is None or int(match["port"]) > PORT_MAX:
        raise MalformedZnodeError(f"{text!r} is no endpoint of the form LISTENER://host:port")
    listener = match["listener"]
    return Endpoint(
        listener=listener,
        security_protocol=protocols.get(listener, listener),
        host=match["host"],
        port=int(match["port"]),
    )


def encode_controller(broker_id: int, now_ms: int) -> bytes:
    """Who is controller, and since when."""
    return _dump({"version": 2, "brokerid": broker_id, "timestamp": str(now_ms), "kraftControllerEpoch": -1})


def decode_controller(data: bytes) -> int:
    """The controller's broker id."""
    with fields_of(CONTROLLER, data) as fields:
        return _int32(fields["brokerid"])


def decode_controller_epoch(data: bytes) -> int:
    """How often a controller was elected, in decimal digits."""
    try:
        return _int32(data.decode(), least=0)
    except ValueError as error:
        raise MalformedZnodeError(f"{CONTROLLER_EPOCH} holds no epoch: {data[:200]!r}") from error


def encode_topic(assignment: TopicAssignment) -> bytes:
    """Version 3 of a topic's assignment."""
    partitions = sorted(assignment.partitions.items())
    fields: dict[str, Any] = {
        "partitions": {str(p): list(a.replicas) for p, a in partitions},
        "topic_id": encode_uuid(assignment.topic_id),
        "adding_replicas": {str(p): list(a.adding) for p, a in partitions if a.adding},
        "removing_replicas": {str(p): list(a.removing) for p, a in partitions if a.removing},
        "version": 3,
    }
    if assignment.topic_id == ZERO_UUID:
        del fields["topic_id"]
    return _dump(fields)


def decode_topic(name: str, data: bytes) -> TopicAssignment:
    """A topic's assignment of version 1 to 3; the topic id is zero when there is none."""
    with fields_of(topic(name), data) as fields:
        topic_id = fields.get("topic_id")
        return TopicAssignment(
            topic=name,
            topic_id=decode_uuid(topic_id) if topic_id else ZERO_UUID,
            partitions=_assignments(fields),
        )


def _assignments(fields: dict[str, Any]) -> dict[int, ReplicaAssignment]:
    """Those that do not move are shared: thousands of partitions lie in few ways."""
    adding, removing = (dict(fields.get(key) or {}) for key in ("adding_replicas", "removing_replicas"))
    ways: dict[str, ReplicaAssignment] = {}
    assignments: dict[int, ReplicaAssignment] = {}
    for p, replicas in (fields.get("partitions") or {}).items():
        if p in adding or p in removing:
            assignment = ReplicaAssignment(
                replicas=_broker_ids(replicas),
                adding=_broker_ids(adding.get(p, ())),
                removing=_broker_ids(removing.get(p, ())),
            )
        else:
            way = str(replicas)
            if way not in ways:
                ways[way] = ReplicaAssignment(replicas=_broker_ids(replicas))
            assignment = ways[way]
        assignments[_int32(p, least=0)] = assignment
    return assignments


def encode_partition_state(state: PartitionState) -> bytes:
    """Version 1 of a partition's state; a leader that has nothing to recover from is not spoken of (KIP-704)."""
    fields: dict[str, Any] = {
        "controller_epoch": state.controller_epoch,
        "leader": state.leader,
        "version": 1,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
    }
    if state.leader_recovery_state != RECOVERED:
        fields["leader_recovery_state"] = state.leader_recovery_state
    return _dump(fields)


def decode_partition_state(
    path: str, data: bytes, zk_version: int, written_zxid: int = NO_ZXID
) -> PartitionState:
    """A partition's state with its znode's version, and the transaction that wrote it."""
    with fields_of(path, data) as fields:
        recovery = _int32(fields.get("leader_recovery_state", RECOVERED))
        if recovery not in (RECOVERED, RECOVERING):
            raise ValueError(f"{recovery} is no leader recovery state")
        leader_epoch = _int32(fields["leader_epoch"])
        if leader_epoch == INT32_MAX:
            raise ValueError(f"no leader epoch can follow {leader_epoch}")
        return PartitionState(
            leader=_int32(fields["leader"]),
            leader_epoch=leader_epoch,
            isr=_broker_ids(fields["isr"]),
            controller_epoch=_int32(fields["controller_epoch"]),
            zk_version=zk_version,
            leader_recovery_state=recovery,
            written_zxid=written_zxid,
        )


def encode_config(config: Mapping[str, str]) -> bytes:
    """An entity's dynamic configuration."""
    return _dump({"version": 1, "config": dict(config)})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """An entity's dynamic configuration; empty for an empty znode."""
    if not data:
        return {}
    with fields_of(path, data) as fields:
        return {str(k): str(v) for k, v in (fields.get("config") or {}).items()}


def encode_config_change(entity_path: str) -> bytes:
    """A notification that `entity_path` (such as `topics/pageviews`) has a new configuration."""
    return _dump({"version": 2, "entity_path": entity_path})


def decode_config_change(data: bytes) -> str | None:
    """The entity path of a notification of version 1 or 2; None for what is neither."""
    fields = _load(CONFIG_CHANGES, data)
    if fields.get("version") == 2:
        return str(fields.get("entity_path"))
    if fields.get("version") == 1 and {"entity_type", "entity_name"} <= fields.keys():
        return f"{fields['entity_type']}/{fields['entity_name']}"
    return None


def encode_cluster_id(cluster_id: str) -> bytes:
    """The cluster's id, made once by the first broker."""
    return _dump({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    """The cluster's id."""
    with fields_of(CLUSTER_ID, data) as fields:
        return str(fields["id"])


def encode_producer_id_block(broker_id: int, first: int, last: int) -> bytes:
    """The newest block of producer ids and who took it; both ends are inside."""
    return _dump({"version": 1, "broker": broker_id, "block_start": str(first), "block_end": str(last)})


def decode_producer_id_block(data: bytes) -> tuple[int, int]:
    """(first, last) of the newest block."""
    with fields_of(PRODUCER_ID_BLOCK, data) as fields:
        return int(fields["block_start"]), int(fields["block_end"])


def encode_feature() -> bytes:
    """Feature versioning is on and no feature is finalized, as Kafka 3.9 writes it in ZooKeeper mode."""
    return _dump({"features": {}, "version": 2, "status": 1})


def decode_isr_change(data: bytes) -> Sequence[tuple[str, int]]:
    """The partitions whose in-sync replicas a leader changed."""
    with fields_of(ISR_CHANGES, data) as fields:
        return [(str(p["topic"]), _int32(p["partition"])) for p in fields.get("partitions") or ()]


def encode_preferred_election(partitions: Iterable[tuple[str, int]]) -> bytes:
    """The wish that the first replicas of these partitions lead."""
    listed = [{"topic": name, "partition": number} for name, number in partitions]
    return _dump({"version": 1, "partitions": listed})


def decode_preferred_election(data: bytes) -> frozenset[tuple[str, int]]:
    """The partitions whose first replicas are to lead."""
    with fields_of(PREFERRED_ELECTION, data) as fields:
        return frozenset((str(p["topic"]), _int32(p["partition"])) for p in fields["partitions"])


def encode_reassignment(targets: Mapping[tuple[str, int], Sequence[int]]) -> bytes:
    """The wish that these partitions get these replicas."""
    listed = [{"topic": t, "partition": p, "replicas": list(r)} for (t, p), r in targets.items()]
    return _dump({"version": 1, "partitions": listed})


def decode_reassignment(data: bytes) -> dict[tuple[str, int], tuple[int, ...]]:
    """The partitions that are to get other replicas, and which; whether they can is another question."""
    with fields_of(REASSIGNMENT, data) as fields:
        return {
            (str(p["topic"]), _int32(p["partition"])): tuple(_int32(r) for r in p["replicas"])
            for p in fields["partitions"]
        }


def encode_log_directory_event(broker_id: int) -> bytes:
    """A data directory of that broker failed (KIP-112)."""
    return _dump({"version": 1, "broker": broker_id, "event": LOG_DIRECTORY_FAILURE})


def decode_log_directory_event(data: bytes) -> int:
    """The broker one of whose data directories failed."""
    with fields_of(LOG_DIRECTORY_EVENTS, data) as fields:
        return _int32(fields["broker"])


def token(token_id: str) -> str:
    """A delegation token; its HMAC is nowhere in ZooKeeper."""
    return f"{TOKENS}/{token_id}"


def encode_token(token: Token) -> bytes:
    """What ZooKeeper holds of a delegation token (KIP-48)."""
    return _dump(
        {
            "version": TOKEN_VERSION,
            "owner": sanitized(str(token.owner)),
            "tokenRequester": sanitized(str(token.requester)),
            "renewers": [sanitized(str(renewer)) for renewer in token.renewers],
            "issueTimestamp": token.issued_at_ms,
            "maxTimestamp": token.ends_at_ms,
            "expiryTimestamp": token.expires_at_ms,
            "tokenId": token.token_id,
        }
    )


def decode_token(path: str, data: bytes) -> Token:
    """Raises MalformedZnodeError. A token of an older version was asked for by its owner."""
    with fields_of(path, data) as fields:
        version = fields["version"]
        if version not in range(1, TOKEN_VERSION + 1):
            raise ValueError(f"version {version} is unknown")
        requester = fields["tokenRequester" if version >= TOKEN_VERSION else "owner"]
        return Token(
            token_id=str(fields["tokenId"]),
            owner=Principal.parse(desanitized(fields["owner"])),
            requester=Principal.parse(desanitized(requester)),
            renewers=tuple(Principal.parse(desanitized(each)) for each in fields["renewers"]),
            issued_at_ms=int(fields["issueTimestamp"]),
            expires_at_ms=int(fields["expiryTimestamp"]),
            ends_at_ms=int(fields["maxTimestamp"]),
        )
