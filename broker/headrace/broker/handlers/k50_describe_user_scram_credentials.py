"""DescribeUserScramCredentials (key 50), version 0 (KIP-554): which mechanisms users have passwords for; never the passwords.

No deviations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.broker.auth.operations import Operation
from headrace.broker.auth.sasl.credentials import MECHANISM_CODES, ScramCredential
from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.access import Access
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k50_describe_user_scram_credentials

API = k50_describe_user_scram_credentials.API
VERSIONS = (0, 0)
# Of a name that an error repeats: with all of it a long one would not fit into the answer.
REPEATED_LENGTH = 1000
Answer = dict[str, Any]


def handle(broker: Services, call: Call, request: dict[str, Any]) -> Answer | Deferred[Answer]:
    users = [each["name"] for each in request["users"] or ()]
    if broker.authorizer is not None and not Access(broker.authorizer, call).may_cluster(Operation.DESCRIBE):
        refusal = {
            "error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            "error_message": "Cluster authorization failed.",
        }
        # Kafka names nobody in them.
        results = [{"user": "", "credential_infos": [], **refusal} for _ in users]
        return {**refusal, "results": results}
    return broker.later("describe-user-scram-credentials", _answer(broker, users))


async def _answer(broker: Services, users: Sequence[str]) -> Answer:
    """Of these users, or of all when none is named."""
    if users:
        stored = await broker.credentials.stored({user for user in users if user})
        results = [_asked(user, count, stored) for user, count in Counter(users).items()]
    else:
        stored = await broker.credentials.stored(None)
        results = [_described(user, found) for user, found in sorted(stored.items()) if found]
    return {"error_code": 0, "error_message": "", "results": results}


def _asked(user: str, count: int, stored: Mapping[str, Mapping[str, str]]) -> Answer:
    """What is told of a user whom a request names so often."""
    if not user:
        return _refused(user, ErrorCode.RESOURCE_NOT_FOUND, "Username must not be empty")
    if count > 1:
        twice = "Cannot describe SCRAM credentials for the same user twice in a single request"
        return _refused(user, ErrorCode.DUPLICATE_RESOURCE, f"{twice}: {user[:REPEATED_LENGTH]}")
    if not stored.get(user):
        nobody = "Attempt to describe a user credential that does not exist"
        return _refused(user, ErrorCode.RESOURCE_NOT_FOUND, f"{nobody}: {user[:REPEATED_LENGTH]}")
    return _described(user, stored[user])


def _described(user: str, found: Mapping[str, str]) -> Answer:
    try:
        infos = [
            {"mechanism": code, "iterations": ScramCredential.parse(found[name]).iterations}
            for code, name in MECHANISM_CODES.items()
            if name in found
        ]
    except ValueError as error:
        return _refused(user, ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
    return {"user": user, "error_code": 0, "error_message": "", "credential_infos": infos}


def _refused(user: str, code: ErrorCode, message: str) -> Answer:
    return {"user": user, "error_code": code, "error_message": message, "credential_infos": []}
