"""Apache Kafka's own decoder reads what the coordinator stores."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from kafka_oracle import run_tool

from headrace.broker.config.topics import LogConfig
from headrace.broker.groups.records import (
    GroupValue,
    MemberValue,
    OffsetValue,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from headrace.broker.log.appender import Appender
from headrace.broker.log.files import OsFiles
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.wire.batches import Record, encode_batch

NOW_MS = 1_700_000_000_000
# An empty ConsumerProtocolSubscription and ConsumerProtocolAssignment of version 0: the decoder parses them, too.
NOTHING = bytes(10)


@pytest.fixture(scope="module")
def decoded(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, Any]]:
    """(key, payload) of each record as DumpLogSegments' offsets decoder shows them; None for a tombstone."""
    directory = tmp_path_factory.mktemp("data") / "__consumer_offsets-0"
    log, _ = PartitionLog.open(OsFiles(), str(directory), LogConfig(), now_ms=NOW_MS)
    records = [Record(0, NOW_MS, key, value, []) for key, value in stored()]
    Appender(log).append_as_leader(memoryview(encode_batch(records)), leader_epoch=0, now_ms=NOW_MS)
    log.close()
    files = str(directory / "00000000000000000000.log")
    run = run_tool(kafka_jars, "kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", files)
    assert run.returncode == 0, run.stderr
    said = run.stdout
    found = re.findall(r"^\| offset: .* key: (\{.*?\}) payload: (.*)$", said, re.MULTILINE)
    return [
        (json.loads(key), json.loads(payload) if payload.startswith("{") else None) for key, payload in found
    ]


def stored() -> list[tuple[bytes, bytes | None]]:
    member = MemberValue(
        member_id="m-1",
        instance_id="i",
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=5,
        session_timeout_ms=6,
        subscription=NOTHING,
        assignment=NOTHING,
    )
    group = GroupValue(
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader="m-1",
        state_timestamp_ms=7,
        members=(member,),
    )
    offset = OffsetValue(offset=42, leader_epoch=7, metadata="é", commit_timestamp_ms=8)
    expiring = OffsetValue(offset=43, commit_timestamp_ms=8, expire_timestamp_ms=9)
    return [
        (encode_group_key("g"), encode_group_value(group)),
        (encode_offset_key("g", "t", 5), encode_offset_value(offset)),
        (encode_offset_key("g", "t", 6), encode_offset_value(expiring)),
        (encode_group_key("g"), None),
    ]


def test_a_stable_group_is_decoded(decoded: list[tuple[Any, Any]]) -> None:
    key, payload = decoded[0]
    assert key == {"type": "2", "data": {"group": "g"}}
    assert payload["version"] == "3"
    (member,) = payload["data"].pop("members")
    assert payload["data"] == {
        "protocolType": "consumer",
        "generation": 3,
        "protocol": "range",
        "leader": "m-1",
        "currentStateTimestamp": 7,
    }
    assert (member["memberId"], member["groupInstanceId"], member["clientHost"]) == ("m-1", "i", "/h")
    assert (member["rebalanceTimeout"], member["sessionTimeout"]) == (5, 6)
    assert member["subscription"]["topics"] == member["assignment"]["assignedPartitions"] == []


def test_offsets_are_decoded_in_both_versions(decoded: list[tuple[Any, Any]]) -> None:
    assert decoded[1] == (
        {"type": "1", "data": {"group": "g", "topic": "t", "partition": 5}},
        {"version": "3", "data": {"offset": 42, "leaderEpoch": 7, "metadata": "é", "commitTimestamp": 8}},
    )
    assert decoded[2][1] == {
        "version": "1",
        "data": {"offset": 43, "metadata": "", "commitTimestamp": 8, "expireTimestamp": 9},
    }


def test_a_tombstone_is_decoded(decoded: list[tuple[Any, Any]]) -> None:
    assert decoded[3] == ({"type": "2", "data": {"group": "g"}}, None)
    assert len(decoded) == 4
