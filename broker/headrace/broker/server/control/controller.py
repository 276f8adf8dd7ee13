"""Runs for controller, and performs what `replication.controller` decides while this broker is it.

Invariants: events are handled one at a time, each with all its commands, before the next; every write to ZooKeeper is
conditional on the controller's epoch, so that a controller that lost its office without knowing changes nothing; the outcome
of a write is the next event. Decides nothing itself; what it hears of is read by `term_watches`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from headrace.broker.clock import Clock
from headrace.broker.errors import (
    BrokerNotAvailableError,
    ErrorCode,
    KafkaError,
    NotControllerError,
    StaleBrokerEpochError,
    StaleControllerEpochError,
    error_of,
)
from headrace.broker.replication import events
from headrace.broker.replication.controller.machine import Controller
from headrace.broker.replication.versions import Versions
from headrace.broker.server.control.orders import Orders
from headrace.broker.server.control.state_changes import StateChange, StateChanges, state_changes
from headrace.broker.server.control.term import ControllerMovedError, Term
from headrace.broker.server.control.term_watches import TermWatches
from headrace.broker.server.mailbox import Mailbox
from headrace.broker.server.peers.requests import Peers
from headrace.broker.structured_log import get_logger
from headrace.broker.tasks import Tasks
from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.wire.special_values import NO_EPOCH
from headrace.broker.zk import paths
from headrace.broker.zk.client import ZooKeeperClient
from headrace.broker.zk.reads import read_brokers, read_states, understood
from headrace.broker.zk.znodes import (
    Create,
    Set,
    ZnodeExistsError,
    ZnodeVersionError,
    ZooKeeperClosedError,
    ZooKeeperError,
)

logger = get_logger(__name__)
PAUSE_AFTER_FAILURE_SECONDS = 1.0
FIRST_BALANCE_SECONDS = 5.0
NO_CONTROLLER = "This is not the correct controller for this cluster."
T = TypeVar("T")


class ControllerOffice:
    """The candidate, and the controller while elected; `make` gives a fresh state machine for each term."""

    def __init__(
        self,
        zookeeper: ZooKeeperClient,
        clock: Clock,
        tasks: Tasks,
        *,
        broker_id: int,
        listener: str,
        versions: Versions,
        make: Callable[[], Controller],
        peers: Callable[[Callable[[int], None]], Peers],
        learn: Callable[[Mapping[str, bool]], Awaitable[None]],
        balance_interval_s: float | None,
    ) -> None:
        """`learn(topics)` reads the configuration of topics that are new (True) or not known yet.

        `balance_interval_s` is how often preferred leaders are restored; None for never.
        """
        self._zookeeper = zookeeper
        self._clock = clock
        self._tasks = tasks
        self._broker_id = broker_id
        self._make = make
        self._orders = Orders(peers(self._peer_overflowed), broker_id, listener, versions, self._answered)
        self._mailbox = Mailbox(self._failed)
        self.changes = StateChanges()
        self._learn = learn
        self._balance_interval_s = balance_interval_s
        self._core: Controller | None = None
        self._is_registered = True
        self._term: Term | None = None
        self._watches: TermWatches | None = None

    @property
    def is_active(self) -> bool:
        """Whether this broker is controller, as far as it knows."""
        return self._core is not None

    @property
    def epoch(self) -> int:
        """The epoch of the term; -1 when not controller."""
        return -1 if self._core is None else self._core.cluster.epoch

    def figures(self) -> tuple[int, int]:
        """How many partitions nobody leads, and how many another than their first replica; 0 when not controller."""
        if self._core is None:
            return 0, 0
        cluster = self._core.cluster
        return cluster.offline_partition_count(), cluster.imbalance_count()

    def start(self) -> None:
        """Run for controller until the broker's tasks end."""
        self._tasks.start("controller", self._mailbox.run())
        self._zookeeper.watch_data(paths.CONTROLLER, lambda znode: self._mailbox.post(self._office_changed))

    def session_started(self) -> None:
        """A new ZooKeeper session: an office held in the last one is gone, and this broker is no candidate
        until it has registered again.
        """
        self._is_registered = False
        self._mailbox.post(self._office_changed)

    def registered(self) -> None:
        """This broker is registered in the present session: it runs for controller again."""
        self._is_registered = True
        self._mailbox.post(self._office_changed)

    async def shut_down(self, broker_id: int, broker_epoch: int) -> list[PartitionKey]:
        """Lead away from a broker that is about to stop; answers what it still leads.

        Raises StaleControllerEpochError (this broker is not controller), BrokerNotAvailableError (no such broker) and
        StaleBrokerEpochError.
        """

        moved = StaleControllerEpochError(NO_CONTROLLER)
        return await self._ask(lambda: self._shut_down(broker_id, broker_epoch), moved)

    def unclean_allowed(self, topics: frozenset[str] | None) -> None:
        """Replicas that are not in sync may lead these topics from now on, or all that say nothing else."""
        self._tell(events.UncleanElectionsAllowed(topics=topics))

    def topics_written(self, topics: Iterable[str]) -> None:
        """Read these topics before anything that is asked from now on, if this is controller; its watches may say so later."""
        if self._watches is not None:
            self._watches.topics_written(topics)

    def topics_doomed(self) -> None:
        """Read which topics are to go before anything that is asked from now on."""
        if self._watches is not None:
            self._watches.topics_doomed()

    async def answer(self, event: events.Question) -> events.Answer:
        """Have the controller decide upon a request. Raises NotControllerError."""
        moved = NotControllerError(NO_CONTROLLER)

        async def work() -> events.Answer:
            if self._core is None:
                raise moved
            answer = await self._handle(event)
            if answer is None:
                raise moved
            return answer

        return await self._ask(work, moved)

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> tuple[int, int]:
        """(first id, count) of a block for a broker. Raises NotControllerError, KafkaError of BROKER_ID_NOT_REGISTERED,
        StaleBrokerEpochError and UnknownServerError.
        """
        moved = NotControllerError(NO_CONTROLLER)

        async def work() -> tuple[int, int]:
            if self._core is None or self._term is None:
                raise moved
            broker = self._core.cluster.brokers.get(broker_id)
            if broker is None:
                raise error_of(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {broker_id} is not registered.")
            if broker_epoch != broker.epoch:
                raise StaleBrokerEpochError(f"Broker {broker_id} is registered in epoch {broker.epoch}.")
            return await self._term.allocate_producer_ids(broker_id)

        return await self._ask(work, moved)

    async def _ask(self, work: Callable[[], Awaitable[T]], moved: KafkaError) -> T:
        """Do `work` in its turn; raises `moved` when the office was lost over it."""

        async def attempt() -> T:
            try:
                return await work()
            except KafkaError:
                raise
            except Exception as error:
                await self._failed(error)
                raise moved from error

        return await self._mailbox.ask(attempt)

    async def _failed(self, error: Exception) -> None:
        match error:
            case ZooKeeperClosedError():
                return
            case ControllerMovedError():
                logger.warning("another broker is controller", broker=self._broker_id)
                await self._resign()
                self._mailbox.post(self._office_changed)
            case paths.MalformedZnodeError():
                logger.error("no controller can be elected: repair the znode", reason=error)
                await self._give_up()
            case _:
                logger.failure("controller failed, it gives up its office and runs again", error)
                await self._give_up()

    def _tell(self, event: events.Event) -> None:
        self._mailbox.post(lambda: self._handle(event))

    def _answered(self, core: Controller, event: events.Event) -> None:
        if self._core is core:
            self._tell(event)

    def _peer_overflowed(self, broker_id: int) -> None:
        self._tell(events.BrokerBehind(broker_id=broker_id))

    async def _office_changed(self) -> None:
        """Somebody took or left `/controller`: take it when it is free, and leave it when it is not ours."""
        znode = await self._zookeeper.get(paths.CONTROLLER)
        is_own = znode is not None and znode.ephemeral_owner == self._zookeeper.session_id
        if is_own and self._core is not None:
            return
        await self._resign()
        if not self._is_registered:
            return
        if znode is not None:
            if not is_own and understood([znode], paths.decode_controller) != [self._broker_id]:
                return
            await self._vacate(znode.version)
        epoch = await self._elect()
        if epoch is not None:
            logger.info("elected controller", broker=self._broker_id, epoch=epoch)
            await self._take_office(epoch)

    async def _vacate(self, version: int) -> None:
        """End a term now that nobody performs: of an earlier life of this broker, whose session is not over
        yet, or one of this session that was given up.
        """
        with contextlib.suppress(ZnodeVersionError):
            await self._zookeeper.delete(paths.CONTROLLER, version)

    async def _elect(self) -> int | None:
        """Take `/controller` and the next epoch in one step; None when another broker was faster."""
        await self._zookeeper.ensure(paths.CONTROLLER_EPOCH, b"0")
        znode = await self._zookeeper.get(paths.CONTROLLER_EPOCH)
        assert znode is not None, "it was just ensured"
        epoch = paths.decode_controller_epoch(znode.data) + 1
        office = paths.encode_controller(self._broker_id, self._clock.now_ms())
        try:
            await self._zookeeper.transaction(
                [
                    Create(paths.CONTROLLER, office, ephemeral=True),
                    Set(paths.CONTROLLER_EPOCH, str(epoch).encode(), znode.version),
                ]
            )
        except (ZnodeExistsError, ZnodeVersionError):
            holder = await self._zookeeper.get(paths.CONTROLLER)
            if holder is None or holder.ephemeral_owner != self._zookeeper.session_id:
                return None
        self._term = Term(self._zookeeper, epoch_version=znode.version + 1)
        return epoch

    async def _take_office(self, epoch: int) -> None:
        assert self._term is not None, "elected"
        watches = self._watches = TermWatches(
            self._zookeeper, self._term, self._mailbox.post, self._handle, self._learn
        )
        await self._zookeeper.ensure(paths.FEATURE, paths.encode_feature())
        topics = await watches.read_topics(await self._zookeeper.children(paths.TOPICS))
        brokers = await read_brokers(self._zookeeper, await self._zookeeper.children(paths.BROKER_IDS))
        keys = [(t.topic, p) for t in topics.values() for p in t.partitions]
        elected = events.Elected(
            epoch=epoch,
            brokers=brokers,
            topics=topics,
            states={key: s for key, s in (await read_states(self._zookeeper, keys)).items() if s is not None},
            deletions=frozenset(await self._zookeeper.children(paths.DELETE_TOPICS)),
        )
        await self._learn(dict.fromkeys(topics, False))
        self._orders.begin(epoch)
        core = self._core = self._make()
        await self._handle(elected)
        watches.begin(core.cluster)
        self._await_balance(FIRST_BALANCE_SECONDS)

    def _await_balance(self, seconds: float) -> None:
        """Look for brokers that lead too few partitions once that time is over, and then again and again."""
        core, interval_s = self._core, self._balance_interval_s
        if interval_s is None:
            return

        async def look() -> None:
            if self._core is core:
                await self._handle(events.BalanceDue())
                self._await_balance(interval_s)

        asyncio.get_running_loop().call_later(seconds, self._mailbox.post, look)

    async def _resign(self) -> None:
        if self._core is None:
            return
        logger.info("no longer controller", broker=self._broker_id, epoch=self._core.cluster.epoch)
        self._core = None
        self._orders.forget_all()
        if self._watches is not None:
            self._watches.end()
            self._watches = None

    async def _give_up(self) -> None:
        """Leave the office after a failure, so that somebody (this broker too) can begin anew."""
        await self._resign()
        await asyncio.sleep(PAUSE_AFTER_FAILURE_SECONDS)
        try:
            znode = await self._zookeeper.get(paths.CONTROLLER)
            if znode is not None and znode.ephemeral_owner == self._zookeeper.session_id:
                await self._zookeeper.delete(paths.CONTROLLER, znode.version)
        except ZooKeeperError as error:
            logger.warning("cannot leave the controller's office", reason=error)
        self._mailbox.post(self._office_changed)

    async def _shut_down(self, broker_id: int, broker_epoch: int) -> list[PartitionKey]:
        core = self._core
        if core is None:
            raise StaleControllerEpochError(NO_CONTROLLER)
        broker = core.cluster.brokers.get(broker_id)
        if broker is None:
            raise BrokerNotAvailableError(f"Broker {broker_id} is not registered.")
        if broker_epoch != NO_EPOCH and broker_epoch < broker.epoch:
            raise StaleBrokerEpochError(
                f"Broker {broker_id} has registered again since epoch {broker_epoch}."
            )
        await self._handle(events.ShutdownRequested(broker_id=broker_id))
        return core.cluster.remaining(broker_id)

    async def _handle(self, event: events.Event) -> events.Answer | None:
        """One event, its commands, and the events that these bring about at once; the answer, when the event asks for one."""
        answer = None
        changes: list[StateChange] = []
        pending: deque[events.Event] = deque([event])
        while pending and self._core is not None:
            for command in self._core.handle(pending.popleft()):
                if isinstance(command, events.Answer):
                    answer = command
                    continue
                outcome = await self._perform(command, self._core)
                if isinstance(command, events.WriteStates) and isinstance(outcome, events.StatesWritten):
                    changes += state_changes(self._core.cluster.states, command, outcome)
                if outcome is not None:
                    pending.append(outcome)
            self._orders.sent()
        # Leaders first, then the log.
        await self.changes.tell(changes)
        return answer

    async def _perform(self, command: events.Act, core: Controller) -> events.Event | None:
        term = self._term
        assert term is not None, "elected"
        match command:
            case events.WriteStates():
                return await term.write_states(command.writes)
            case events.RemoveTopic():
                return await self._remove_topic(term, command.topic)
            case events.RefuseDeletion():
                await term.delete(paths.delete_topic(command.topic))
            case events.WriteAssignments():
                return await self._write_assignments(term, command)
            case events.ForgetReassignmentWishes():
                await term.forget_reassignments(command.partitions)
            case events.LookOn():
                await asyncio.sleep(0)
                return events.LookDue()
            case events.EndPreferredElection():
                await term.delete(paths.PREFERRED_ELECTION)
            case events.ForgetBroker():
                self._orders.forget(command.broker_id)
            case _:
                self._orders.send(command, core)
        return None

    async def _write_assignments(
        self, term: Term, command: events.WriteAssignments
    ) -> events.AssignmentsWritten:
        outcome = await term.write_assignments(command.changes)
        for (topic, partition), assignment in outcome.assignments.items():
            if assignment is not None:
                logger.info(
                    "replicas assigned",
                    topic=topic,
                    partition=partition,
                    replicas=assignment.replicas,
                    adding=assignment.adding,
                    removing=assignment.removing,
                )
        return outcome

    async def _remove_topic(self, term: Term, topic: str) -> events.TopicRemoved:
        if self._watches is not None:
            self._watches.forget_topic(topic)
        await term.remove_topic(topic)
        logger.info("topic deleted", topic=topic)
        return events.TopicRemoved(topic=topic)
