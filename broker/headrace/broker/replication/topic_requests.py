"""What may be asked about topics, and the answers: values and the rules for names."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from uuid import UUID

from headrace.broker.errors import ErrorCode, InvalidTopicError
from headrace.broker.wire.fields import ZERO_UUID

NAME_LENGTH_MAX = 249
_NAME = re.compile(rf"[a-zA-Z0-9._-]{{1,{NAME_LENGTH_MAX}}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create; -1 takes the broker's default; `assignments` (partition → brokers) excludes the
    counts.
    """

    name: str
    partition_count: int = -1
    replication_factor: int = -1
    assignments: dict[int, list[int]] = field(default_factory=dict)
    configs: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicResult:
    """What became of one topic; `error` is NONE when it was done."""

    name: str | None
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topic_id: UUID = ZERO_UUID
    partition_count: int = -1
    replication_factor: int = -1


def is_legal_name(name: str) -> bool:
    """Kafka's rule for topic names (org.apache.kafka.common.internals.Topic)."""
    return _NAME.fullmatch(name) is not None and name not in (".", "..")


def check_name(name: str) -> None:
    """Raises InvalidTopicError, with the reason, unless `is_legal_name`."""
    if not name:
        raise InvalidTopicError("Topic name is invalid: the empty string is not allowed")
    if name in (".", ".."):
        raise InvalidTopicError("Topic name is invalid: '.' or '..' is not allowed")
    if len(name) > NAME_LENGTH_MAX:
        raise InvalidTopicError(
            f"Topic name is invalid: the length of '{name}' is longer than "
            f"the max allowed length {NAME_LENGTH_MAX}"
        )
    if not is_legal_name(name):
        raise InvalidTopicError(
            f"Topic name is invalid: '{name}' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )
