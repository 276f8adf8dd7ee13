"""Every version of what the controller says becomes the same request."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from headrace.broker.errors import UnknownServerError
from headrace.broker.replication.control_requests import (
    ControlRequest,
    LeaderAndIsr,
    StopReplica,
    ToldPartition,
    ToldReplica,
    ToldStop,
    UpdateMetadata,
    control_request,
)
from headrace.broker.replication.model import (
    RECOVERED,
    RECOVERING,
    Broker,
    Endpoint,
    PartitionMetadata,
    PartitionState,
)
from headrace.broker.wire.api import APIS
from headrace.broker.wire.fields import ZERO_UUID

SENDER: dict[str, Any] = {"controller_id": 3, "controller_epoch": 5}
TOPIC_ID = UUID(int=9)
STATE = {"controller_epoch": 5, "leader": 1, "leader_epoch": 7, "isr": [1, 2], "replicas": [1, 2]}


def over_the_wire(key: int, version: int, message: dict[str, Any]) -> ControlRequest:
    """The request as a broker has it that decodes what the controller sends in that version."""
    api = APIS[key]
    return control_request(key, api.decode_request(version, api.encode_request(version, message)))


@pytest.mark.parametrize("version", range(8))
def test_leader_and_isr_of_every_version(version: int) -> None:
    state = {**STATE, "partition_index": 4, "partition_epoch": 6}
    if version >= 1:
        state["is_new"] = True
    if version >= 6:
        state["leader_recovery_state"] = RECOVERING
    message: dict[str, Any] = {**SENDER, "live_leaders": []}
    if version >= 2:
        message["broker_epoch"] = 77
        message["topic_states"] = [{"topic_name": "t", "partition_states": [state]}]
        if version >= 5:
            message["topic_states"][0]["topic_id"] = TOPIC_ID
    else:
        message["ungrouped_partition_states"] = [{**state, "topic_name": "t"}]
    told = ToldReplica(
        "t",
        TOPIC_ID if version >= 5 else ZERO_UUID,
        4,
        PartitionState(
            leader=1,
            leader_epoch=7,
            isr=(1, 2),
            controller_epoch=5,
            zk_version=6,
            leader_recovery_state=RECOVERING if version >= 6 else RECOVERED,
        ),
        (1, 2),
        version >= 1,
    )
    expected = LeaderAndIsr(**SENDER, broker_epoch=77 if version >= 2 else -1, partitions=(told,))
    assert over_the_wire(4, version, message) == expected


@pytest.mark.parametrize("version", range(5))
def test_stop_replica_of_every_version(version: int) -> None:
    message: dict[str, Any] = dict(SENDER)
    if version >= 1:
        message["broker_epoch"] = 77
    if version >= 3:
        state = {"partition_index": 4, "leader_epoch": 7, "delete_partition": True}
        message["topic_states"] = [{"topic_name": "t", "partition_states": [state]}]
    else:
        message["delete_partitions"] = True
        if version >= 1:
            message["topics"] = [{"name": "t", "partition_indexes": [4]}]
        else:
            message["ungrouped_partitions"] = [{"topic_name": "t", "partition_index": 4}]
    stop = ToldStop("t", 4, 7 if version >= 3 else -1, True)
    expected = StopReplica(**SENDER, broker_epoch=77 if version >= 1 else -1, replicas=(stop,))
    assert over_the_wire(5, version, message) == expected


@pytest.mark.parametrize("version", range(9))
def test_update_metadata_of_every_version(version: int) -> None:
    state: dict[str, Any] = {**STATE, "partition_index": 4, "zk_version": 6}
    if version >= 4:
        state["offline_replicas"] = [2]
    endpoint: dict[str, Any] = {"host": "h", "port": 9092, "security_protocol": 0}
    if version >= 3:
        endpoint["listener"] = "INSIDE"
    live: dict[str, Any] = {"id": 1}
    live |= {"endpoints": [endpoint]} if version >= 1 else {"v0_host": "h", "v0_port": 9092}
    if version >= 2:
        live["rack"] = "r"
    message: dict[str, Any] = {**SENDER, "live_brokers": [live]}
    if version >= 5:
        message["broker_epoch"] = 77
        message["topic_states"] = [{"topic_name": "t", "partition_states": [state]}]
        if version >= 7:
            message["topic_states"][0]["topic_id"] = TOPIC_ID
    else:
        message["ungrouped_partition_states"] = [{**state, "topic_name": "t"}]
    listener = "INSIDE" if version >= 3 else "PLAINTEXT"
    reached = Endpoint(listener=listener, security_protocol="PLAINTEXT", host="h", port=9092)
    shown = PartitionMetadata(
        leader=1,
        leader_epoch=7,
        replicas=(1, 2),
        isr=(1, 2),
        offline_replicas=(2,) if version >= 4 else (),
    )
    expected = UpdateMetadata(
        **SENDER,
        broker_epoch=77 if version >= 5 else -1,
        brokers=(Broker(broker_id=1, epoch=-1, endpoints=(reached,), rack="r" if version >= 2 else ""),),
        partitions=(ToldPartition("t", TOPIC_ID if version >= 7 else ZERO_UUID, 4, shown),),
    )
    assert over_the_wire(6, version, message) == expected


def test_an_endpoint_of_no_known_protocol_is_refused() -> None:
    endpoint = {"host": "h", "port": 9092, "security_protocol": 9, "listener": "L"}
    live = [{"id": 1, "endpoints": [endpoint], "rack": None}]
    with pytest.raises(UnknownServerError, match="no security protocol"):
        UpdateMetadata.of({**SENDER, "live_brokers": live, "topic_states": []})
