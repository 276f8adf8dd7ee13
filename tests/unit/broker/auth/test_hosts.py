"""Addresses in Java's words."""

from __future__ import annotations

import pytest

from headrace.broker.auth.hosts import host_text


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:DB8::00a0:1", "2001:db8:0:0:0:0:a0:1"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
    ],
)
def test_an_address_is_written_as_java_does(address: str, text: str) -> None:
    assert host_text(address) == text


@pytest.mark.parametrize("text", ["10.0.0.0/8", "10.0.0", "010.0.0.7", "::1/128", "localhost", "*", ""])
def test_all_else_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="does not appear to be"):
        host_text(text)
