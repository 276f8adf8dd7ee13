"""Who owns which partitions of a source: the Kafka paper's Algorithm 1 for one member. Pure.

    ownership.joined / members_changed / partitions_changed / session_lost
    ownership.claimed / refused / released          what became of a command
    ownership.commands(now_ms) → Release… Claim…    what to do next

Each member works out the same ranges from the same two lists, gives up what is another's now, claims what is its own, and where
somebody still owns that, waits and tries again. Differs from the paper in that what a member has before and after a change is
not given up between. Invariants: a partition is owned only between its claim's success and its release, within one session;
an answer to a command of an earlier session counts for nothing. J. Kreps, N. Narkhede, J. Rao: Kafka, NetDB 2011, section 3.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headrace.broker.wire.partitions import PartitionKey

NO_SESSION = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Stop copying it, have the offset registry say how far it is, then give it up."""

    key: PartitionKey
    session: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Enter the member as its owner."""

    key: PartitionKey
    session: int


def assigned(
    member: str, members: Iterable[str], partitions: Iterable[PartitionKey]
) -> Sequence[PartitionKey]:
    """The range of the sorted partitions that is the member's: the first members have one more where they do not divide."""
    present = sorted(set(members))
    if member not in present:
        return ()
    ordered = sorted(set(partitions))
    place, (share, rest) = present.index(member), divmod(len(ordered), len(present))
    begin = place * share + min(place, rest)
    return ordered[begin : begin + share + (place < rest)]


class Ownership:
    """See the module's text; `owned` is what the member may copy."""

    def __init__(self, member: str, *, retry_ms: int) -> None:
        self.owned: set[PartitionKey] = set()
        self._member = member
        self._retry_ms = retry_ms
        self._session = NO_SESSION
        self._members: tuple[str, ...] = ()
        self._partitions: tuple[PartitionKey, ...] = ()
        self._claiming: set[PartitionKey] = set()
        self._releasing: set[PartitionKey] = set()
        self._waits: dict[PartitionKey, int] = {}

    # -- what is seen

    def joined(self, session: int) -> None:
        """The member is registered, in this session."""
        if session != self._session:
            self.session_lost()
            self._session = session

    def session_lost(self) -> None:
        """Whatever was registered is gone, or will be: nothing is owned any more."""
        self._session, self._members = NO_SESSION, ()
        for keys in (self.owned, self._claiming, self._releasing):
            keys.clear()
        self._waits.clear()

    def members_changed(self, members: Iterable[str]) -> None:
        self._members = tuple(members)

    def partitions_changed(self, partitions: Iterable[PartitionKey]) -> None:
        self._partitions = tuple(partitions)

    # -- what to do

    def commands(self, now_ms: int) -> list[Release | Claim]:
        """What is to be done now, each thing once."""
        if self._session == NO_SESSION or self._member not in self._members:
            return []
        wanted = set(assigned(self._member, self._members, self._partitions))
        given_up = sorted(self.owned - wanted - self._releasing)
        claimable = sorted(wanted - self.owned - self._claiming - self._releasing)
        due = [key for key in claimable if now_ms >= self._waits.get(key, now_ms)]
        self._releasing.update(given_up)
        self._claiming.update(due)
        return [
            *(Release(key=key, session=self._session) for key in given_up),
            *(Claim(key=key, session=self._session) for key in due),
        ]

    # -- what became of it

    def claimed(self, claim: Claim) -> bool:
        """Whether the partition is the member's now: not when its session is over."""
        if claim.session != self._session:
            return False
        self._claiming.discard(claim.key)
        self._waits.pop(claim.key, None)
        self.owned.add(claim.key)
        return True

    def refused(self, claim: Claim, now_ms: int) -> None:
        """Somebody else still owns it."""
        if claim.session == self._session:
            self._claiming.discard(claim.key)
            self._waits[claim.key] = now_ms + self._retry_ms

    def released(self, release: Release) -> None:
        if release.session == self._session:
            self._releasing.discard(release.key)
            self.owned.discard(release.key)
