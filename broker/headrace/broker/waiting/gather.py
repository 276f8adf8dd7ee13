"""Waits for several answers of one request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from headrace.broker.waiting.deferred import Deferred

T = TypeVar("T")


def gather(parts: Sequence[Deferred[T]]) -> Deferred[list[T]]:
    """All values in order, once the last one is there; the first failure fails the whole."""
    whole: Deferred[list[T]] = Deferred()
    values: dict[int, T] = {}

    def arrived(index: int, value: T) -> None:
        values[index] = value
        if len(values) == len(parts):
            whole.complete([values[i] for i in range(len(parts))])

    def cancel() -> None:
        for part in parts:
            part.cancel()

    whole.on_cancel(cancel)
    if not parts:
        whole.complete([])
    for index, part in enumerate(parts):
        part.then(lambda value, index=index: arrived(index, value), whole.fail)  # type: ignore[misc]
    return whole
