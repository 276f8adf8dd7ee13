"""HOST:PORT: headrace.broker.addresses."""

from __future__ import annotations

import pytest

from headrace.broker.addresses import address_text, split_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("kafka-1.example.com:9092", ("kafka-1.example.com", 9092)),
        ("[2001:db8::1]:65535", ("2001:db8::1", 65535)),
        (":0", ("", 0)),
    ],
)
def test_host_and_port_are_told_apart(text: str, address: tuple[str, int]) -> None:
    assert split_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "kafka-1", "kafka-1:", "kafka-1:x", "kafka-1:65536", "kafka-1:-1", "kafka-1:٩"]
)
def test_what_names_no_port_is_no_address(text: str) -> None:
    assert split_address(text) is None


@pytest.mark.parametrize("address", [("kafka-1.example.com", 9092), ("2001:db8::1", 0)])
def test_an_address_is_written_as_it_is_read(address: tuple[str, int]) -> None:
    assert split_address(address_text(*address)) == address
