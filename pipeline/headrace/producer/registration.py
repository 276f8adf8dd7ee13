"""Registers a schema once and returns its id: one POST to the registry, repeated while it is not reachable."""

from __future__ import annotations

import json
import logging
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Final

_log = logging.getLogger("headrace.producer")

REQUEST_SECONDS_MAX: Final = 10.0
RETRY_SECONDS: Final = 0.5


class RegistrationError(Exception):
    """The registry refused a schema, or could not be reached in time; the message says which and what to do."""


def register(registry_url: str, subject: str, schema: str, *, seconds_max: float) -> int:
    """Return the id of a schema under a subject, registering it when it is new there."""
    quoted = urllib.parse.quote(subject, safe="")
    url = f"{registry_url.rstrip('/')}/subjects/{quoted}/versions"
    deadline = time.monotonic() + seconds_max
    said = ""
    while True:
        try:
            return _post(url, schema)
        except urllib.error.HTTPError as error:
            reason = _reason(error)
            if error.code < 500 and error.code not in (408, 429):
                raise RegistrationError(
                    f"registry {registry_url} refused subject {subject}: {reason}"
                ) from error
        except (OSError, ValueError) as error:
            reason = str(getattr(error, "reason", error))
        if time.monotonic() >= deadline:
            raise RegistrationError(
                f"registry {registry_url} gave no id for subject {subject} within {seconds_max:g} s ({reason}): "
                "check that it runs at this address"
            )
        if reason != said:
            _log.warning("registry %s: %s; trying again", registry_url, reason)
            said = reason
        time.sleep(RETRY_SECONDS)


def _post(url: str, schema: str) -> int:
    request = urllib.request.Request(
        url,
        data=json.dumps({"schema": schema}).encode(),
        headers={"Content-Type": "application/vnd.schemaregistry.v1+json"},
    )
    with urllib.request.urlopen(request, timeout=REQUEST_SECONDS_MAX) as response:
        answer = json.load(response)
    if not isinstance(answer, dict) or not isinstance(answer.get("id"), int):
        raise ValueError("the answer has no id, is this a schema registry?")
    schema_id: int = answer["id"]
    return schema_id


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["message"])
    except (ValueError, KeyError, TypeError, OSError):
        return f"HTTP status {error.code}"
