"""What the fields of requests mostly hold, so that a frame gets past the first checks: names, ids and numbers by field.

`TOLD_TOPICS` are those that no client makes: a controller's requests tell of them, with ids of their own.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID as Uuid

TOPICS = ("fuzz-0", "fuzz-1", "fuzz-compacted", "fuzz-gzip")
NEW_TOPICS = ("fuzz-new-0", "fuzz-new-1")
TOLD_TOPICS = ("fuzz-told-0", "fuzz-told-1", "bad/name", "..", "", "x" * 300)
TOLD_IDS = (Uuid(int=8), Uuid(int=9))
GROUPS = ("fuzz-group-0", "fuzz-group-1", "fuzz-group-2")
UNKNOWN_ID = Uuid(int=7)
NUMBERS = (
    0,
    1,
    -1,
    2,
    5,
    127,
    -128,
    255,
    32767,
    -32768,
    65536,
    (1 << 31) - 1,
    -(1 << 31),
    (1 << 63) - 1,
    -(1 << 63),
)
SIZES = (0, 1, -1, -2, 127, 128, 32767, 0x7FFFFFFF, -0x80000000, 1 << 20)
BAD_VARINTS = (
    b"\xff" * 5,
    b"\xff" * 10,
    b"\x80" * 6,
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07",
    b"\x80\x00",
)
# Of topics that frames make or tell of.
PARTITIONS_COUNT_MAX = 4
_TOLD = (*TOLD_TOPICS[:2], *TOLD_TOPICS[:2], *TOLD_TOPICS, TOPICS[0])
# What a field of that name mostly holds; other numbers are mostly 0 or 1.
USUAL: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        ("name", "topic", "topic_name", "topics"), (*TOPICS, *TOLD_TOPICS[:2], "nowhere", "", "bad/name")
    ),
    **dict.fromkeys(("group_id", "groups", "groups_names", "key", "coordinator_keys"), (*GROUPS, "")),
    "topic_names": (*NEW_TOPICS, "nowhere", ""),
    "resource_name": (*TOPICS, "1", "", "7"),
    "member_id": ("", "nobody"),
    "group_instance_id": (None, None, "instance"),
    "protocol_type": ("consumer", "consumer", "connect", ""),
    "configuration_keys": ("retention.ms", "cleanup.policy", "no.such.key"),
    "transactional_id": (None, None, None, "", "t"),
    "acks": (-1, 0, 1, 1, 7),
    "max_wait_ms": (0, 0, 1),
    "min_bytes": (0, 1),
    **dict.fromkeys(("max_bytes", "partition_max_bytes"), (1 << 20, 1000, 1)),
    "timeout_ms": (0, 1, 100),
    "session_timeout_ms": (6000, 10_000),
    "rebalance_timeout_ms": (0, 100, 10_000),
    "timestamp": (-1, -2, -3, -4, 0, 1_700_000_000_000),
    "replica_id": (-1, -1, -1, 1, 2),
    **dict.fromkeys(("current_leader_epoch", "last_fetched_epoch", "leader_epoch"), (-1, 0, 1)),
    **dict.fromkeys(("generation_id", "generation_id_or_member_epoch"), (-1, 1, 2)),
    "session_id": (0, 0, 1),
    "session_epoch": (0, -1, 1),
    "resource_type": (2, 2, 4, 8),
    "config_operation": (0, 1, 2, 3, 4),
    "num_partitions": (1, -1, 3),
    "count": (1, 2, 4),
    "replication_factor": (1, -1, 2),
    "controller_epoch": (0, -1),
    "broker_id": (2, 9),
    "validate_only": (True, True, False),
    "states_filter": ("Stable", "Empty", "nonsense"),
    **dict.fromkeys(("replicas", "new_isr"), (1, 1, 1, 2, 9, -1)),
    "isr": (1, 1, 2),
    **dict.fromkeys(("leader", "controller_id"), (1, 1, 1, 2, -1)),
    # Nobody listens there.
    **dict.fromkeys(("host", "host_name", "v0_host"), ("127.0.0.1", "127.0.0.1", "", "x" * 300)),
    **dict.fromkeys(("port", "v0_port"), (1, 1, 0, 65536)),
    "listener": ("PLAINTEXT", "PLAINTEXT", "PLAINTEXT", "", "SSL"),
    "security_protocol": (0, 0, 0, 1, 7),
    "election_type": (0, 1, 2),
    "feature": ("metadata.version", "kraft.version", "no.such.feature", ""),
    "value": ("1000", "compact", None, "x"),
}
# Those of leaders that a controller names: a partition takes one above the last that it was told, until it is deleted.
_LEADER_EPOCHS = tuple(range(12))
# The same in the elements of an array of that name, or in requests of that key, in this order of precedence.
USUAL_IN: dict[tuple[str | int, str], tuple[Any, ...]] = {
    ("configs", "name"): ("retention.ms", "cleanup.policy", "no.such.key", "compression.type"),
    (19, "name"): (*NEW_TOPICS, *NEW_TOPICS, "", "bad/name"),
    (19, "validate_only"): (True, False, False),
    (20, "name"): (*NEW_TOPICS, None),
    ("new_isr_with_epochs", "broker_id"): (1, 1, 1, 2, 9, -1),
    **dict.fromkeys(((4, "topic_name"), (5, "topic_name"), (5, "name"), (6, "topic_name")), _TOLD),
    **dict.fromkeys(((4, "leader_epoch"), (5, "leader_epoch")), _LEADER_EPOCHS),
    (6, "leader"): (1, 1, 2, -1, -2),
    ("live_brokers", "id"): (1, 1, 2, 9),
    (56, "broker_id"): (1, 1, 1, 2, 9),
    (67, "broker_id"): (1, 1, 2, 9),
}
COUNTS = (0, 1, 1, 1, 2, 3)
COUNTS_OF: dict[str, tuple[int, ...]] = {"assignments": (0, 0, 0, 0, 1, 2), "configs": (0, 0, 1, 1, 2)}
