"""Registers a schema once and returns its id: one request to the registry, repeated while it is not reachable."""

from __future__ import annotations

import logging
import time
from contextlib import closing
from typing import Final

from headrace.events.registry_address import RegistryAddress
from headrace.events.registry_client import NoAnswerError, RegistryClient, StatusError

_log = logging.getLogger("headrace.producer")

REQUEST_SECONDS_MAX: Final = 10.0
RETRY_SECONDS: Final = 0.5


class RegistrationError(Exception):
    """The registry refused a schema, or could not be reached in time; the message says which and what to do."""


def register(registry: RegistryAddress, subject: str, schema: str, *, seconds_max: float) -> int:
    """Return the id of a schema under a subject, registering it when it is new there."""
    with closing(RegistryClient(registry, timeout_seconds=REQUEST_SECONDS_MAX)) as client:
        return _registered(client, subject, schema, seconds_max)


def _registered(client: RegistryClient, subject: str, schema: str, seconds_max: float) -> int:
    deadline = time.monotonic() + seconds_max
    said = ""
    while True:
        try:
            return client.register(subject, schema)
        except StatusError as error:
            if error.status < 500 and error.status not in (408, 429):
                raise RegistrationError(
                    f"registry {client.url} refused subject {subject}: {error}"
                ) from error
            reason = str(error)
        except NoAnswerError as error:
            reason = str(error)
        if time.monotonic() >= deadline:
            raise RegistrationError(
                f"registry {client.url} gave no id for subject {subject} within {seconds_max:g} s ({reason}): "
                "check that it runs at this address"
            )
        if reason != said:
            _log.warning("registry %s: %s; trying again", client.url, reason)
            said = reason
        time.sleep(RETRY_SECONDS)
