"""Brings what leaders propose of their in-sync replicas to the controller, and its answers back (KIP-497).

Performs `replication.isr_proposals`: one request at a time, to the controller wherever it is, again after a pause until it is
answered or nobody wants it any more. A leader that would be left with fewer replicas than `min.insync.replicas` has its log
on the disk before it asks (KIP-966). Each change is one log line and counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from headrace.broker.errors import ErrorCode, KafkaError, UnsupportedVersionError, error_of
from headrace.broker.replication import alter_partition
from headrace.broker.replication.events import Answer, AnswerIsrProposal, IsrAnswer, IsrProposed
from headrace.broker.replication.isr_proposals import IsrProposals, ProposalOf
from headrace.broker.replication.leader import IsrProposal
from headrace.broker.replication.model import ids_text
from headrace.broker.replication.partition import Partition
from headrace.broker.server.peers.controller_channel import ControllerChannel
from headrace.broker.server.peers.requests import PAUSE_SECONDS_MAX, PAUSE_SECONDS_MIN
from headrace.broker.structured_log import get_logger
from headrace.broker.tasks import Tasks, paced
from headrace.broker.wire.api import k56_alter_partition
from headrace.broker.wire.fields import MalformedError
from headrace.broker.wire.partitions import PartitionKey

logger = get_logger(__name__)
DECIDED_AT_ONCE = 25
"""Answers to proposals, each of them a line of the log, before others have their turn: about a millisecond."""


class Office(Protocol):
    """The controller's office, which may be this broker's."""

    @property
    def is_controller(self) -> bool: ...

    async def answer(self, event: IsrProposed, /) -> Answer: ...


class IsrCounts:
    """Changes of the in-sync replicas of led partitions since the start, by Kafka's names."""

    def __init__(self) -> None:
        self.shrinks = self.expands = self.failed = 0


class IsrChanges:
    """See the module's text. `secure(partition)` brings all of its log to the disk, and answers whether it is there."""

    def __init__(
        self,
        broker_id: int,
        office: Office,
        channel: ControllerChannel,
        tasks: Tasks,
        *,
        broker_epoch: Callable[[], int],
        timeout_ms: int,
        secure: Callable[[Partition], Awaitable[bool]],
    ) -> None:
        self._broker_id = broker_id
        self._office = office
        self._channel = channel
        self._tasks = tasks
        self._broker_epoch = broker_epoch
        self._timeout_ms = timeout_ms
        self._secure = secure
        self._proposals = IsrProposals(self._is_wanted)
        # Those of which the controller was asked something.
        self._partitions: dict[PartitionKey, Partition] = {}
        self._proposed = asyncio.Event()
        self._is_failing = False
        self.counts = IsrCounts()

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        """Ask the controller, after a sync where the proposal wants one; never waits."""
        self._partitions[partition.topic, partition.partition] = partition
        if proposal.syncs_first:
            self._tasks.start("sync before an ISR change", self._propose_secured(partition, proposal))
        else:
            self._send(partition, proposal)

    async def run(self) -> None:
        """Send and answer until cancelled."""
        pause = PAUSE_SECONDS_MIN
        try:
            while True:
                if not self._proposals.has_more:
                    self._proposed.clear()
                    await self._proposed.wait()
                if await self._exchange():
                    pause = PAUSE_SECONDS_MIN
                else:
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, PAUSE_SECONDS_MAX)
        finally:
            self._channel.close()

    async def _propose_secured(self, partition: Partition, proposal: IsrProposal) -> None:
        if await self._secure(partition):
            self._send(partition, proposal)
        else:
            # It was never sent: the next look at who lags proposes it again.
            partition.proposal_answered(proposal, ErrorCode.OPERATION_NOT_ATTEMPTED)

    def _send(self, partition: Partition, proposal: IsrProposal) -> None:
        self._proposals.propose(
            ProposalOf(partition.topic, partition.partition, partition.topic_id, proposal)
        )
        self._proposed.set()

    def _is_wanted(self, proposed: ProposalOf) -> bool:
        leadership = self._partitions[proposed.topic, proposed.partition].leadership
        return leadership is not None and leadership.proposed is proposed.proposal

    async def _exchange(self) -> bool:
        """One request and its answer; whether the next may follow at once."""
        sent = self._proposals.next_request()
        if not sent:
            return True
        try:
            answers = await self._answers(sent)
        except (OSError, KafkaError, MalformedError) as error:
            self._proposals.failed()
            self._failed(error)
            return False
        self._is_failing = False
        decided = self._proposals.answered(answers)
        async for proposed, answer in paced(decided, DECIDED_AT_ONCE):
            self._decided(proposed, answer)
        self.counts.failed += len(sent) - len(decided)
        return len(decided) == len(sent)

    async def _answers(self, sent: list[ProposalOf]) -> dict[PartitionKey, IsrAnswer]:
        broker_epoch = self._broker_epoch()
        if self._office.is_controller:
            event = alter_partition.event(sent, broker_id=self._broker_id, broker_epoch=broker_epoch)
            # It waits for ZooKeeper, which may be away until another broker is controller.
            async with asyncio.timeout(self._timeout_ms / 1000):
                answer = await self._office.answer(event)
            assert isinstance(answer, AnswerIsrProposal), "it answers IsrProposed"
            if answer.error:
                raise error_of(answer.error)
            return {(p.topic, p.partition): a for p, a in zip(sent, answer.answers, strict=True)}
        version, message = await self._channel.ask(
            k56_alter_partition.API,
            alter_partition.version_max(sent),
            lambda version: alter_partition.request(
                sent, version, broker_id=self._broker_id, broker_epoch=broker_epoch
            ),
        )
        if message["error_code"]:
            self._channel.close()
            raise error_of(message["error_code"])
        return alter_partition.answers(message, version, sent)

    def _failed(self, error: Exception) -> None:
        if isinstance(error, UnsupportedVersionError) or not self._is_failing:
            logger.warning("the controller takes no ISR changes, asking again", reason=repr(error))
        self._is_failing = True

    def _decided(self, proposed: ProposalOf, answer: IsrAnswer) -> None:
        topic, number, _, proposal = proposed
        partition = self._partitions[topic, number]
        if not partition.proposal_answered(proposal, answer):
            self.counts.failed += 1
            logger.info(
                "ISR change refused",
                topic=topic,
                partition=number,
                isr=ids_text(proposal.isr),
                leader_epoch=proposal.leader_epoch,
                partition_epoch=proposal.partition_epoch,
                reason=answer.name if isinstance(answer, ErrorCode) else "another state came before",
            )
            return
        if proposal.joining:
            self.counts.expands += 1
        else:
            self.counts.shrinks += 1
        logger.info(
            "ISR changed",
            topic=topic,
            partition=number,
            isr=ids_text(partition.isr),
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            high_watermark=partition.high_watermark,
            reason=_reason(proposal),
        )


def _reason(proposal: IsrProposal) -> str:
    if proposal.joining:
        return f"{ids_text(proposal.joining)} caught up"
    return f"{ids_text(proposal.leaving)} lagged for longer than replica.lag.time.max.ms"
