"""AlterUserScramCredentials (key 51), version 0 (KIP-554): only the controller writes. All that is asked of a user, or nothing.

Clients send the salted password, so a broker never sees the password itself. No deviations.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.broker.auth.operations import Operation
from headrace.broker.auth.sasl.credentials import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MECHANISM_CODES,
    credential_of,
)
from headrace.broker.errors import ErrorCode, KafkaError, error_of
from headrace.broker.handlers.access import Access
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k51_alter_user_scram_credentials

API = k51_alter_user_scram_credentials.API
VERSIONS = (0, 0)
USERS_AT_ONCE_MAX = 100
Answer = dict[str, Any]
NOT_CONTROLLER = "This is not the correct controller for this cluster."


@dataclass(slots=True)
class _Wish:
    """What is asked for one user."""

    upserted: list[Mapping[str, Any]] = field(default_factory=list)
    deleted: list[int] = field(default_factory=list)

    def refusal(self, user: str) -> KafkaError | None:
        """What is wrong with it by itself."""
        if not user:
            return error_of(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
        codes = [*(each["mechanism"] for each in self.upserted), *self.deleted]
        if not set(codes) <= MECHANISM_CODES.keys():
            return error_of(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        for each in self.upserted:
            if each["iterations"] > ITERATIONS_MAX:
                return error_of(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
            if each["iterations"] < ITERATIONS_MIN:
                return error_of(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
        if max(Counter(codes).values()) > 1:
            twice = "A user credential cannot be altered twice in the same request"
            return error_of(ErrorCode.DUPLICATE_RESOURCE, twice)
        return None

    def applied(self, overrides: Mapping[str, str]) -> dict[str, str]:
        """What the user has afterwards; raises a KafkaError."""
        changed = dict(overrides)
        for code in self.deleted:
            if changed.pop(MECHANISM_CODES[code], None) is None:
                nothing = "Attempt to delete a user credential that does not exist"
                raise error_of(ErrorCode.RESOURCE_NOT_FOUND, nothing)
        for each in self.upserted:
            name = MECHANISM_CODES[each["mechanism"]]
            salted, salt = bytes(each["salted_password"]), bytes(each["salt"])
            changed[name] = credential_of(name, salted, salt, each["iterations"]).text()
        return changed


def handle(broker: Services, call: Call, request: dict[str, Any]) -> Answer | Deferred[Answer]:
    wishes = _wishes(request)
    if not broker.control.is_controller:
        return _all(wishes, error_of(ErrorCode.NOT_CONTROLLER, NOT_CONTROLLER))
    if broker.authorizer is not None and not Access(broker.authorizer, call).may_cluster(Operation.ALTER):
        refusal = error_of(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
        return _all(wishes, refusal)
    return broker.later("alter-user-scram-credentials", _answer(broker, wishes))


def _wishes(request: dict[str, Any]) -> dict[str, _Wish]:
    wishes: dict[str, _Wish] = {}
    for deletion in request["deletions"]:
        wishes.setdefault(deletion["name"], _Wish()).deleted.append(deletion["mechanism"])
    for upsertion in request["upsertions"]:
        wishes.setdefault(upsertion["name"], _Wish()).upserted.append(upsertion)
    return wishes


async def _answer(broker: Services, wishes: Mapping[str, _Wish]) -> Answer:
    at_once = asyncio.Semaphore(USERS_AT_ONCE_MAX)

    async def result(user: str, wish: _Wish) -> Answer:
        async with at_once:
            try:
                if (refusal := wish.refusal(user)) is not None:
                    raise refusal
                await broker.credentials.alter(user, wish.applied)
            except KafkaError as error:
                return _result(user, error)
            return _result(user, None)

    return {"results": await asyncio.gather(*(result(user, wish) for user, wish in wishes.items()))}


def _all(wishes: Mapping[str, _Wish], error: KafkaError) -> Answer:
    return {"results": [_result(user, error) for user in sorted(wishes)]}


def _result(user: str, error: KafkaError | None) -> Answer:
    return {
        "user": user,
        "error_code": ErrorCode.NONE if error is None else error.code,
        "error_message": "" if error is None else str(error),
    }
