"""Answers that take long: made in slices, between which others have the loop, and given up when their client is gone.

An answer that is one list is a `Listed` of its elements, which are made and encoded one by one. Invariants: what one
request asks for is at most `ANSWER_SIZE_MAX` bytes when encoded, however often it names what is large; an answer of one
slice leaves at once; longer ones take turns, so that many of them keep others waiting no longer than one. Must not know
what the elements say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from itertools import islice
from typing import Any, NamedTuple, TypeVar, cast

from headrace.broker.handlers.call import Call
from headrace.broker.handlers.error_counts import count_errors
from headrace.broker.handlers.replies import CloseConnectionError, Parts
from headrace.broker.handlers.services import Services
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.waiting.gather import gather
from headrace.broker.wire import frames
from headrace.broker.wire.schema import Api
from headrace.broker.wire.varint import encode_uvarint

ANSWER_SIZE_MAX = 100 << 20
SLICE_COUNT = 3
"""Elements that are made in one go, as some of them take two milliseconds; more of them while the millisecond lasts."""

T = TypeVar("T")
Work = Generator[Deferred[Any] | None, None, T]
"""Yields after a slice what has to be there before the next, or None."""


class Listed(NamedTuple):
    """An answer that has nothing to say but `field`, which is the last of its message."""

    field: str
    elements: Iterator[dict[str, Any] | Deferred[dict[str, Any]]]


def in_slices(broker: Services, name: str, work: Work[T]) -> T | Deferred[T]:
    """The outcome of `work`: now if it takes but one slice, or later, unless the client goes away before."""
    try:
        awaited = next(work)
    except StopIteration as end:
        return cast("T", end.value)
    whole: Deferred[T] = Deferred()

    async def rest() -> None:
        nonlocal awaited
        while True:
            if awaited is not None:
                await _value(awaited)
            async with broker.slicing:
                # One slice of one answer, and then whatever else the loop has to do.
                await asyncio.sleep(0)
                if whole.done:
                    return
                try:
                    awaited = next(work)
                except StopIteration as end:
                    whole.complete(end.value)
                    return

    broker.later(name, rest()).then(lambda _: None, whole.fail)
    return whole


async def _value(deferred: Deferred[Any]) -> None:
    """Returns when the value is there, which stays with its other reader; raises its failure."""
    arrival: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    deferred.then(lambda _: arrival.set_result(None), arrival.set_exception)
    await arrival


def encoded_list(broker: Services, api: Api, call: Call, listed: Listed) -> Parts | Deferred[Parts]:
    """The whole reply; raises CloseConnectionError when it would be too large."""
    return in_slices(broker, api.name, _encoded(broker, api, call, listed))


def _encoded(broker: Services, api: Api, call: Call, listed: Listed) -> Work[Parts]:
    monotonic_ms = broker.clock.monotonic_ms
    version = call.header.version
    is_flexible = api.is_flexible(version)
    nothing = api.encode_response(version, {listed.field: []})
    before, after = len(nothing) - (2 if is_flexible else 4), 1 if is_flexible else 0
    first = before + (1 if is_flexible else 4)
    told: list[bytes] = []
    size = 0

    def take(elements: list[dict[str, Any]]) -> None:
        nonlocal size
        for element in elements:
            message = {listed.field: [element]}
            count_errors(broker.metrics, api, message)
            encoded = api.encode_response(version, message)
            told.append(encoded[first : len(encoded) - after])
            size += len(encoded)
            if size > ANSWER_SIZE_MAX:
                raise CloseConnectionError(
                    f"an answer to {api.name} of more than {ANSWER_SIZE_MAX} bytes: ask for less at once"
                )

    began_ms = monotonic_ms()
    while elements := list(islice(listed.elements, SLICE_COUNT)):
        if told and monotonic_ms() > began_ms:
            yield None
            began_ms = monotonic_ms()
        made = gather([_deferred(element) for element in elements]).map(take)
        if not made.done:
            yield made
        made.then(lambda _: None, _raise)
    count = encode_uvarint(len(told) + 1) if is_flexible else len(told).to_bytes(4, "big")
    start = frames.encode_response_header(call.header.key, version, call.header.correlation_id)
    return [frames.frame(start, nothing[:before], count, *told, nothing[len(nothing) - after :])]


def _deferred(element: dict[str, Any] | Deferred[dict[str, Any]]) -> Deferred[dict[str, Any]]:
    if isinstance(element, Deferred):
        return element
    made: Deferred[dict[str, Any]] = Deferred()
    made.complete(element)
    return made


def _raise(error: BaseException) -> None:
    raise error
