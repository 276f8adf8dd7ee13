"""What the roll-out writes is what a service reads."""

from __future__ import annotations

from headrace.broker.config.properties import parse_properties
from headrace_inventory.properties import properties_text


def test_odd_keys_and_values_are_read_as_they_are() -> None:
    odd = {"a": "1", "s3.secret-access-key": "a\\b=c\\", "b c": " d", "#e": "f:g\nh", "on": True, "empty": ""}
    assert parse_properties(properties_text(odd)) == {**odd, "on": "true"}
