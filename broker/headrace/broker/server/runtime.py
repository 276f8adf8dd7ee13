"""The group coordinator's shell: decide, append, apply, answer (DESIGN D4), one shard a `__consumer_offsets` partition."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from headrace.broker.errors import ErrorCode
from headrace.broker.groups.config import GroupConfig
from headrace.broker.groups.events import GroupOverview, Request
from headrace.broker.handlers.deferred import Deferred

OFFSETS_TOPIC = "__consumer_offsets"
Answer = TypeVar("Answer")


class GroupCoordinator:
    """All groups whose `__consumer_offsets` partition this broker leads."""

    def __init__(self, config: GroupConfig, *, clock: Any, partitions: Any, cluster: Any, metadata: Any) -> None:
        raise NotImplementedError

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that keeps the group."""
        raise NotImplementedError

    def ask(self, request: Request[Answer]) -> Deferred[Answer]:
        """Put a request to the group's shard; the answer comes once it is committed.

        A group that is not here is answered in the request's own form with NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS
        or INVALID_GROUP_ID.
        """
        raise NotImplementedError

    def overviews(self) -> tuple[ErrorCode, list[GroupOverview]]:
        """Every group here; COORDINATOR_LOAD_IN_PROGRESS while any shard is still loading."""
        raise NotImplementedError

    def partitions_changed(self) -> None:
        """Load shards of partitions this broker now leads, unload those it no longer leads."""
        raise NotImplementedError

    def high_watermark_advanced(self, partition: int) -> None:
        """Send the replies that waited for it."""
        raise NotImplementedError

    def topics_deleted(self, topics: Iterable[str]) -> None:
        """Remove the topics' committed offsets."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop timers; waiting requests are answered NOT_COORDINATOR."""
        raise NotImplementedError
