"""A registration is repeated within its time while the registry is away, and ends at once when it is refused."""

from __future__ import annotations

import logging
import time

import pytest
from registry_kit import scripted_registry

from headrace.events.registry_address import RegistryAddress
from headrace.producer.registration import RegistrationError, register

VERSIONS = "/subjects/orders-value/versions"


def test_a_refusal_ends_it_with_the_registrys_sentence() -> None:
    refused = (409, {"error_code": 409, "message": "not compatible"})
    with scripted_registry({VERSIONS: refused}) as registry:
        url = registry.url.replace("://", "://web:secret@")
        with pytest.raises(RegistrationError) as raised:
            register(RegistryAddress(url), "orders-value", '"int"', seconds_max=30)
        assert len(registry.posted) == 1
    assert str(raised.value) == f"registry {registry.url} refused subject orders-value: not compatible"


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_registry_that_cannot_now_is_asked_until_it_can_or_the_time_is_over(
    status: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with scripted_registry({VERSIONS: (status, b"")}) as registry:
        monkeypatch.setattr(time, "sleep", lambda _: registry.answers.update({VERSIONS: (200, {"id": 7})}))
        assert register(RegistryAddress(registry.url), "orders-value", '"int"', seconds_max=30) == 7
        assert len(registry.posted) == 2
        registry.answers[VERSIONS] = (status, b"")
        with pytest.raises(RegistrationError) as raised:
            register(RegistryAddress(registry.url), "orders-value", '"int"', seconds_max=0)
        assert len(registry.posted) == 3
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert said == [f"registry {registry.url}: HTTP status {status}; trying again"]
    assert str(raised.value) == (
        f"registry {registry.url} gave no id for subject orders-value within 0 s (HTTP status {status}): "
        "check that it runs at this address"
    )
