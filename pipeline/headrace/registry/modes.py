"""What a subject's mode lets clients do, by the names that Confluent's registry stores. Pure.

A mode holds for a subject, or for all that have none of their own; without any it is READWRITE.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

READWRITE: Final = "READWRITE"
READONLY: Final = "READONLY"
IMPORT: Final = "IMPORT"
SETTABLE: Final = (READWRITE, READONLY, IMPORT)
IMPORTING: Final = frozenset((IMPORT, "FORWARD"))
"""Schemas come with ids of their own, and no others are taken."""
READ_ONLY: Final = frozenset((READONLY, "READONLY_OVERRIDE"))
STORED: Final = IMPORTING | READ_ONLY | {READWRITE}
"""What another registry may have written to the topic."""


def mode_of(modes: Mapping[str | None, str], subject: str | None) -> str:
    """Return the mode that holds for a subject, or globally (None)."""
    return modes.get(subject) or modes.get(None, READWRITE)
