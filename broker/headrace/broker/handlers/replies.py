"""What a handler hands back to the connection."""

from __future__ import annotations

from typing import Any

from headrace.broker.log.results import LogSlice
from headrace.broker.waiting.deferred import Deferred

Parts = list[bytes | LogSlice]
"""A whole reply, length prefix included, as buffers and file slices in order."""

Reply = Parts | Deferred[Any] | None
"""A reply now, later, or none at all."""


class CloseConnectionError(Exception):
    """The request cannot be answered in words that its client understands; its connection is closed."""
