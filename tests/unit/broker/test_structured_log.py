"""One event is one line, whatever its values hold."""

from __future__ import annotations

import logging

import pytest

from headrace.broker.structured_log import LogfmtFormatter, get_logger


def line_of(caplog: pytest.LogCaptureFixture) -> str:
    return LogfmtFormatter().format(caplog.records[-1])


def test_an_event_is_a_line_of_named_values(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        get_logger("headrace.broker.log").info("segment rolled", topic="pageviews", base_offset=1000)
    assert line_of(caplog).split(" ", 1)[1] == (
        'level=info logger=broker.log event="segment rolled" topic=pageviews base_offset=1000'
    )


def test_several_events_are_a_line_each(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        logger = get_logger("headrace.x")
        logger.info_all([("leads", {"topic": "a b", "partition": 0}), ("stopped", {"deleted": True})])
        logger.info_all([])
    (record,) = caplog.records
    lines = LogfmtFormatter().format(record).split("\n")
    assert [line.split(" ", 1)[1] for line in lines] == [
        'level=info logger=x event=leads topic="a b" partition=0',
        "level=info logger=x event=stopped deleted=True",
    ]


def test_hostile_values_cannot_forge_a_line(caplog: pytest.LogCaptureFixture) -> None:
    get_logger("headrace.x").warning("bad client", client_id='a" level=error\nevent=forged')
    line = line_of(caplog)
    assert "\n" not in line
    assert line.endswith('client_id="a\\" level=error\\nevent=forged"')


def test_a_failure_keeps_its_stack_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("why")
    except ValueError as error:
        get_logger("headrace.x").failure("it broke", error, task="t")
    line = line_of(caplog)
    assert "\n" not in line
    assert "ValueError('why')" in line
    assert "test_a_failure_keeps_its_stack_in_one_line" in line
