"""DescribeAcls (key 29), versions 0-3: the access control lists that a filter takes. No deviations."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from headrace.broker.auth.acls import Binding, Pattern
from headrace.broker.auth.operations import Operation
from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.access import require_cluster
from headrace.broker.handlers.acl_messages import filter_of
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.wire.api import k29_describe_acls

API = k29_describe_acls.API
VERSIONS = (0, 3)


def handle(broker: Services, call: Call, request: dict[str, Any]) -> dict[str, Any]:
    wanted = filter_of(request)
    require_cluster(broker, call, Operation.DESCRIBE)
    if broker.access_lists is None:
        return {
            "error_code": ErrorCode.SECURITY_DISABLED,
            "error_message": "No Authorizer is configured on the broker",
            "resources": [],
        }
    found = groupby(broker.access_lists.matching(wanted), _pattern_of)
    return {
        "error_code": 0,
        "error_message": None,
        "resources": [
            {
                "resource_type": pattern.kind,
                "resource_name": pattern.name,
                "pattern_type": pattern.type,
                "acls": [
                    {
                        "principal": entry.principal,
                        "host": entry.host,
                        "operation": entry.operation,
                        "permission_type": entry.permission,
                    }
                    for _, entry in bindings
                ],
            }
            for pattern, bindings in found
        ],
    }


def _pattern_of(binding: Binding) -> Pattern:
    return binding.pattern
