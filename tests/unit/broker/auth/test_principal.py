"""Principals as Kafka writes them."""

from __future__ import annotations

import pytest

from headrace.broker.auth.principal import ANONYMOUS, Principal


def test_a_principal_is_its_type_and_its_name() -> None:
    assert str(ANONYMOUS) == "User:ANONYMOUS"
    assert Principal.parse("User:alice") == Principal("User", "alice")


def test_a_name_may_hold_colons_and_commas() -> None:
    assert Principal.parse("User:CN=a:b,O=c") == Principal("User", "CN=a:b,O=c")


@pytest.mark.parametrize("text", ["", "alice"])
def test_what_has_no_type_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no principal: give TYPE:NAME"):
        Principal.parse(text)
