"""The way of a Produce request, versions 0-11: see the package's text."""

from __future__ import annotations

from collections.abc import Collection

from headrace.broker.errors import RequestTimedOutError
from headrace.broker.handlers.access import Access, access
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.produce import answer, append, gather, park, read, transaction
from headrace.broker.handlers.produce.gathered import serve_gathered
from headrace.broker.handlers.produce.outcome import Outcome
from headrace.broker.handlers.produce.read import Item, Request
from headrace.broker.handlers.produce.refuse import without_refused
from headrace.broker.handlers.produce.verify import Asked
from headrace.broker.handlers.replies import Reply
from headrace.broker.handlers.services import Services
from headrace.broker.wire.api import k00_produce

API = k00_produce.API
VERSIONS = (0, 11)
RAW = True
# For how long one request may keep all clients waiting from when its turn came, but for its last batch.
WORK_MS_MAX = 1000


def handle_run(
    broker: Services, call: Call, frame: memoryview, more: Collection[memoryview]
) -> tuple[Reply, int]:
    """Serve `frame` and the first of `more` that can be written together with it; answers how many of `more` those were."""
    together = broker.together
    rights = None if broker.authorizer is None else access(broker, call)
    gathered = None
    if (more or together.is_open) and not (broker.client_usage.is_limited and _is_limited(broker, call)):
        count_min = 1 if together.is_open else 2
        gathered = gather.gather(broker, call.header, frame, more, count_min, rights)
    if gathered is None:
        together.perform()
        return _serve_alone(broker, call, frame, rights), 0
    return serve_gathered(broker, call, gathered), len(gathered.requests) - 1


def _is_limited(broker: Services, call: Call) -> bool:
    """Whether the client may have to wait after each of its requests."""
    user, now_ms = call.client.principal.name, broker.clock.monotonic_ms()
    return broker.client_usage.limits_producer(user, call.header.client_id, now_ms)


def _serve_alone(broker: Services, call: Call, frame: memoryview, rights: Access | None) -> Reply:
    version = call.header.version
    single = read.read_single(version, frame)
    if single is None or rights is not None:
        return _serve_items(broker, call, frame, rights)
    _, head, records = single
    outcome = append.append(broker, call, head.topic, head.partition_index, records, head.acks)
    result = outcome.result
    if (
        result is None
        or head.acks == 0
        or version < answer.BY_HAND_VERSION
        or not _is_done(outcome, head.acks)
    ):
        return _answer(broker, call, [outcome], head.acks, head.timeout_ms)
    return [answer.of_single(head, call.header.correlation_id, result)]


def _serve_items(broker: Services, call: Call, frame: memoryview, rights: Access | None) -> Reply:
    request = read.read(call.header, frame)
    refusals: list[Outcome] = []
    if rights is not None:
        request, refusals = without_refused(rights, request)
    transactional_id = request.transactional_id
    if transactional_id is not None and broker.config.transactions.transaction_partition_verification_enable:
        return transaction.serve(
            broker,
            call,
            request,
            transactional_id,
            append_in_time=lambda: _appender(broker, call, request, broker.clock.monotonic_ms()),
            answer=lambda outcomes: _answer(
                broker, call, [*outcomes, *refusals], request.acks, request.timeout_ms
            ),
        )
    append_in_time = _appender(broker, call, request, call.began_s * 1000)
    outcomes = [append_in_time(item, None) for item in request.items]
    return _answer(broker, call, outcomes + refusals, request.acks, request.timeout_ms)


def _appender(broker: Services, call: Call, request: Request, began_ms: float) -> transaction.Append:
    """Batches that must be unpacked may take long, and clients wait: what is late is for another request."""
    deadline_ms = began_ms + WORK_MS_MAX
    in_transaction = request.transactional_id is not None

    def append_in_time(item: Item, asked: Asked | None) -> Outcome:
        topic, index, records = item
        if broker.clock.monotonic_ms() > deadline_ms:
            error = RequestTimedOutError("the partitions before this one took too long: send the rest again")
            return Outcome(topic, index, None, None, error)
        return append.append(
            broker, call, topic, index, records, request.acks, in_transaction=in_transaction, asked=asked
        )

    return append_in_time


def _answer(broker: Services, call: Call, outcomes: list[Outcome], acks: int, timeout_ms: int) -> Reply:
    """Answer now, or once every append may be acknowledged, at most `timeout_ms` later."""
    if acks == 0:
        answer.close_on_error(broker, outcomes)
        return None
    if any(o.error is None and not _is_done(o, acks) for o in outcomes):
        return park.park(
            broker.waiting,
            outcomes,
            acks,
            timeout_ms,
            lambda settled: [answer.of_items(broker, call, settled)],
        )
    return [answer.of_items(broker, call, outcomes)]


def _is_done(outcome: Outcome, acks: int) -> bool:
    assert outcome.partition is not None
    assert outcome.result is not None
    return park.is_done(outcome.partition, outcome.result.last_offset + 1, acks)
