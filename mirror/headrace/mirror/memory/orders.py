"""Orders about more than one partition, which every broker reads from `headrace.mirror` within a second. Pure values.

    <target topic>/pause     whether the topic's copy is paused
    <source>/limit           what this broker may fetch of the source a second, whatever its configuration says
    <source>/topics          which of the topics that are configured are copied
    <target topic>/promoted  what it was a copy of when it was promoted: no order, but what `restore` has to know
    <topic>/merged           whose messages are brought into it, in a cluster that keeps no such mark at topics: no order, either

The last record of a key counts, so they hold until another one comes, restarts included.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import NamedTuple
from uuid import UUID

PAUSE, LIMIT, TOPICS, PROMOTED, MERGED = "pause", "limit", "topics", "promoted", "merged"
SEPARATOR = "/"


def key_of(subject: str, order: str) -> bytes:
    """The record's key; the subject is a copy's topic or a source."""
    return f"{subject}{SEPARATOR}{order}".encode()


def encode_pause(*, is_paused: bool) -> bytes:
    return json.dumps({"paused": is_paused}).encode()


def decode_pause(value: bytes) -> bool:
    """Raises ValueError for what is no order to pause."""
    try:
        return bool(json.loads(value)["paused"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"no order to pause: {value[:200]!r}") from error


def encode_limit(bytes_per_second: int | None) -> bytes:
    """None: as it is configured."""
    return json.dumps({"bytes_per_second": bytes_per_second}).encode()


def decode_limit(value: bytes) -> int | None:
    """Raises ValueError for what is no limit."""
    try:
        found = json.loads(value)["bytes_per_second"]
        limit = None if found is None else int(found)
    except (KeyError, TypeError) as error:
        raise ValueError(f"no limit: {value[:200]!r}") from error
    if limit is not None and limit < 1:
        raise ValueError(f"no limit: {value[:200]!r}")
    return limit


def encode_topics(pattern: str | None) -> bytes:
    """None: all that are configured."""
    return json.dumps({"topics": pattern}).encode()


def decode_topics(value: bytes) -> re.Pattern[str] | None:
    """Raises ValueError for what is no regular expression."""
    try:
        found = json.loads(value)["topics"]
        return None if found is None else re.compile(found)
    except (KeyError, TypeError, re.error) as error:
        raise ValueError(f"no choice of topics: {value[:200]!r}") from error


def chooses(pattern: re.Pattern[str] | None, topic: str) -> bool:
    """Whether a topic of the source is copied, as far as the order goes."""
    return pattern is None or pattern.fullmatch(topic) is not None


def encode_merged(clusters: Collection[str]) -> bytes:
    """The ids of clusters."""
    return json.dumps({"clusters": sorted(clusters)}).encode()


def decode_merged(value: bytes) -> frozenset[str]:
    """Raises ValueError for what names no clusters."""
    try:
        return frozenset(map(str, json.loads(value)["clusters"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"no ids of clusters: {value[:200]!r}") from error


class Promoted(NamedTuple):
    """The cluster that a promoted topic was copied from last, and its topic's id; "" and zero where it told none."""

    cluster: str
    source_id: UUID


def encode_promoted(found: Promoted) -> bytes:
    return json.dumps({"cluster": found.cluster, "source_id": str(found.source_id)}).encode()


def decode_promoted(value: bytes) -> Promoted:
    """Raises ValueError for what says nothing of a promotion."""
    try:
        fields = json.loads(value)
        return Promoted(str(fields["cluster"]), UUID(fields["source_id"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"nothing of a promotion: {value[:200]!r}") from error
