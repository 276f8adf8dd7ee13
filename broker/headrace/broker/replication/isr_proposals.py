"""Which proposed changes of in-sync replicas are sent to the controller, and when.

Pure. Invariants: at most one request is under way a broker, and at most one proposal a partition in it; the newest proposal
of a partition is the one that counts; what nobody wants any more, as its leadership is over, is never sent again; a request
holds at most `PROPOSALS_MAX` proposals. Knows no connection, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple
from uuid import UUID

from headrace.broker.errors import ErrorCode
from headrace.broker.replication.events import IsrAnswer
from headrace.broker.replication.leader import IsrProposal
from headrace.broker.replication.model import PartitionState
from headrace.broker.wire.partitions import PartitionKey

PROPOSALS_MAX = 1000
FINAL = (
    ErrorCode.OPERATION_NOT_ATTEMPTED,
    ErrorCode.INELIGIBLE_REPLICA,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
)
"""With these the controller has decided; after any other error it is asked again (kafka.cluster.Partition)."""


class ProposalOf(NamedTuple):
    """A proposal, and the partition that it is of."""

    topic: str
    partition: int
    topic_id: UUID
    proposal: IsrProposal


class IsrProposals:
    """See the module's text. `is_wanted(proposal of)`: whether its leader still waits for an answer to it."""

    def __init__(self, is_wanted: Callable[[ProposalOf], bool]) -> None:
        self._is_wanted = is_wanted
        self._waiting: dict[PartitionKey, ProposalOf] = {}
        self._under_way: dict[PartitionKey, ProposalOf] = {}

    def propose(self, proposed: ProposalOf) -> None:
        """Send it with the next request; an earlier one of the partition that was not sent yet is void.

        One that nobody wants any more, as its leadership ended while the log was synced, takes no newer one's place.
        """
        if self._is_wanted(proposed):
            self._waiting[proposed.topic, proposed.partition] = proposed

    def next_request(self) -> list[ProposalOf]:
        """What to send now; nothing while a request is under way, or when nobody wants anything."""
        if self._under_way:
            return []
        self._waiting = {
            key: proposed for key, proposed in self._waiting.items() if self._is_wanted(proposed)
        }
        keys = list(self._waiting)[:PROPOSALS_MAX]
        self._under_way = {key: self._waiting.pop(key) for key in keys}
        return list(self._under_way.values())

    def answered(self, answers: Mapping[PartitionKey, IsrAnswer]) -> list[tuple[ProposalOf, IsrAnswer]]:
        """The request under way was answered: what is decided. All else is sent again, also what was left out."""
        sent, self._under_way = self._under_way, {}
        decided = []
        for key, proposed in sent.items():
            answer = answers.get(key)
            if isinstance(answer, PartitionState) or answer in FINAL:
                assert answer is not None, "no error is final that was not answered"
                decided.append((proposed, answer))
            else:
                self._waiting.setdefault(key, proposed)
        return decided

    def failed(self) -> None:
        """The request under way has no answer, or was refused as a whole: it is sent again, as far as it is wanted."""
        self.answered({})

    @property
    def has_more(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._waiting)
