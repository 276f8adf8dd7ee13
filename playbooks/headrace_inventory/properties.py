"""Java's properties format, which services read files of settings in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}


def properties_text(properties: Mapping[str, Any]) -> str:
    """A line a property, by name, such that it is read as it is here."""
    lines = (f"{_key(str(key))}={_value(value)}\n" for key, value in sorted(properties.items()))
    return "# Managed by Ansible: change the inventory, not this file.\n" + "".join(lines)


def _key(key: str) -> str:
    return re.sub(r"([=:#! ])", r"\\\1", _escaped(key))


def _value(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return re.sub(r"^ ", r"\\ ", _escaped(text))


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(character, character) for character in text)
