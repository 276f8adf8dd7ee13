"""The resource "broker logger" of DescribeConfigs and IncrementalAlterConfigs (KIP-412): the levels of this broker's parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headrace.broker import log_levels
from headrace.broker.errors import InvalidConfigError, InvalidRequestError
from headrace.broker.handlers.services import Services
from headrace.broker.structured_log import get_logger

LOG = get_logger(__name__)
SET, DELETE = 0, 1
OPERATIONS = {2: "APPEND", 3: "SUBTRACT"}
DYNAMIC_LOGGER = 6
UNKNOWN_CONFIG_TYPE = 0

Change = Mapping[str, Any]


def described(broker: Services, name: str) -> Iterator[dict[str, Any]]:
    """An entry for each logger of broker `name`, which is this one; raises InvalidRequestError otherwise."""
    if not name:
        raise InvalidRequestError("Broker id must not be empty")
    _check_id(broker, name)
    return (_entry(logger, level) for logger, level in log_levels.loggers().items())


def alter(broker: Services, name: str, changes: Sequence[Change], *, validate_only: bool) -> None:
    """Set and unset levels, all or none of them; raises InvalidRequestError, InvalidConfigError."""
    _check_id(broker, name)
    for change in changes:
        _check(change)
    if validate_only:
        return
    for change in changes:
        logger, level = change["name"], change["value"]
        if change["config_operation"] == SET:
            log_levels.set_level(logger, level)
        else:
            log_levels.unset_level(logger)
        LOG.info("log level changed", of=logger, to=log_levels.loggers()[logger])


def _check_id(broker: Services, name: str) -> None:
    try:
        number = int(name)
    except ValueError:
        raise InvalidRequestError(f"Node id must be an integer, but it is: {name[:100]}") from None
    if number != broker.broker_id:
        raise InvalidRequestError(
            f"Unexpected broker id, expected {broker.broker_id}, but received {name[:100]}"
        )


def _check(change: Change) -> None:
    logger, operation = change["name"], change["config_operation"]
    if operation not in (SET, DELETE):
        kind = OPERATIONS.get(operation, f"Unknown operation type {operation}")
        raise InvalidRequestError(f"{kind} operation is not allowed for the BROKER_LOGGER resource")
    if not log_levels.exists(logger):
        raise InvalidConfigError(f"Logger {logger} does not exist!")
    if operation == SET and change["value"] not in log_levels.LEVELS:
        levels = ", ".join(sorted(log_levels.LEVELS))
        raise InvalidConfigError(
            f"Cannot set the log level of {logger} to {change['value']} as it is not a supported log level. "
            f"Valid log levels are {levels}"
        )
    if operation == DELETE and logger == log_levels.ROOT:
        raise InvalidRequestError(f"Removing the log level of the {logger} logger is not allowed")


def _entry(logger: str, level: str) -> dict[str, Any]:
    return {
        "name": logger,
        "value": level,
        "read_only": False,
        "is_default": False,
        "config_source": DYNAMIC_LOGGER,
        "is_sensitive": False,
        "synonyms": [],
        "config_type": UNKNOWN_CONFIG_TYPE,
        "documentation": None,
    }
