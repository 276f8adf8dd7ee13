"""What was decided about requests: counted, and told in Kafka's words by a logger that has Kafka's name.

Who is refused is told at level info, who is let in at level debug.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from headrace.broker.auth.acls import title
from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.auth.principal import Principal
from headrace.broker.structured_log import AUTHORIZER_LOGGER, get_logger

logger = get_logger(AUTHORIZER_LOGGER)
_is_enabled_for = logging.getLogger(AUTHORIZER_LOGGER).isEnabledFor
_DEBUG = logging.DEBUG
ANY_NAME = "NONE"
"""Stands for all resources of a kind where it was asked about any of them."""


class Decisions:
    """`denied_counts` are by kind of resource and operation."""

    def __init__(self, request_names: Mapping[int, str]) -> None:
        """`request_names`: the names of API keys."""
        self._request_names = request_names
        self.granted_count = 0
        self.denied_counts: dict[tuple[ResourceType, Operation], int] = {}

    def granted(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        kind: ResourceType,
        name: str,
        key: int,
        /,
    ) -> None:
        """A request of that API may do it."""
        self.granted_count += 1
        if _is_enabled_for(_DEBUG):
            logger.debug(self._told("Allowed", principal, host, operation, kind, name, key))

    def denied(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        kind: ResourceType,
        name: str,
        key: int,
        /,
    ) -> None:
        """A request of that API was refused for it."""
        self.denied_counts[kind, operation] = self.denied_counts.get((kind, operation), 0) + 1
        logger.info(self._told("Denied", principal, host, operation, kind, name, key))

    def _told(
        self,
        result: str,
        principal: Principal,
        host: str,
        operation: Operation,
        kind: ResourceType,
        name: str,
        key: int,
    ) -> str:
        pattern = "UNKNOWN" if name == ANY_NAME else "LITERAL"
        return (
            f"Principal = {principal} is {result} Operation = {title(operation)} from host = {host} "
            f"on resource = {title(kind)}:{pattern}:{name} for request = {self._request_names.get(key, key)}"
        )
