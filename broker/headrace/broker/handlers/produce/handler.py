"""The way of a Produce request, versions 0-11: see the package's text."""

from __future__ import annotations

from collections.abc import Collection

from headrace.broker.errors import RequestTimedOutError
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.produce import answer, append, gather, park, read
from headrace.broker.handlers.produce.outcome import AppendedRun, Outcome
from headrace.broker.handlers.produce.read import Head, Item
from headrace.broker.handlers.replies import Parts, Reply
from headrace.broker.handlers.services import Services
from headrace.broker.log.results import AppendResult
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
    gathered = gather.gather(broker, call.header, frame, more) if more else None
    if gathered is None:
        return _serve_alone(broker, call, frame), 0
    return _serve_gathered(broker, call, gathered), len(gathered.requests) - 1


def _serve_alone(broker: Services, call: Call, frame: memoryview) -> Reply:
    version = call.header.version
    single = read.read_single(version, frame)
    if single is None:
        return _serve_items(broker, call, frame)
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


def _serve_items(broker: Services, call: Call, frame: memoryview) -> Reply:
    request = read.read(call.header, frame)
    deadline_ms = call.began_s * 1000 + WORK_MS_MAX
    outcomes = [_append_in_time(broker, call, item, request.acks, deadline_ms) for item in request.items]
    return _answer(broker, call, outcomes, request.acks, request.timeout_ms)


def _append_in_time(broker: Services, call: Call, item: Item, acks: int, deadline_ms: float) -> Outcome:
    """Batches that must be unpacked may take long, and clients wait: what is late is for another request."""
    topic, index, records = item
    if broker.clock.monotonic_ms() > deadline_ms:
        error = RequestTimedOutError("the partitions before this one took too long: send the rest again")
        return Outcome(topic, index, None, None, error)
    return append.append(broker, call, topic, index, records, acks)


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


def _serve_gathered(broker: Services, call: Call, gathered: gather.Gathered) -> Reply:
    """Append what was gathered, partition by partition, and answer in the order of the requests, all at once."""
    acks, timeout_ms, requests, runs = gathered
    appended = [append.append_run(broker, run, acks) for run in runs]
    if acks == 0:
        _close_on_first_error(broker, appended)
        return None
    for run in appended:
        if not park.is_done(run.partition, run.end_offset, acks):
            return park.park_runs(
                broker.waiting,
                appended,
                acks,
                timeout_ms,
                lambda: _answer_gathered(broker, call, acks, requests, appended),
            )
    return _answer_gathered(broker, call, acks, requests, appended)


def _close_on_first_error(broker: Services, appended: list[AppendedRun]) -> None:
    """acks=0: the first one that would have closed the connection, had all come alone."""
    refused = [
        (number, outcome)
        for run in appended
        for number, outcome in zip(run.numbers, run.outcomes, strict=True)
        if isinstance(outcome, Outcome)
    ]
    answer.close_on_error(broker, [outcome for _, outcome in sorted(refused)[:1]])


def _answer_gathered(
    broker: Services,
    call: Call,
    acks: int,
    requests: list[tuple[int, Head]],
    appended: list[AppendedRun],
) -> Parts:
    replies = [b""] * len(requests)
    for run in appended:
        is_acknowledged = park.is_acknowledged(run, acks)
        for number, outcome in zip(run.numbers, run.outcomes, strict=True):
            correlation_id, head = requests[number]
            if is_acknowledged and not isinstance(outcome, Outcome):
                replies[number] = answer.of_single(head, correlation_id, outcome)
                continue
            settled = park.settle(_outcome_of(run, outcome), acks)
            header = call.header._replace(correlation_id=correlation_id)
            replies[number] = answer.of_items(broker, call._replace(header=header), [settled])
    return [b"".join(replies)]


def _outcome_of(run: AppendedRun, outcome: AppendResult | Outcome) -> Outcome:
    if isinstance(outcome, Outcome):
        return outcome
    return Outcome(run.topic, run.partition.partition, run.partition, outcome, leadership=run.leadership)
