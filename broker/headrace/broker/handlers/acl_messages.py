"""What the requests about access control lists have in common: bindings and filters as messages have them, and refusals.

An element whose code is that of UNKNOWN closes the connection, as in Kafka, which refuses to read such a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.broker.auth.acls import (
    Binding,
    BindingFilter,
    Entry,
    EntryFilter,
    Pattern,
    PatternFilter,
    PatternType,
    Permission,
    of_code,
)
from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.errors import ErrorCode, KafkaError, error_of
from headrace.broker.handlers.replies import CloseConnectionError

REFUSAL_LENGTH_MAX = 1000
"""Of what a refusal says: it may repeat a name, which may be as long as a string of the protocol."""
DISABLED = "No Authorizer is configured."


def binding_of(creation: Mapping[str, Any]) -> Binding:
    """The binding of a CreateAcls request; raises CloseConnectionError."""
    codes = [
        creation[name] for name in ("resource_type", "resource_pattern_type", "operation", "permission_type")
    ]
    _refuse_unknown(codes)
    kind, pattern_type, operation, permission = codes
    return Binding(
        Pattern(of_code(ResourceType, kind), creation["resource_name"], of_code(PatternType, pattern_type)),
        Entry(
            creation["principal"],
            creation["host"],
            of_code(Operation, operation),
            of_code(Permission, permission),
        ),
    )


def filter_of(request: Mapping[str, Any]) -> BindingFilter:
    """The filter of a DescribeAcls request, or one of a DeleteAcls request; raises CloseConnectionError."""
    codes = [
        request[name]
        for name in ("resource_type_filter", "pattern_type_filter", "operation", "permission_type")
    ]
    _refuse_unknown(codes)
    kind, pattern_type, operation, permission = codes
    return BindingFilter(
        PatternFilter(
            of_code(ResourceType, kind), request["resource_name_filter"], of_code(PatternType, pattern_type)
        ),
        EntryFilter(
            request["principal_filter"],
            request["host_filter"],
            of_code(Operation, operation),
            of_code(Permission, permission),
        ),
    )


def _refuse_unknown(codes: list[int]) -> None:
    if 0 in codes:
        raise CloseConnectionError(
            "a request about access control lists has an element that is called unknown"
        )


def check_definite(binding: Binding) -> None:
    """Raises the KafkaError of what Kafka fails on: a binding that is a filter."""
    pattern, entry = binding
    if (
        pattern.kind is ResourceType.ANY
        or pattern.type in (PatternType.ANY, PatternType.MATCH)
        or entry.operation is Operation.ANY
        or entry.permission is Permission.ANY
    ):
        raise error_of(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "an access control entry is about something: ANY and MATCH are for filters",
        )


def refusal(error: KafkaError | None) -> dict[str, Any]:
    """How a result says it."""
    return {
        "error_code": 0 if error is None else error.code,
        "error_message": None if error is None else str(error)[:REFUSAL_LENGTH_MAX],
    }
