"""A broker of the machines' simulation: the real partition, leadership, follower and controller on a log in memory.

A `Host` is what stays: the disk, and the ways. A `Life` is one process of it, with its session in ZooKeeper. It performs what
the machines want done: fetches of followers, proposals of in-sync replicas, the requests of the controller, all as messages
that may be late or lost. What only says yes or no to a request, the fences of epochs among it, is the broker's own where it can
be; what parks replies stands here as in its handlers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from machine_world import NUMBER, PLACE, SESSION_MS, TOPIC, TOPIC_ID, World
from stub_log import StubLog

from headrace.broker.errors import ErrorCode, KafkaError, NotLeaderOrFollowerError
from headrace.broker.handlers.led import led_partition
from headrace.broker.log.results import AppendResult
from headrace.broker.replication import alter_partition
from headrace.broker.replication import events as ev
from headrace.broker.replication.control_requests import ToldReplica
from headrace.broker.replication.controller.machine import Controller
from headrace.broker.replication.follower import Append, AskOffsets, Command, Follower, StartAt, TruncateTo
from headrace.broker.replication.isr_proposals import IsrProposals, ProposalOf
from headrace.broker.replication.leader import IsrProposal, Leadership
from headrace.broker.replication.model import NO_LEADER
from headrace.broker.replication.partition import Partition
from headrace.broker.server.replicas.hosted import Partitions
from headrace.broker.wire.client.replica_fetch import DivergingEpoch, FetchedPartition, FetchQuestion

BACKOFF_MS = 200
FETCH_WAIT_MS = 120
FETCH_ENTRIES_MAX = 5
TIMEOUT_MS = 1500
CHECKPOINT_MS = 700
REFUSED_MS = 2000
Reply = Callable[[Any], None]


class Epochs(NamedTuple):
    """Those of a request of the controller's."""

    controller_epoch: int
    broker_epoch: int


class StubAppender:
    """In the place of a partition's appender: the records are a list of values."""

    def __init__(self, log: StubLog) -> None:
        self._log = log

    def append_as_leader(self, records: Any, *, leader_epoch: int, now_ms: int) -> AppendResult:
        return self._log.append(records, leader_epoch)


class Host:
    """A machine; `life` is the process that runs on it, if one does."""

    def __init__(self, world: World, broker_id: int) -> None:
        self.world = world
        self.broker_id = broker_id
        self.name = f"broker-{broker_id}"
        self.log = StubLog()
        self.life: Life | None = None
        self.paused_until_ms = 0
        self.lost_power_ms = -1
        self.is_cut_from_zookeeper = False
        # How often its session or its process is about to end, whatever happens until then.
        self.ending_count = 0

    def start(self) -> None:
        assert self.life is None, "it runs"
        self.life = Life(self)

    def kill(self, *, power_cut: bool = False) -> None:
        life, self.life = self.life, None
        if life is not None:
            life.is_dead = True
            if power_cut:
                self.lost_power_ms = self.world.now_ms
            self.world.after(SESSION_MS, lambda: self.world.end_session(life))
            self.log = self.log.reopened(self.world.random if power_cut else None)

    def make_room(self) -> None:
        self.log.is_full = False

    @property
    def is_paused(self) -> bool:
        return self.paused_until_ms > self.world.now_ms

    @property
    def is_well(self) -> bool:
        """Whether it can be elected, now and for as long as nothing else happens."""
        is_away = self.is_paused or self.is_cut_from_zookeeper or self.ending_count or self.log.is_full
        return self.life is not None and self.life.has_session and not is_away


class Logs:
    """The host's, as a broker's replicas ask for it."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def get(self, topic: str, number: int) -> StubLog:
        return self._host.log


class Parked:
    """A write that waits to be committed."""

    __slots__ = ("end_offset", "leadership", "offset", "reply")

    def __init__(self, leadership: Leadership | None, offset: int, end_offset: int, reply: Reply) -> None:
        self.leadership, self.offset, self.end_offset, self.reply = leadership, offset, end_offset, reply


class Life:
    """One process; it is its partition's `Host`, too."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.world = host.world
        self.logs = Logs(host)
        self.replica_lag_ms_max = host.world.ways.lag_ms_max
        self.broker_id = host.broker_id
        self.is_dead = False
        self.has_session = True
        self.controller_epoch = 0
        self.alive: set[int] = set()
        # What clients are told: the leader's epoch, and who that is.
        self.leader: tuple[int, int] = (-1, -1)
        self.partition: Partition | None = None
        self.follower: Follower | None = None
        self.parked: list[Parked] = []
        self.office: Office | None = None
        self.leads_since_ms = 0
        # Up to where it knew last that everything is committed.
        self._committed = host.log.high_watermark
        self._is_refused = False
        # When ZooKeeper's last answer arrives.
        self._answered_ms = 0
        self._proposals = IsrProposals(self._is_wanted)
        self.broker_epoch = self.world.register(self)
        self.office_is_free()
        self.after(self.replica_lag_ms_max // 2, self._check_lag)
        self.after(CHECKPOINT_MS, self._checkpoint)

    # -- time and ways

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Unless the process is dead by then; once it is not paused any more."""

        def act() -> None:
            if self.is_dead:
                return
            if self.host.is_paused:
                self.world.after(self.host.paused_until_ms - self.world.now_ms, act)
            else:
                action()

        self.world.after(delay_ms, act)

    def monotonic_ms(self) -> int:
        return self.world.now_ms

    def ask(self, target: Life, handle: Callable[[Life, Reply], None], answered: Reply) -> None:
        """Have `target` handle a request; `answered` with its answer, or with None after the time-out; once."""
        names = self.host.name, target.host.name
        is_over = False

        def over(answer: Any) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                answered(answer)

        def reply(answer: Any) -> None:
            self.world.send(names[1], names[0], lambda: self.after(0, lambda: over(answer)))

        self.world.send_request(*names, lambda: target.after(0, lambda: handle(target, reply)))
        self.after(TIMEOUT_MS, lambda: over(None))

    def with_zookeeper(self, work: Callable[[], Any], answered: Reply) -> None:
        """Have ZooKeeper do something in this life's session; answers come in the order of what was done, none once that is
        over.
        """

        def there() -> None:
            if self.host.is_cut_from_zookeeper:
                self.after(50, there)
            elif self.has_session:
                answer = work()
                now_ms = self.world.now_ms
                self._answered_ms = max(self._answered_ms, now_ms + self.world.random.randint(1, 4))
                self.after(self._answered_ms - now_ms, lambda: answered(answer))

        self.after(self.world.random.randint(1, 4), there)

    # -- the session

    def session_ended(self) -> None:
        """ZooKeeper has ended it; the process hears of that once it reaches ZooKeeper again."""
        self.has_session = False
        self.world.end_session(self)

    def begin_session(self) -> None:
        if not self.has_session and not self.is_dead:
            self.has_session = True
            self.office = None
            self.broker_epoch = self.world.register(self)
            self.office_is_free()

    def office_is_free(self) -> None:
        """Run for controller."""

        def run() -> None:
            if self.world.controller is not None:
                return
            if not self.has_session or self.host.is_cut_from_zookeeper:
                self.after(BACKOFF_MS, run)
            else:
                self.world.controller = self
                self.world.controller_epoch += 1
                self.office = Office(self, self.world.controller_epoch)

        self.after(self.world.random.randint(1, 40), run)

    def watched(self) -> None:
        """The brokers' registrations have changed."""
        if self.office is not None:
            office = self.office
            self.with_zookeeper(
                self.world.brokers, lambda brokers: office.tell(ev.BrokersChanged(brokers=brokers))
            )

    # -- what a partition wants of its broker

    def is_alive(self, broker_id: int) -> bool:
        return broker_id in self.alive

    def request_sync(self, partition: Partition) -> None:
        raise AssertionError("nothing here is flushed by count")

    def secure(self, partition: Partition) -> None:
        self.after(self.world.random.randint(1, 30), partition.log.sync)  # type: ignore[attr-defined]

    def committed(self, partition: Partition) -> None:
        if partition.is_leader:
            self.world.committed(self, partition, self._committed)
        self._committed = partition.high_watermark
        self._answer_parked()

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        proposed = ProposalOf(TOPIC, NUMBER, TOPIC_ID, proposal)
        self.world.at("proposed", self.broker_id, *proposal.joining, *proposal.leaving)

        def send() -> None:
            self._proposals.propose(proposed)
            self._send_proposals()

        def sync_and_send() -> None:
            self.host.log.sync()
            send()

        if proposal.syncs_first:
            self.after(self.world.random.randint(1, 30), sync_and_send)
        else:
            send()

    def _is_wanted(self, proposed: ProposalOf) -> bool:
        leadership = None if self.partition is None else self.partition.leadership
        return leadership is not None and leadership.proposed is proposed.proposal

    def _send_proposals(self) -> None:
        sent = self._proposals.next_request()
        if not sent:
            return
        controller = self.world.controller
        if controller is None or controller.is_dead:
            self._proposals.failed()
            self.after(BACKOFF_MS, self._send_proposals)
            return
        event = alter_partition.event(sent, broker_id=self.broker_id, broker_epoch=self.broker_epoch)
        self.ask(controller, lambda life, reply: life.take_proposals(event, reply), self._proposals_answered)

    def _proposals_answered(self, answer: Any) -> None:
        if not isinstance(answer, tuple):
            self._proposals.failed()
            self.after(BACKOFF_MS, self._send_proposals)
            return
        for proposed, decided in self._proposals.answered(dict(zip([PLACE], answer, strict=True))):
            assert self.partition is not None
            if self.partition.proposal_answered(proposed.proposal, decided):
                self.world.at("decided", self.broker_id, *self.partition.replicas)
        self._answer_parked()
        if self._proposals.has_more:
            self.after(BACKOFF_MS, self._send_proposals)

    def take_proposals(self, event: ev.IsrProposed, reply: Reply) -> None:
        if self.office is None:
            reply(ErrorCode.NOT_CONTROLLER)
        else:
            self.office.ask(event, reply)

    # -- the controller's word

    def is_fenced(self, epoch: int, broker_epoch: int) -> bool:
        """As the broker's replicas have it."""
        request: Any = Epochs(epoch, broker_epoch)
        replicas: Any = self
        return Partitions.fenced(replicas, request) is not ErrorCode.NONE

    def take_metadata(self, epoch: int, command: ev.SendUpdateMetadata, reply: Reply) -> None:
        reply(ErrorCode.NONE)
        if self.is_fenced(epoch, command.broker_epoch):
            return
        self.controller_epoch = epoch
        self.alive = {broker.broker_id for broker in command.brokers}
        for word in command.partitions:
            self.leader = word.state.leader_epoch, word.state.leader

    def take_leaders(self, epoch: int, command: ev.SendLeaderAndIsr, reply: Reply) -> None:
        if self.is_fenced(epoch, command.broker_epoch):
            self.world.tell(f"{self.host.name} refuses a controller of epoch {epoch}")
            reply(ErrorCode.STALE_CONTROLLER_EPOCH)
            return
        self.controller_epoch = epoch
        (word,) = command.partitions
        told = ToldReplica(TOPIC, word.topic_id, NUMBER, word.state, word.assignment.replicas, word.is_new)
        reply(self._take_unless_refused(told))

    def take_stops(self, epoch: int, command: ev.SendStopReplica, reply: Reply) -> None:
        reply(ErrorCode.NONE)
        if self.is_fenced(epoch, command.broker_epoch):
            return
        self.controller_epoch = epoch
        ((_, _, leader_epoch),) = command.partitions
        if self.partition is not None and leader_epoch >= self.partition.leader_epoch:
            self.partition.stop()
            self.follower = None
            self._answer_parked()

    def _take_unless_refused(self, told: ToldReplica) -> ErrorCode:
        """A replica that could not be taken stays offline until it is asked for again."""
        code = self._take(told)
        if code is ErrorCode.KAFKA_STORAGE_ERROR:
            self._is_refused = True
            self.after(REFUSED_MS, self._ask_again)
        elif self._is_refused and told.state.leader == NO_LEADER:
            return ErrorCode.KAFKA_STORAGE_ERROR
        else:
            self._is_refused = False
        return code

    def may_not_lead(self, told: ToldReplica) -> bool:
        """Whether its log lost what was committed, as the broker's replicas have it (KIP-966)."""
        replicas: Any = self
        return Partitions._may_not_lead(replicas, told)

    def _ask_again(self) -> None:
        self._is_refused = False
        controller = self.world.controller
        if controller is not None and controller.office is not None:
            controller.office.tell(ev.LogDirectoriesFailed(brokers=frozenset({self.broker_id})))

    def _take(self, told: ToldReplica) -> ErrorCode:
        if self.partition is None:
            self.partition = self._made(told)
        elif told.state.leader_epoch <= self.partition.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if self.may_not_lead(told):
            self.world.history.happened["refused to lead"] += 1
            return ErrorCode.KAFKA_STORAGE_ERROR
        try:
            self.partition.follow(told)
        except KafkaError as error:
            if self.partition.leader_epoch < 0:
                self.partition = None
            return error.code
        self._followed(self.partition)
        return ErrorCode.NONE

    def _made(self, told: ToldReplica) -> Partition:
        log: Any = self.host.log
        partition = Partition(self, TOPIC, NUMBER, told.topic_id, log)
        partition.appender = StubAppender(self.host.log)  # type: ignore[assignment]
        return partition

    def _followed(self, partition: Partition) -> None:
        """It leads now, or follows another one."""
        self.follower = None
        if partition.is_leader:
            self.leads_since_ms = self.world.now_ms
            self.world.history.leads(PLACE, partition.leader_epoch, self.broker_id)
        elif partition.leader >= 0:
            self.follower = Follower(
                TOPIC,
                NUMBER,
                self.host.log,
                leader_epoch=partition.leader_epoch,
                backoff_ms=BACKOFF_MS,
            )
            self._follow(self.follower)
        self._answer_parked()

    # -- following

    def _follow(self, follower: Follower) -> None:
        """Do what the follower wants next."""
        partition = self.partition
        if self.follower is not follower or partition is None:
            return
        now_ms = self.world.now_ms
        cut = follower.wanted_cut(now_ms)
        if cut is not None:
            self._cut(follower, cut)
        leader = self.world.hosts[partition.leader].life
        question = follower.question(now_ms)
        if leader is None or (question is None and not follower.wants_offsets(now_ms)):
            self.after(BACKOFF_MS, lambda: self._follow(follower))
        elif question is None:
            epoch = follower.leader_epoch
            self.ask(
                leader,
                lambda life, reply: reply(life.offsets(epoch)),
                lambda answer: self._offsets_told(follower, answer),
            )
        else:
            follower.asked = question
            request = self.broker_id, self.broker_epoch, question
            self.ask(
                leader,
                lambda life, reply: life.fetched(*request, reply),
                lambda answer: self._answered(follower, answer),
            )

    def _answered(self, follower: Follower, answer: tuple[FetchedPartition, int] | None) -> None:
        if self.follower is not follower:
            return
        if answer is None:
            follower.delayed("no answer", self.world.now_ms)
        else:
            self._perform(follower, follower.answered(answer[0], self.world.now_ms))
        self._follow(follower)

    def _perform(self, follower: Follower, command: Command | None) -> None:
        match command:
            case Append():
                self._append(follower, command)
            case TruncateTo() | StartAt():
                self._cut(follower, command)
            case AskOffsets() | None:
                return

    def _append(self, follower: Follower, command: Append) -> None:
        log, partition = self.host.log, self.partition
        assert partition is not None
        entries: Any = command.records or []
        try:
            log.append_fetched(follower.asked.offset if follower.asked else -1, entries)
        except KafkaError as error:
            follower.not_done(error, self.world.now_ms)
            return
        partition.leader_said(command.high_watermark, command.log_start_offset)
        follower.appended(command.high_watermark)

    def _cut(self, follower: Follower, cut: TruncateTo | StartAt) -> None:
        assert isinstance(cut, TruncateTo), "no log begins above 0 here"
        self.world.tell(
            f"{self.host.name} cuts at {cut.offset} of {self.host.log.log_end_offset}: {cut.reason}"
        )
        self.world.history.happened["cut the log"] += 1
        self.host.log.truncate_to(cut.offset)
        assert self.partition is not None
        self.world.at("cut the log", self.broker_id, self.partition.leader)
        follower.truncated()

    def _offsets_told(self, follower: Follower, answer: Any) -> None:
        if self.follower is not follower:
            return
        if isinstance(answer, tuple):
            self._perform(follower, follower.offsets_told(answer[0], answer[1], self.world.now_ms))
        elif answer is None:
            follower.delayed("no answer", self.world.now_ms)
        else:
            follower.offsets_refused(answer, self.world.now_ms)
        self._follow(follower)

    # -- leading

    def _epoch_fault(self, leader_epoch: int) -> ErrorCode | None:
        """Of a request that names the epoch in which this broker is thought to lead."""
        replicas: Any = self
        try:
            led_partition(replicas, TOPIC, NUMBER, leader_epoch)
        except KafkaError as error:
            return error.code
        return None

    def replica(self, topic: str, number: int) -> Partition:
        """Raises NotLeaderOrFollowerError before the controller told of it."""
        if self.partition is None:
            raise NotLeaderOrFollowerError(f"{topic}-{number} is not here yet")
        return self.partition

    def offsets(self, leader_epoch: int) -> Any:
        return self._epoch_fault(leader_epoch) or (0, self.host.log.log_end_offset)

    def fetched(self, replica: int, broker_epoch: int, question: FetchQuestion, reply: Reply) -> None:
        """A follower's fetch: its position is noted when it arrives, the answer waits for something to give."""
        answer = self._read(
            question, lambda partition: self._note(partition, replica, broker_epoch, question)
        )
        if answer.error_code or answer.records or answer.diverging:
            reply((answer, replica))
        else:
            wait_ms = self.world.random.randint(1, FETCH_WAIT_MS)
            self.after(wait_ms, lambda: reply((self._read(question, lambda partition: None), replica)))

    @staticmethod
    def _note(partition: Partition, replica: int, broker_epoch: int, question: FetchQuestion) -> None:
        partition.follower_fetched(
            replica,
            question.offset,
            log_start_offset=question.log_start_offset,
            broker_epoch=broker_epoch,
        )

    def _read(self, question: FetchQuestion, note: Callable[[Partition], None]) -> FetchedPartition:
        fault = self._epoch_fault(question.leader_epoch)
        if fault is not None:
            return FetchedPartition(fault, -1, -1, None, None)
        log, partition = self.host.log, self.partition
        assert partition is not None
        if question.last_epoch >= 0:
            end = log.epoch_end_offset(question.last_epoch)
            if end.leader_epoch < 0:
                return FetchedPartition(ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1, None, None)
            if end.leader_epoch < question.last_epoch or end.end_offset < question.offset:
                diverging = DivergingEpoch(end.leader_epoch, end.end_offset)
                return FetchedPartition(0, log.high_watermark, 0, diverging, None)
        if question.offset > log.log_end_offset:
            return FetchedPartition(ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1, None, None)
        try:
            note(partition)
        except KafkaError as error:
            return FetchedPartition(error.code, -1, -1, None, None)
        self._answer_parked()
        records: Any = log.entries[question.offset : question.offset + FETCH_ENTRIES_MAX]
        return FetchedPartition(0, log.high_watermark, 0, None, records)

    def produce(self, values: Sequence[bytes], required_acks: int, reply: Reply) -> None:
        """The answer is (error, offset)."""
        partition = self.partition
        if partition is None:
            reply((ErrorCode.NOT_LEADER_OR_FOLLOWER, -1))
            return
        records: Any = list(values)
        try:
            result = partition.append(records, required_acks=required_acks, now_ms=self.world.now_ms)
        except KafkaError as error:
            reply((error.code, -1))
            return
        if required_acks != -1:
            reply((ErrorCode.NONE, result.base_offset))
            return
        self.parked.append(Parked(partition.leadership, result.base_offset, result.last_offset + 1, reply))
        self.world.at("parked", self.broker_id, *partition.isr)
        self._answer_parked()

    def _answer_parked(self) -> None:
        partition, parked, self.parked = self.partition, self.parked, []
        for write in parked:
            if partition is None or not self.is_still_led(write, partition):
                write.reply((ErrorCode.NOT_LEADER_OR_FOLLOWER, -1))
            elif partition.high_watermark < write.end_offset:
                self.parked.append(write)
            elif partition.has_enough_in_sync:
                write.reply((ErrorCode.NONE, write.offset))
            else:
                write.reply((ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1))

    @staticmethod
    def is_still_led(write: Parked, partition: Partition) -> bool:
        """Whether who appended leads without a break."""
        return write.leadership is partition.leadership

    def read(self, offset: int, leader_epoch: int, reply: Reply) -> None:
        """A consumer's fetch: the values up to the watermark, and that; or an error."""
        fault = self._epoch_fault(leader_epoch)
        if fault is not None:
            reply(fault)
            return
        log = self.host.log
        if offset > log.log_end_offset:
            reply(ErrorCode.OFFSET_OUT_OF_RANGE)
            return
        found = {o: log.entries[o].value for o in range(offset, log.high_watermark)}
        reply((found, log.high_watermark))

    # -- what a broker does every now and then

    def _check_lag(self) -> None:
        if self.partition is not None:
            self.partition.check_lag()
            self._answer_parked()
        self.after(self.replica_lag_ms_max // 2, self._check_lag)

    def _checkpoint(self) -> None:
        self.host.log.checkpoint = self.host.log.high_watermark
        self.after(CHECKPOINT_MS, self._checkpoint)


class Office:
    """A term of a controller: the real machine, with its events one after the other and its requests in order."""

    def __init__(self, life: Life, epoch: int) -> None:
        self._life = life
        self._world = life.world
        self.epoch = epoch
        self.core = Controller()
        self._events: deque[tuple[ev.Event, Reply | None]] = deque()
        self._reply: Reply | None = None
        self._is_busy = False
        self._queues: dict[int, deque[Callable[[Life, Reply], None]]] = {}
        self._world.tell(f"{life.host.name} is controller in epoch {epoch}")
        life.with_zookeeper(self._everything, self.tell)

    def _everything(self) -> ev.Elected:
        world = self._world
        return ev.Elected(
            epoch=self.epoch,
            brokers=world.brokers(),
            topics={TOPIC: world.topic},
            states={} if world.state is None else {PLACE: world.state},
        )

    @property
    def is_over(self) -> bool:
        return self._life.office is not self

    def tell(self, event: ev.Event) -> None:
        self._events.append((event, None))
        self._go_on()

    def ask(self, event: ev.IsrProposed, reply: Reply) -> None:
        self._events.append((event, reply))
        self._go_on()

    def _go_on(self) -> None:
        while self._events and not self._is_busy and not self.is_over:
            if self.core.cluster.epoch == 0 and not isinstance(self._events[0][0], ev.Elected):
                # What is watched is heard of before everything is read: that has it all.
                self._events.rotate(-1)
                if not any(isinstance(event, ev.Elected) for event, _ in self._events):
                    return
                continue
            event, self._reply = self._events.popleft()
            self._perform(deque(self.core.handle(event)))

    def _perform(self, commands: deque[ev.Command]) -> None:
        while commands:
            command = commands.popleft()
            if isinstance(command, ev.WriteStates):
                self._write(command, commands)
                return
            self._do(command)

    def _write(self, command: ev.WriteStates, rest: deque[ev.Command]) -> None:
        self._is_busy = True
        self._world.writing.append(command.writes)

        def written(outcome: ev.StatesWritten | None) -> None:
            self._is_busy = False
            if self.is_over:
                return
            if outcome is None:
                self._world.tell(f"{self._life.host.name} is no controller any more")
                self._life.office = None
                return
            self._perform(deque(self.core.handle(outcome)))
            if not self._is_busy:
                self._perform(rest)
            self._go_on()

        self._life.with_zookeeper(lambda: self._world.write_states(command.writes, self.epoch), written)

    def _do(self, command: ev.Command) -> None:
        epoch = self.epoch
        match command:
            case ev.SendLeaderAndIsr():
                self._queue(
                    command.broker_id,
                    lambda life, reply: life.take_leaders(epoch, command, self._heard(command, reply)),
                )
            case ev.SendUpdateMetadata():
                self._queue(
                    command.broker_id,
                    lambda life, reply: life.take_metadata(epoch, command, reply),
                )
            case ev.SendStopReplica():
                self._queue(
                    command.broker_id,
                    lambda life, reply: life.take_stops(epoch, command, reply),
                )
            case ev.ForgetBroker():
                self._queues.pop(command.broker_id, None)
            case ev.AnswerIsrProposal() if self._reply is not None:
                self._reply(command.error or command.answers)

    def _heard(self, command: ev.SendLeaderAndIsr, reply: Reply) -> Reply:
        return lambda code: reply((command, code))

    def _queue(self, broker_id: int, request: Callable[[Life, Reply], None]) -> None:
        """Requests to a broker go one after the other, each until it is answered."""
        queue = self._queues.setdefault(broker_id, deque())
        queue.append(request)
        if len(queue) == 1:
            self._send(broker_id, queue)

    def _send(self, broker_id: int, queue: deque[Callable[[Life, Reply], None]]) -> None:
        if self.is_over or self._queues.get(broker_id) is not queue or not queue:
            return
        target = self._world.hosts[broker_id].life
        if target is None:
            self._life.after(BACKOFF_MS, lambda: self._send(broker_id, queue))
            return

        request, is_answered = queue[0], False

        def handle(life: Life, reply: Reply) -> None:
            # What was sent again, on another connection, arrives late only from those who are deposed.
            if not is_answered or self.is_over:
                request(life, reply)

        def answered(answer: Any) -> None:
            nonlocal is_answered
            is_answered = True
            if answer is not None:
                queue.popleft()
            self._send(broker_id, queue)
            if answer is not None:
                self._told(broker_id, answer)

        self._life.ask(target, handle, answered)

    def _told(self, broker_id: int, answer: Any) -> None:
        """What a broker says of LeaderAndIsr: a replica that it cannot take is offline."""
        if not isinstance(answer, tuple) or self.is_over:
            return
        is_offline = answer[1] is ErrorCode.KAFKA_STORAGE_ERROR
        is_online = answer[1] in (ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH)
        if is_offline or self.core.cluster.offline.get(broker_id):
            self.tell(
                ev.ReplicasAnswered(
                    broker_id=broker_id,
                    offline=frozenset({PLACE} if is_offline else ()),
                    online=frozenset({PLACE} if is_online else ()),
                )
            )
