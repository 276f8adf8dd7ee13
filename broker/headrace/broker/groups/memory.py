"""How much the members of all of a broker's groups take in memory, and the bound on it.

Apache Kafka bounds the members of a group and the bytes of a request, not their product. Sizes are what members brought
(subscriptions, assignments, names) and a fixed cost a member; committed offsets are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass

MEMBERS_SIZE_MAX = 64 * 1024 * 1024
# What a member costs beside what it brought: its objects, timers and entries.
MEMBER_SIZE = 1000


@dataclass(slots=True)
class MembersMemory:
    """One for all shards of a broker."""

    size_max: int = MEMBERS_SIZE_MAX
    size: int = 0

    def has_room(self, size: int) -> bool:
        """Whether `size` bytes more stay within the bound; what takes nothing more always does."""
        return size <= 0 or self.size + size <= self.size_max
