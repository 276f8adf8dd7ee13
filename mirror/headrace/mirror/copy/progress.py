"""How far a copy has come, and how far it is behind: None where nobody knows, which is never the same as 0. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.mirror.questions import UNKNOWN

LAG_KNOWN_MS = 30_000
"""An older answer of the source says nothing of now."""


@dataclass(slots=True)
class Progress:
    """`source_end_offset` is of the answer at `answered_ms`, -1 once a later question got none; `max_timestamp` is the
    copy's last message's.
    """

    began_ms: int = UNKNOWN
    answered_ms: int = UNKNOWN
    source_end_offset: int = UNKNOWN
    max_timestamp: int = UNKNOWN
    caught_up_ms: int = UNKNOWN
    bytes_copied: int = 0
    batches_copied: int = 0

    def answered(self, source_end_offset: int, now_ms: int) -> None:
        """The partition's leader said where its log ends."""
        self.source_end_offset, self.answered_ms = source_end_offset, now_ms

    def silent_ms(self, now_ms: int) -> int:
        """How long the partition's leader has given no answer that is of use."""
        return max(0, now_ms - max(self.answered_ms, self.began_ms))

    def lag_messages(self, next_offset: int, now_ms: int) -> int | None:
        """Offsets that the source had at its last answer from `next_offset` on, where the copy goes on."""
        if self.source_end_offset < 0 or now_ms - self.answered_ms > LAG_KNOWN_MS:
            return None
        return max(0, self.source_end_offset - next_offset)

    def lag_ms(self, next_offset: int, now_ms: int) -> int | None:
        """0 when the copy had all at the source's last answer, else the age of its last message."""
        missing = self.lag_messages(next_offset, now_ms)
        if not missing:
            return missing
        since_ms = self.max_timestamp if self.max_timestamp >= 0 else self.caught_up_ms
        return max(0, now_ms - since_ms) if since_ms >= 0 else None
