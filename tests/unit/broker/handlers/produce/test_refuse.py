"""A client that may write to one topic and not to another, alone and with what came together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from calls import call_in, call_of
from log_kit import batch
from produce_world import World, codes, request, serve_apart

from headrace.broker.auth.acl_authorizer import AclAuthorizer
from headrace.broker.auth.acls import Entry, Pattern, Permission
from headrace.broker.auth.decisions import Decisions
from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.access import access
from headrace.broker.handlers.produce import handler
from headrace.broker.handlers.produce.read import Request
from headrace.broker.handlers.produce.refuse import without_refused
from headrace.broker.wire.batches import Record, encode_batch

REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
IN_TRANSACTION = memoryview(
    encode_batch(
        [Record(0, 1, None, b"x", [])], transactional=True, producer_id=1, producer_epoch=0, base_sequence=0
    )
)
PLAIN = memoryview(batch())


def serve_together(world: Any, requests: Sequence[bytes]) -> bytes:
    """All of them wait when the first has its turn."""
    waiting, replies = [memoryview(bytearray(data)) for data in requests], b""
    while waiting:
        frame, *waiting = waiting
        parts, more = handler.handle_run(world, call_of(frame), frame, waiting)
        assert isinstance(parts, list)
        replies += b"".join(parts)  # type: ignore[arg-type]
        waiting = waiting[more:]
    return replies


def guarded(world: Any, *allowed: tuple[ResourceType, str]) -> Any:
    """Everybody may write there, and nowhere else."""
    world.decisions = Decisions({})
    world.authorizer = AclAuthorizer(world.decisions)
    for kind, name in allowed:
        entry = Entry("User:*", "*", Operation.WRITE, Permission.ALLOW)
        world.authorizer.put(Pattern(kind, name), frozenset((entry,)))
    return world


@pytest.mark.parametrize("serve", [serve_apart, serve_together])
def test_each_request_is_answered_for_itself(tmp_path: Path, serve: Any) -> None:
    world = guarded(World(tmp_path), (ResourceType.TOPIC, "events"))
    requests = [
        request(9, number, bytes(batch()), topic=topic, index=0)
        for number, topic in enumerate(("events", "events", "more", "more", "events"))
    ]
    answers = serve(world, requests)
    assert codes(9, answers) == [0, 0, REFUSED, REFUSED, 0]
    assert world.partition.log.log_end_offset > 0
    assert world.more[0].log.log_end_offset == 0
    assert world.decisions.denied_counts == {(ResourceType.TOPIC, Operation.WRITE): 2}


def outcomes(world: Any, transactional_id: str | None, *items: Any) -> tuple[int, list[int]]:
    """(how many items may be appended, the codes of the others)."""
    rights = access(world, call_in(9))
    assert rights is not None
    left, refused = without_refused(rights, Request(1, 1000, list(items), transactional_id))
    return len(left.items), [outcome.error.code for outcome in refused if outcome.error is not None]


def test_a_transaction_that_may_not_be_is_refused_as_a_whole(tmp_path: Path) -> None:
    ids = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    world = guarded(World(tmp_path), (ResourceType.TOPIC, "events"), (ResourceType.TRANSACTIONAL_ID, "mine"))
    plain, inside = ("events", 0, PLAIN), ("events", 0, IN_TRANSACTION)
    assert outcomes(world, "mine", plain, inside) == (2, [])
    assert outcomes(world, "other", plain, inside) == (0, [ids, ids])
    assert outcomes(world, None, plain, inside) == (0, [ids, ids])
    assert outcomes(world, "other", plain) == (1, []), "nothing of it is in a transaction"
    assert outcomes(world, "mine", inside, ("more", 0, IN_TRANSACTION)) == (1, [REFUSED])
