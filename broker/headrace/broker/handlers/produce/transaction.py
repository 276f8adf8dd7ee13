"""A request in a transaction: what may be appended is, what the coordinator has to be asked about waits for its answer.

Invariant: a batch that waits is overtaken by none of its producer's for the same partition: those wait, too, and are asked
about behind it, even when one before it has begun the transaction in the meantime.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from headrace.broker.coordinators.decision import ProducerEpoch
from headrace.broker.errors import ErrorCode, KafkaError
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.produce import append, verify
from headrace.broker.handlers.produce.outcome import Outcome
from headrace.broker.handlers.produce.read import Item, Request
from headrace.broker.handlers.produce.verify import Asked
from headrace.broker.handlers.replies import Parts, Reply
from headrace.broker.handlers.services import Services
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.partitions import TopicPartition

Append = Callable[[Item, Asked | None], Outcome]
"""Appends an item; one that was asked about only if the log still lets it in."""
Answer = Callable[[list[Outcome]], Reply]


class Waiter(NamedTuple):
    """An item that waits for the coordinator's word, the `number`th of the request."""

    number: int
    item: Item
    asked: Asked


def serve(
    broker: Services,
    call: Call,
    request: Request,
    transactional_id: str,
    *,
    append_in_time: Callable[[], Append],
    answer: Answer,
) -> Reply:
    """Append the items, at once or once the coordinator has answered, and answer them all then.

    `append_in_time()` is asked for when appending begins.
    """
    headers = [verify.transactional_header(records) for _, _, records in request.items]
    try:
        producer = verify.producer_of(headers)
    except KafkaError as error:
        return answer([append.refusal(broker, topic, n, None, error) for topic, n, _ in request.items])
    outcomes: dict[int, Outcome] = {}
    waiters: list[Waiter] = []
    append_now = append_in_time()
    for number, (item, header) in enumerate(zip(request.items, headers, strict=True)):
        try:
            asked = verify.begin(broker, item, header)
        except KafkaError:
            # The append says why.
            asked = None
        if asked is None or _is_in(broker, transactional_id, asked, item):
            outcomes[number] = append_now(item, asked)
        else:
            waiters.append(Waiter(number, item, asked))
    if producer is None or not waiters:
        return answer(_in_order(outcomes))
    return _wait(broker, call, transactional_id, producer, outcomes, waiters, append_in_time, answer)


def _is_in(broker: Services, transactional_id: str, asked: Asked, item: Item) -> bool:
    """Whether the coordinator, which is here then, says yes without being asked, and nothing of the producer's waits."""
    producer = ProducerEpoch(asked.header.producer_id, asked.header.producer_epoch)
    place = TopicPartition(item[0], item[1])
    return not asked.is_behind_others and broker.verifier.is_in(transactional_id, producer, place)


def _wait(
    broker: Services,
    call: Call,
    transactional_id: str,
    producer: ProducerEpoch,
    outcomes: dict[int, Outcome],
    waiters: list[Waiter],
    append_in_time: Callable[[], Append],
    answer: Answer,
) -> Deferred[Parts]:
    partitions = [TopicPartition(waiter.item[0], waiter.item[1]) for waiter in waiters]
    size = sum(waiter.asked.header.size for waiter in waiters)
    for waiter in waiters:
        waiter.asked.wait()
    asked = broker.verifier.verify(transactional_id, producer, partitions, size)
    if not asked.done:
        # What the client sends next takes the place of its bytes.
        waiters = [waiter._replace(item=_kept(waiter.item)) for waiter in waiters]
    reply: Deferred[Parts] = Deferred()

    def go_on() -> None:
        for waiter in waiters:
            waiter.asked.go_on()

    def given_up() -> None:
        go_on()
        asked.cancel()

    def failed(error: BaseException) -> None:
        go_on()
        reply.fail(error)

    reply.on_cancel(given_up)

    def answered(errors: Mapping[TopicPartition, ErrorCode]) -> None:
        go_on()
        try:
            append_now = append_in_time()
            for number, item, of_item in waiters:
                error = errors.get(TopicPartition(item[0], item[1]), ErrorCode.NONE)
                outcomes[number] = (
                    append_now(item, of_item)
                    if error is ErrorCode.NONE
                    else Outcome(item[0], item[1], None, None, verify.refusal_of(error, call.header.version))
                )
            final = answer(_in_order(outcomes))
        except Exception as error:
            reply.fail(error)
            return
        if isinstance(final, Deferred):
            reply.follow(final)
        else:
            reply.complete(final or [])

    asked.then(answered, failed)
    return reply


def _kept(item: Item) -> Item:
    topic, index, records = item
    return topic, index, None if records is None else memoryview(bytearray(records))


def _in_order(outcomes: dict[int, Outcome]) -> list[Outcome]:
    return [outcomes[number] for number in sorted(outcomes)]
