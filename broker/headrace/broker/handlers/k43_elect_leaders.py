"""ElectLeaders (key 43), versions 0-2 (KIP-183, KIP-460): preferred leaders, or unclean ones where nobody leads.

Only the controller elects, and answers once its metadata shows the leaders, or when the request's time is over. No deviations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.broker.auth.operations import Operation
from headrace.broker.errors import ErrorCode, NotControllerError
from headrace.broker.handlers.access import access
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.partition_results import by_topic
from headrace.broker.handlers.services import Services
from headrace.broker.replication.events import AnswerLeaders, LeadersRequested
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k43_elect_leaders
from headrace.broker.wire.partitions import PartitionKey

API = k43_elect_leaders.API
VERSIONS = (0, 2)
FIRST_VERSION_WITH_AN_ERROR = 1
PREFERRED, UNCLEAN = 0, 1
Result = tuple[ErrorCode, str | None]


def handle(
    broker: Services, call: Call, request: dict[str, Any]
) -> dict[str, Any] | Deferred[dict[str, Any]]:
    election, named = request["election_type"], request["topic_partitions"]
    if election not in (PREFERRED, UNCLEAN):
        error = ErrorCode.UNKNOWN_SERVER_ERROR
        unknown = (error, f"There is no election of type {election}: {PREFERRED} and {UNCLEAN} are known.")
        return _answer(dict.fromkeys(_named(named or ()), unknown), error)
    rights = access(broker, call)
    if rights and not rights.may_cluster(Operation.ALTER):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        of_all = denied if call.header.version >= FIRST_VERSION_WITH_AN_ERROR else ErrorCode.NONE
        return _answer(dict.fromkeys(_named(named or ()), (denied, None)), of_all)
    keys = frozenset(_all(broker) if named is None else _named(named))
    work = _elect(broker, keys, request["timeout_ms"], unclean=election == UNCLEAN, is_for_all=named is None)
    return broker.later("elect-leaders", work)


def _named(topics: Iterable[Mapping[str, Any]]) -> Iterable[PartitionKey]:
    return ((topic["topic"], partition) for topic in topics for partition in topic["partitions"])


def _all(broker: Services) -> Iterable[PartitionKey]:
    names = broker.metadata.topic_names()
    return ((name, partition) for name in names for partition in broker.metadata.topics(name) or ())


async def _elect(
    broker: Services, keys: frozenset[PartitionKey], timeout_ms: int, *, unclean: bool, is_for_all: bool
) -> dict[str, Any]:
    try:
        answer = await broker.control.answer(LeadersRequested(partitions=keys, unclean=unclean))
    except NotControllerError as error:
        return _answer(dict.fromkeys(keys, (error.code, None)))
    assert isinstance(answer, AnswerLeaders), "it answers LeadersRequested"
    late = await broker.topics.await_leaders(answer.leaders, timeout_ms=timeout_ms)
    results: dict[PartitionKey, Result] = dict.fromkeys(answer.leaders, (ErrorCode.NONE, None))
    results.update(dict.fromkeys(late, (ErrorCode.REQUEST_TIMED_OUT, None)))
    for key, refusal in answer.refusals.items():
        if not (is_for_all and refusal.error is ErrorCode.ELECTION_NOT_NEEDED):
            results[key] = (refusal.error, refusal.message)
    return _answer(results)


def _answer(results: Mapping[PartitionKey, Result], error: ErrorCode = ErrorCode.NONE) -> dict[str, Any]:
    return {
        "error_code": error,
        "replica_election_results": [
            {
                "topic": topic,
                "partition_result": [
                    {"partition_id": partition, "error_code": code, "error_message": message}
                    for partition, (code, message) in partitions
                ],
            }
            for topic, partitions in by_topic(results)
        ],
    }
