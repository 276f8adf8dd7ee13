"""The outcome of work in a task of the broker, for who cannot wait for it: a handler."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from typing import TypeVar

from headrace.broker.tasks import Tasks
from headrace.broker.waiting.deferred import Deferred

T = TypeVar("T")


class Later:
    """Runs work in `tasks`; called once a request, it is a function with a place to keep them."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    def __call__(self, name: str, work: Awaitable[T]) -> Deferred[T]:
        """The outcome of `work`, which runs in a task of the broker."""
        deferred: Deferred[T] = Deferred()

        async def run() -> None:
            try:
                result = await work
            except Exception as error:
                deferred.fail(error)
            else:
                deferred.complete(result)

        task = self._tasks.start(name, run())
        if isinstance(work, Coroutine):
            # A task cancelled before its first step leaves it unstarted.
            task.add_done_callback(lambda _: work.close())
        return deferred
