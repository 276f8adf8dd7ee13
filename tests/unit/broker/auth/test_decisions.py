"""What was decided is counted, and told in Kafka's words."""

from __future__ import annotations

import logging

import pytest

from headrace.broker import structured_log
from headrace.broker.auth.decisions import ANY_NAME, Decisions
from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.auth.principal import Principal

ALICE = Principal("User", "alice")
PRODUCE = 0


def lines(records: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage() for record in records.records if record.name == structured_log.AUTHORIZER_LOGGER
    ]


def test_who_is_refused_is_told_and_who_may_only_to_who_asks_for_that(
    caplog: pytest.LogCaptureFixture,
) -> None:
    decisions = Decisions({PRODUCE: "Produce"})
    about = (ALICE, "10.0.0.1", Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC)
    with caplog.at_level(logging.INFO, structured_log.AUTHORIZER_LOGGER):
        decisions.granted(*about, "events", PRODUCE)
        decisions.denied(*about, "events", PRODUCE)
        decisions.denied(*about, ANY_NAME, 99)
    told = "Principal = User:alice is Denied Operation = DescribeConfigs from host = 10.0.0.1 on resource ="
    assert lines(caplog) == [
        f"{told} Topic:LITERAL:events for request = Produce",
        f"{told} Topic:UNKNOWN:NONE for request = 99",
    ]
    with caplog.at_level(logging.DEBUG, structured_log.AUTHORIZER_LOGGER):
        decisions.granted(*about, "events", PRODUCE)
    assert "is Allowed" in lines(caplog)[-1]
    assert decisions.granted_count == 2
    assert decisions.denied_counts == {(ResourceType.TOPIC, Operation.DESCRIBE_CONFIGS): 2}
