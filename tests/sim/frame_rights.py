"""Which frames a fuzzer may send: not those by which anybody with such rights has any broker lose its clients' topics.

A controller's requests are sent in the name of the present one, as far as they tell of topics that nobody else has: never in
that of a later one, which would depose it. Topics are made small, and by few names. What is no request is always allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from frame_values import NEW_TOPICS, NUMBERS, PARTITIONS_COUNT_MAX, TOLD_IDS, TOLD_TOPICS, TOPICS, UNKNOWN_ID

from headrace.broker.handlers.table import HANDLERS
from headrace.broker.replication.control_requests import LeaderAndIsr, StopReplica, UpdateMetadata
from headrace.broker.wire import frames
from headrace.broker.wire.api import APIS
from headrace.broker.wire.fields import MalformedError

BROKER_ID = 1
CONTROL_KEYS = (4, 5, 6, 7)
TOLD_NUMBERS = frozenset(NUMBERS)
Message = Mapping[str, Any]


@dataclass(slots=True)
class Epochs:
    """Of the controller and of the broker's registration, or of earlier ones; 0: not known."""

    controller: int = 0
    broker: int = 0


def closes(data: bytes) -> bool:
    """Whether a broker closes the connection for this frame, given without its size, because it is no request."""
    try:
        header = frames.read_request_header(data)
        handler = HANDLERS.get(header.key)
        if handler is None or not handler.version_min <= header.version <= handler.version_max:
            return header.key != 18
        APIS[header.key].decode_request(header.version, data, header.body_offset)
    except MalformedError:
        return True
    return False


def is_allowed(data: bytes, epochs: Epochs) -> bool:
    """Whether to send this frame, given without its size (see the module's text)."""
    try:
        header = frames.read_request_header(data)
        request = APIS[header.key].decode_request(header.version, data, header.body_offset)
    except (MalformedError, KeyError, ValueError):
        return True
    except Exception:
        return header.key not in CONTROL_KEYS
    rule = _RULES.get(header.key)
    return rule is None or rule(request, epochs)


def _may_be_led(request: Message, epochs: Epochs) -> bool:
    told = ((each.topic, each.partition) for each in LeaderAndIsr.of(request).partitions)
    return _is_in_office(request, epochs, told)


def _may_be_stopped(request: Message, epochs: Epochs) -> bool:
    told = ((each.topic, each.partition) for each in StopReplica.of(request).replicas)
    return _is_in_office(request, epochs, told)


def _may_be_told(request: Message, epochs: Epochs) -> bool:
    """Not that this broker is none of the living."""
    if request["controller_epoch"] < epochs.controller:
        return True
    try:
        update = UpdateMetadata.of(request)
    except Exception:  # for the broker as well
        return bool(request["controller_epoch"] == epochs.controller)
    own = [broker for broker in update.brokers if broker.broker_id == BROKER_ID]
    is_alive = bool(own) and own[-1].endpoint("PLAINTEXT") is not None
    told = ((each.topic, each.partition) for each in update.partitions)
    return is_alive and update.controller_id == BROKER_ID and _is_in_office(request, epochs, told)


def _is_in_office(request: Message, epochs: Epochs, told: Iterable[tuple[str, int]]) -> bool:
    if request["controller_epoch"] != epochs.controller:
        return bool(request["controller_epoch"] < epochs.controller)
    return all(topic in TOLD_TOPICS and partition in TOLD_NUMBERS for topic, partition in told)


def _may_shut_down(request: Message, epochs: Epochs) -> bool:
    """Another broker, or this one in a life before."""
    return bool(request["broker_id"] != BROKER_ID or -1 != request.get("broker_epoch", -1) < epochs.broker)


def _may_be_made(request: Message, epochs: Epochs) -> bool:
    return bool(request.get("validate_only")) or all(map(_is_small, request["topics"]))


def _may_be_deleted(request: Message, epochs: Epochs) -> bool:
    """What takes from nobody what they work with: a name or an id that an answer told."""
    names = {*request["topic_names"], *(topic["name"] for topic in request["topics"])}
    ids = {topic.get("topic_id", UNKNOWN_ID) for topic in request["topics"]}
    return names.isdisjoint(TOPICS) and ids <= {UUID(int=0), UNKNOWN_ID, *TOLD_IDS}


def _may_grow(request: Message, epochs: Epochs) -> bool:
    return all(topic["count"] <= PARTITIONS_COUNT_MAX for topic in request["topics"])


def _is_small(topic: Message) -> bool:
    return (
        topic["name"] in NEW_TOPICS
        and topic["num_partitions"] <= PARTITIONS_COUNT_MAX
        and len(topic["assignments"]) <= PARTITIONS_COUNT_MAX
    )


_RULES: dict[int, Callable[[Message, Epochs], bool]] = {
    4: _may_be_led,
    5: _may_be_stopped,
    6: _may_be_told,
    7: _may_shut_down,
    19: _may_be_made,
    20: _may_be_deleted,
    37: _may_grow,
}
