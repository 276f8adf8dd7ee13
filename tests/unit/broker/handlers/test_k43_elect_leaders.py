"""ElectLeaders between its messages of every version and the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from calls import call_in

from headrace.broker.errors import ErrorCode, NotControllerError
from headrace.broker.handlers import k43_elect_leaders
from headrace.broker.replication.events import AnswerLeaders, LeadersRequested, Refusal
from headrace.broker.wire.partitions import PartitionKey

NOT_NEEDED = Refusal(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
UNKNOWN = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
ALL: list[PartitionKey] = [("t", 0), ("t", 1), ("t", 2), ("u", 0)]
ANSWER = AnswerLeaders(leaders={("t", 0): 1, ("t", 1): 2}, refusals={("t", 2): NOT_NEEDED, ("u", 0): UNKNOWN})


def asked(
    version: int, *, partitions: list[PartitionKey] | None, election_type: int = 0, answer: Any = ANSWER
) -> tuple[list[LeadersRequested], dict[str, Any]]:
    """What the controller was asked, and the response, both through the codec; the metadata shows no leader of t-1."""
    seen: list[LeadersRequested] = []

    async def control(event: LeadersRequested) -> AnswerLeaders:
        seen.append(event)
        if isinstance(answer, NotControllerError):
            raise answer
        found: AnswerLeaders = answer
        return found

    async def await_leaders(leaders: Mapping[PartitionKey, int], *, timeout_ms: int) -> set[PartitionKey]:
        assert timeout_ms == 700
        return leaders.keys() & {("t", 1)}

    def later(name: str, work: Awaitable[dict[str, Any]]) -> Any:
        return asyncio.run(work)  # type: ignore[arg-type]

    api = k43_elect_leaders.API
    broker: Any = SimpleNamespace(
        authorizer=None,
        control=SimpleNamespace(answer=control),
        topics=SimpleNamespace(await_leaders=await_leaders),
        metadata=SimpleNamespace(topic_names=lambda: ["t", "u"], topics={"t": [0, 1, 2], "u": [0]}.get),
        later=later,
    )
    named = None if partitions is None else [{"topic": t, "partitions": [p]} for t, p in partitions]
    message = {"topic_partitions": named, "timeout_ms": 700}
    if version > 0:
        message["election_type"] = election_type
    request = api.decode_request(version, api.encode_request(version, message))
    response: Any = k43_elect_leaders.handle(broker, call_in(version), request)
    return seen, api.decode_response(version, api.encode_response(version, response))


def codes(response: dict[str, Any]) -> dict[PartitionKey, int]:
    return {
        (topic["topic"], result["partition_id"]): result["error_code"]
        for topic in response["replica_election_results"]
        for result in topic["partition_result"]
    }


@pytest.mark.parametrize("version", range(3))
def test_every_named_partition_is_answered(version: int) -> None:
    seen, response = asked(version, partitions=ALL)
    assert seen == [LeadersRequested(partitions=frozenset(ALL), unclean=False)]
    assert codes(response) == {
        ("t", 0): ErrorCode.NONE,
        ("t", 1): ErrorCode.REQUEST_TIMED_OUT,
        ("t", 2): ErrorCode.ELECTION_NOT_NEEDED,
        ("u", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_of_all_partitions_only_those_are_answered_that_needed_an_election() -> None:
    seen, response = asked(2, partitions=None, election_type=1)
    assert seen == [LeadersRequested(partitions=frozenset(ALL), unclean=True)]
    assert codes(response).keys() == set(ALL) - {("t", 2)}


def test_who_is_not_controller_says_so_for_each_partition() -> None:
    _, response = asked(2, partitions=[("t", 0)], answer=NotControllerError())
    assert response["error_code"] == 0
    assert codes(response) == {("t", 0): ErrorCode.NOT_CONTROLLER}


def test_an_unknown_election_is_asked_of_nobody() -> None:
    seen, response = asked(1, partitions=[("t", 0)], election_type=9)
    assert seen == []
    assert response["error_code"] == ErrorCode.UNKNOWN_SERVER_ERROR
    assert codes(response) == {("t", 0): ErrorCode.UNKNOWN_SERVER_ERROR}
