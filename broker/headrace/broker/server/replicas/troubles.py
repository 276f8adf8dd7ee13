"""What people are told of partitions that cannot be followed: one line for each new trouble, not for each attempt."""

from __future__ import annotations

from headrace.broker.replication.follower import AWAITING_CONTROLLER, Follower, Phase
from headrace.broker.structured_log import get_logger

logger = get_logger(__name__)


class Troubles:
    """Of the partitions that one broker leads, `source`."""

    def __init__(self, source: int) -> None:
        self._source = source
        # Who learned from an answer that the controller has spoken, and has not heard it yet.
        self._awaiting: list[Follower] = []

    def tell(self, follower: Follower, before: str) -> None:
        """One line for a trouble of a partition that is another one than `before`."""
        if follower.problem == AWAITING_CONTROLLER:
            self._awaiting.append(follower)
        elif follower.problem and follower.problem != before:
            logger.warning(
                "partition cannot be followed"
                if follower.phase is Phase.FAILED
                else "partition is followed later",
                topic=follower.topic,
                partition=follower.partition,
                leader=self._source,
                leader_epoch=follower.leader_epoch,
                offset=follower.log.log_end_offset,
                reason=follower.problem,
            )

    def tell_awaiting(self) -> None:
        """One line for all of an answer: at every change of leaders some hear of it before others."""
        awaiting, self._awaiting = self._awaiting, []
        if awaiting:
            logger.info(
                "partitions are followed later",
                leader=self._source,
                partitions=len(awaiting),
                first=f"{awaiting[0].topic}-{awaiting[0].partition}",
                leader_epoch=awaiting[0].leader_epoch,
                reason=AWAITING_CONTROLLER,
            )
