"""What was gathered, on its way: appended at once, or with what other connections' turns gathered, and answered.

A gathering that is small joins the round (`waiting.round`), where there is one: at its end each partition has one write for
all that joined. A large one costs as much for itself, and its connection alone shall pay for it: it is appended at once,
behind what has joined so far.
"""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

from headrace.broker.handlers.call import Call
from headrace.broker.handlers.produce import answer, append, park
from headrace.broker.handlers.produce.gather import Gathered, Run
from headrace.broker.handlers.produce.outcome import AppendedRun, Outcome
from headrace.broker.handlers.produce.read import Head
from headrace.broker.handlers.replies import Parts, Reply
from headrace.broker.handlers.services import Services
from headrace.broker.log.results import AppendResult
from headrace.broker.replication.partition import Partition
from headrace.broker.waiting.deferred import Deferred

# Half the time of a call of the class.
_new_tuple = tuple.__new__
JOINING_REQUESTS_MAX, JOINING_SIZE_MAX = 32, 256 * 1024


Part = tuple[int, Run, list[AppendedRun]]
"""The acks and the batches that one connection sent for a partition, and where what becomes of them goes."""


class Joined(NamedTuple):
    """What one connection sent, and its answer that is to come."""

    broker: Services
    call: Call
    gathered: Gathered
    reply: Deferred[Parts]


def serve_gathered(broker: Services, call: Call, gathered: Gathered) -> Reply:
    """Append what was gathered, partition by partition, now or at the end of the round, and answer it all at once."""
    together = broker.together
    request_count = len(gathered.requests)
    if together.is_open and gathered.acks != 0 and request_count <= JOINING_REQUESTS_MAX:
        size = sum([len(records) for run in gathered.runs for records in run.appends])
        if size <= JOINING_SIZE_MAX:
            joined = _new_tuple(Joined, (broker, call, gathered, Deferred()))
            together.join(_serve_joined, joined, request_count=request_count, size=size)
            return joined.reply
    together.perform()
    appended = [run for own in gathered.runs for run in append.append_runs(broker, (own,), gathered.acks)]
    if gathered.acks == 0:
        _close_on_first_error(broker, appended)
        return None
    return _reply(broker, call, gathered, appended)


def _serve_joined(joined: list[Joined]) -> None:
    """The end of a round; what fails without an error of Kafka's closes the connections whose requests are not answered."""
    try:
        for one, appended in zip(joined, _append_joined(joined), strict=True):
            reply = _reply(one.broker, one.call, one.gathered, appended)
            if isinstance(reply, Deferred):
                one.reply.follow(reply)
            else:
                one.reply.complete(reply)
    except Exception as error:
        for one in joined:
            one.reply.fail(error)


def _append_joined(joined: list[Joined]) -> list[list[AppendedRun]]:
    """With one write for each partition, but where its requests differ in acks: none overtakes another."""
    parts_by_partition: dict[Partition, list[Part]] = {}
    appended: list[list[AppendedRun]] = []
    for one in joined:
        own: list[AppendedRun] = []
        appended.append(own)
        for run in one.gathered.runs:
            parts_by_partition.setdefault(run.partition, []).append((one.gathered.acks, run, own))
    for all_parts in parts_by_partition.values():
        for acks, some in groupby(all_parts, _acks_of):
            parts = list(some)
            results = append.append_runs(joined[0].broker, [run for _, run, _ in parts], acks)
            for (_, _, own), result in zip(parts, results, strict=True):
                own.append(result)
    return appended


def _acks_of(part: Part) -> int:
    return part[0]


def _reply(
    broker: Services, call: Call, gathered: Gathered, appended: list[AppendedRun]
) -> Parts | Deferred[Parts]:
    """In the order of the requests, once all of them may be acknowledged."""
    acks, timeout_ms, requests, _ = gathered
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
