"""headrace.broker.log_levels."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from headrace.broker import log_levels
from headrace.broker.structured_log import get_logger

PACKAGE, MODULE = "headrace.levels_of_a_test", "headrace.levels_of_a_test.module"


@pytest.fixture
def loggers() -> Iterator[logging.Logger]:
    module = logging.getLogger(MODULE)
    levels = {name: logging.getLogger(name).level for name in ("headrace", MODULE)}
    yield module
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    logging.getLogger(PACKAGE).setLevel(logging.NOTSET)


def test_a_level_of_a_package_holds_for_its_modules_until_it_is_unset(
    loggers: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("headrace").setLevel(logging.INFO)
    assert log_levels.exists(PACKAGE)
    assert log_levels.loggers()[PACKAGE] == log_levels.loggers()[MODULE] == "INFO"
    log_levels.set_level(PACKAGE, "ERROR")
    get_logger(MODULE).warning("is not told")
    assert log_levels.loggers()[MODULE] == "ERROR"
    log_levels.unset_level(PACKAGE)
    get_logger(MODULE).warning("is told")
    assert [record.message for record in caplog.records] == ["is told"]


@pytest.mark.parametrize("level", sorted(log_levels.LEVELS))
def test_each_level_is_told_as_it_was_set(loggers: logging.Logger, level: str) -> None:
    log_levels.set_level(MODULE, level)
    assert log_levels.loggers()[MODULE] == level


def test_a_level_between_two_is_told_as_the_lower_one(loggers: logging.Logger) -> None:
    loggers.setLevel(logging.WARNING + 1)
    assert log_levels.loggers()[MODULE] == "WARN"


def test_what_is_no_logger_does_not_exist() -> None:
    assert not log_levels.exists("headrace.levels_of_nobody")
    assert "headrace.levels_of_nobody" not in log_levels.loggers()


def test_the_root_stays_when_it_is_unset() -> None:
    before = logging.root.level
    log_levels.unset_level(log_levels.ROOT)
    assert logging.root.level == before
