"""What is refused of a request to add to lists, whatever it says."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from calls import call_in

from headrace.broker.auth.acl_authorizer import AclAuthorizer
from headrace.broker.auth.decisions import Decisions
from headrace.broker.handlers import k30_create_acls
from headrace.broker.handlers.replies import CloseConnectionError
from headrace.broker.server.access.acl_store import AclStore
from headrace.broker.waiting.deferred import Deferred

LONG = "x" * 32_767
GOOD = {
    "resource_type": 2,
    "resource_name": "events",
    "resource_pattern_type": 3,
    "principal": "User:alice",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}


def asked(*creations: dict[str, Any]) -> list[dict[str, Any]]:
    """The results; nothing reaches ZooKeeper."""
    store = AclStore(AclAuthorizer(Decisions({})), cast("Any", None), cast("Any", None))

    def later(name: str, work: Any) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        answer.complete(asyncio.run(work))
        return answer

    broker = SimpleNamespace(authorizer=None, access_lists=store, later=later)
    found = k30_create_acls.handle(cast("Any", broker), call_in(3, 30), {"creations": list(creations)})
    results: list[dict[str, Any]] = []
    cast("Deferred[dict[str, Any]]", found).then(lambda answer: results.extend(answer["results"]))
    k30_create_acls.API.encode_response(3, {"results": results})
    return results


@pytest.mark.parametrize(
    ("odd", "code"),
    [
        ({"resource_name": ""}, 42),
        ({"resource_name": f"/{LONG[1:]}"}, 42),
        ({"resource_type": 4}, 42),
        ({"operation": 99}, 42),
        ({"principal": LONG}, -1),
        ({"resource_name": "."}, -1),
    ],
    ids=str,
)
def test_names_of_any_length_are_refused_in_an_answer(odd: dict[str, Any], code: int) -> None:
    (result,) = asked({**GOOD, **odd})
    assert result["error_code"] == code
    assert 0 < len(result["error_message"]) <= 1000


def test_an_element_that_is_called_unknown_closes_the_connection() -> None:
    with pytest.raises(CloseConnectionError):
        asked({**GOOD, "operation": 0})
