"""Members of a source's registry that are killed, stopped and cut off while they bring its partitions into a target.

Real: `Ownership`, `Lease`, `Stream`, and the target's `ProducerStates`. Simulated and seeded: the source's logs, the registry
with its sessions, a target whose leader fails over and forgets what was not committed, a network that delays, loses answers
and delivers what a dead process sent. The oracle: each of the source's committed messages once and in order, whatever is sent
by the owner that the registry has, and positions that never go back nor beyond what is committed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from headrace.broker.errors import KafkaError
from headrace.broker.log.producers import ProducerStates
from headrace.broker.wire.batches import BatchHeader, Record, encode_batch, iter_batches, read_header
from headrace.broker.wire.partitions import PartitionKey
from headrace.mirror.aggregate.lease import Lease
from headrace.mirror.aggregate.ownership import Claim, Ownership, Release
from headrace.mirror.aggregate.position import Position
from headrace.mirror.aggregate.search import Search
from headrace.mirror.aggregate.stream import Phase, Stream
from headrace.mirror.questions import Surveyed

TOPIC_ID = UUID(int=5)
SESSION_TIMEOUT_MS = 600
DRAIN_STEPS = 4000
SEQUENCES_END = 2**31
COMMIT_KEY, ABORT_KEY = b"\x00\x00\x00\x01", b"\x00\x00\x00\x00"
MARKER_VALUE = b"\x00\x00\x00\x00\x00\x00"


class SourceLog:
    """A partition of the source: batches whose timestamps are their offsets; some are of transactions."""

    def __init__(self, rng: random.Random) -> None:
        self.batches: list[tuple[BatchHeader, bytes]] = []
        self.end = 0
        self.is_aborted: dict[int, bool] = {}
        self.aborted: list[tuple[int, int, int]] = []
        self._rng = rng
        self._open: dict[int, int] = {}

    def grow(self, *, may_begin: bool = True) -> None:
        """One batch more: of a plain producer, of a transaction, or the marker that ends one."""
        rng = self._rng
        producer = rng.choice((1, 2, 3))
        if producer in self._open and rng.random() < 0.5:
            self._marker(producer)
        elif producer == 1 or not (may_begin or producer in self._open):
            self._data(-1)
        else:
            self._open.setdefault(producer, self.end)
            self._data(producer)

    def finish(self) -> None:
        for producer in list(self._open):
            self._marker(producer)

    def _data(self, producer: int) -> None:
        count = self._rng.randint(1, 4)
        records = [Record(0, self.end, None, b"v", [])] * count
        transactional = producer >= 0
        self._put(
            encode_batch(
                records,
                base_offset=self.end,
                leader_epoch=2,
                producer_id=producer,
                producer_epoch=4 if transactional else -1,
                base_sequence=self.end if transactional else -1,
                transactional=transactional,
            )
        )

    def _marker(self, producer: int) -> None:
        first, is_abort = self._open.pop(producer), self._rng.random() < 0.5
        if is_abort:
            self.aborted.append((producer, first, self.end))
            for header, _ in self.batches:
                if header.base_offset >= first and header.producer_id == producer and not header.is_control:
                    self.is_aborted[header.base_offset] = True
        record = Record(0, self.end, ABORT_KEY if is_abort else COMMIT_KEY, MARKER_VALUE, [])
        self._put(
            encode_batch(
                [record],
                base_offset=self.end,
                leader_epoch=2,
                producer_id=producer,
                producer_epoch=4,
                transactional=True,
                control=True,
            )
        )

    def _put(self, batch: bytearray) -> None:
        header = read_header(batch)
        self.batches.append((header, bytes(batch)))
        self.end = header.next_offset

    @property
    def last_stable_offset(self) -> int:
        return min(self._open.values(), default=self.end)

    @property
    def committed(self) -> list[int]:
        """Base offsets of the batches that a target must have, in order."""
        return [
            header.base_offset
            for header, _ in self.batches
            if header.next_offset <= self.last_stable_offset
            and not header.is_control
            and not self.is_aborted.get(header.base_offset)
        ]

    def read(self, offset: int, size_max: int) -> tuple[memoryview, list[tuple[int, int]]]:
        found = [
            (header, data)
            for header, data in self.batches
            if header.next_offset > offset and header.next_offset <= self.last_stable_offset
        ][:size_max]
        end = found[-1][0].next_offset if found else offset
        aborted = [(p, first) for p, first, last in self.aborted if last >= offset and first < end]
        return memoryview(b"".join(data for _, data in found)), aborted


class TargetLog:
    """The leader of a target partition with its producer state; what is not committed a new leader may lack."""

    def __init__(self) -> None:
        self.appended: list[BatchHeader] = []
        self.committed = 0
        self.states = ProducerStates()
        self.term = 0
        self.held_until_ms = -1

    def append(self, header: BatchHeader) -> int:
        """How much of the log must be committed before this is acknowledged; raises KafkaErrors."""
        repeated = self.states.check(header)
        if repeated is not None:
            return repeated.last_offset + 1
        self.states.append(header, len(self.appended))
        # One place of this log is a batch: that is what the states' offsets are here.
        self._correct(header, len(self.appended))
        self.appended.append(header)
        return len(self.appended)

    def _correct(self, header: BatchHeader, place: int) -> None:
        batches = self.states._producers[header.producer_id].batches
        batches[-1] = batches[-1]._replace(last_offset=place)

    def fail_over(self, kept: int, *, from_snapshot: bool) -> None:
        """Another leader, which has `kept` batches; from a snapshot it knows the last batch of each producer only."""
        assert kept >= self.committed
        self.term += 1
        headers, self.appended, self.states = self.appended[:kept], [], ProducerStates()
        self.committed = min(self.committed, kept)
        for header in headers:
            self.append(header)
        if from_snapshot:
            self.states = ProducerStates.decode(self.states.encode())

    def next_sequence(self, producer_id: int) -> int | None:
        producer = self.states.get(producer_id)
        if producer is None or not producer.batches:
            return None
        return (producer.batches[-1].last_sequence + 1) % SEQUENCES_END


@dataclass
class Registry:
    """ZooKeeper: sessions, who is there, who owns what, how far each partition is (with the version of that znode)."""

    heard_ms: dict[int, int] = field(default_factory=dict)
    members: dict[str, int] = field(default_factory=dict)
    owners: dict[PartitionKey, int] = field(default_factory=dict)
    positions: dict[PartitionKey, tuple[Position, int]] = field(default_factory=dict)

    def expire(self, now_ms: int) -> None:
        for session in [s for s, heard in self.heard_ms.items() if now_ms - heard > SESSION_TIMEOUT_MS]:
            self.end(session)

    def end(self, session: int) -> None:
        self.heard_ms.pop(session, None)
        self.members = {name: s for name, s in self.members.items() if s != session}
        self.owners = {key: s for key, s in self.owners.items() if s != session}


class Member:
    """A process: what it knows, and what it has under way."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.session = 0
        self.ownership = Ownership(name, retry_ms=50)
        self.lease = Lease(SESSION_TIMEOUT_MS)
        self.streams: dict[PartitionKey, Stream] = {}
        self.versions: dict[PartitionKey, int] = {}
        self.busy: set[PartitionKey] = set()
        self.stopped_until_ms = self.cut_off_until_ms = -1
        self.is_dead = False


class AggregateWorld:
    """`checks_versions`: whether positions are written by compare and set, as the registry does it; of what the target has
    beyond a position only what is committed counts.
    """

    looks_at_what_is_committed = True

    def __init__(self, seed: int, *, checks_versions: bool = True) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 0
        self.checks_versions = checks_versions
        self.keys: list[PartitionKey] = [("clicks", n) for n in range(3)]
        self.source = {key: SourceLog(self.rng) for key in self.keys}
        self.target = {key: TargetLog() for key in self.keys}
        self.registry = Registry()
        # Close to where sequence numbers wrap, half of the time.
        sequence = SEQUENCES_END - 40 if self.rng.random() < 0.5 else 0
        for number, key in enumerate(self.keys):
            position = Position(
                producer_id=100 + number, topic_id=TOPIC_ID, offset=0, sequence=sequence, leader_epoch=2
            )
            self.registry.positions[key] = position, 0
        self.members = [Member(f"{n}") for n in range(3)]
        self.events: list[tuple[int, int, Member | None, Callable[[], None]]] = []
        self.waiting: list[tuple[PartitionKey, int, int, Callable[..., None]]] = []
        self.has_faults = True
        self.sessions = 0
        self.handovers = self.repeated = self.refusals = self.forgotten = 0
        self.in_flight = dict.fromkeys(self.keys, 0)
        self._written: dict[PartitionKey, int] = dict.fromkeys(self.keys, 0)

    # -- time and the network

    def after(self, ms: int, member: Member | None, call: Callable[[], None]) -> None:
        """Have it happen later; of a member, not while it is stopped, and never once it is dead."""
        self.events.append((self.now_ms + ms, len(self.events), member, call))

    def delay(self) -> int:
        """Mostly short, now and then longer than a session."""
        return (
            self.rng.randint(900, 1500)
            if self.has_faults and self.rng.random() < 0.02
            else self.rng.randint(1, 30)
        )

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step(has_faults=True)
        for log in self.source.values():
            log.finish()
        for member in self.members:
            member.stopped_until_ms = member.cut_off_until_ms = -1
        for _ in range(DRAIN_STEPS):
            self.step(has_faults=False)
            if self.is_done:
                break
        self.check_all()

    @property
    def is_done(self) -> bool:
        return all(
            self.registry.positions[key][0].offset == self.source[key].end for key in self.keys
        ) and all(log.committed == len(log.appended) for log in self.target.values())

    def step(self, *, has_faults: bool) -> None:
        self.has_faults = has_faults
        self.now_ms += 10
        if has_faults:
            self._fault()
        for log in self.target.values():
            is_held = has_faults and self.now_ms < log.held_until_ms
            if log.committed < len(log.appended) and not is_held and self.rng.random() < 0.4:
                log.committed = self.rng.randint(log.committed + 1, len(log.appended))
        self._acknowledge()
        self.registry.expire(self.now_ms)
        for member in self.members:
            if not member.is_dead and member.stopped_until_ms < self.now_ms:
                self._turn(member)
        due = sorted((e for e in self.events if e[0] <= self.now_ms), key=lambda e: e[:2])
        self.events = [e for e in self.events if e[0] > self.now_ms]
        for _, _, actor, call in due:
            if actor is None or (not actor.is_dead and actor.stopped_until_ms < self.now_ms):
                call()
            elif not actor.is_dead:
                self.after(20, actor, call)

    def _fault(self) -> None:
        rng = self.rng
        if rng.random() < 0.5:
            self.source[rng.choice(self.keys)].grow()
        roll, member = rng.random(), rng.choice(self.members)
        if roll < 0.01:
            member.is_dead = True
            self.members[self.members.index(member)] = Member(member.name)
        elif roll < 0.02:
            member.stopped_until_ms = self.now_ms + rng.randint(100, 2 * SESSION_TIMEOUT_MS)
        elif roll < 0.025:
            member.cut_off_until_ms = self.now_ms + rng.randint(100, 2 * SESSION_TIMEOUT_MS)
        elif roll < 0.03:
            log = rng.choice(list(self.target.values()))
            log.held_until_ms = self.now_ms + rng.randint(200, 2 * SESSION_TIMEOUT_MS)
        elif roll < 0.045:
            log = rng.choice(list(self.target.values()))
            kept = rng.randint(log.committed, len(log.appended))
            log.fail_over(kept, from_snapshot=rng.random() < 0.5)
        elif roll < 0.055:
            self._forget(rng.choice(self.keys))

    def _forget(self, key: PartitionKey) -> None:
        """The target's leader forgets who produced: not while a batch or an answer is on its way, as none is for minutes; by
        then whoever is about to send knows of all that is there.
        """
        log = self.target[key]
        sequence = log.next_sequence(100 + self.keys.index(key))
        streams = [member.streams[key] for member in self.members if key in member.streams]
        is_known = all(s.position.sequence == sequence for s in streams if s.phase is Phase.COPYING)
        if not self.in_flight[key] and (is_known or sequence is None):
            self.forgotten += sequence is not None
            log.states = ProducerStates()

    # -- a member

    def _turn(self, member: Member) -> None:
        """What its process does by itself now."""
        self._keep_session(member)
        for command in member.ownership.commands(self.now_ms):
            if isinstance(command, Claim):
                self._claim(member, command)
            else:
                self._release(member, command)
        for key, stream in list(member.streams.items()):
            if key not in member.ownership.owned:
                del member.streams[key]
            elif key not in member.busy and self.rng.random() < 0.7:
                self._work(member, key, stream)

    def _keep_session(self, member: Member) -> None:
        registry = self.registry
        if member.cut_off_until_ms >= self.now_ms:
            return
        if member.session in registry.heard_ms:
            if self.rng.random() < 0.2:
                asked_ms = self.now_ms
                registry.heard_ms[member.session] = self.now_ms
                session = member.session
                self.after(self.delay(), member, lambda: self._heard(member, session, asked_ms))
            return
        if member.session and self.rng.random() < 0.8:
            return  # It is not told at once.
        if member.name in registry.members:
            return
        member.ownership.session_lost()
        member.lease.ended()
        member.streams.clear()
        member.busy.clear()
        self.sessions += 1
        member.session = self.sessions
        registry.heard_ms[member.session] = self.now_ms
        registry.members[member.name] = member.session
        member.ownership.joined(member.session)
        member.ownership.partitions_changed(self.keys)
        member.lease.renewed(self.now_ms)

    def _heard(self, member: Member, session: int, asked_ms: int) -> None:
        if session == member.session:
            member.lease.renewed(asked_ms)
            member.ownership.members_changed(self.registry.members)

    def _claim(self, member: Member, claim: Claim) -> None:
        def arrived() -> None:
            registry = self.registry
            if claim.session not in registry.heard_ms:
                return  # Nobody is told: the session is over.
            is_free = registry.owners.setdefault(claim.key, claim.session) == claim.session
            ms = self.delay() if self.rng.random() < 0.5 else self.rng.randint(100, SESSION_TIMEOUT_MS)
            self.after(ms, member, lambda: self._claimed(member, claim, is_free=is_free))

        self.after(self.delay(), None, arrived)

    def _claimed(self, member: Member, claim: Claim, *, is_free: bool) -> None:
        if not is_free:
            member.ownership.refused(claim, self.now_ms)
        elif member.ownership.claimed(claim):
            self.handovers += 1
            self._read(member, claim.key)

    def _release(self, member: Member, release: Release) -> None:
        stream = member.streams.pop(release.key, None)
        if stream is not None:
            self._write(member, release.key, stream)

        def arrived() -> None:
            if self.registry.owners.get(release.key) == release.session:
                del self.registry.owners[release.key]
            self.after(self.delay(), member, lambda: member.ownership.released(release))

        self.after(self.delay(), None, arrived)

    def _work(self, member: Member, key: PartitionKey, stream: Stream) -> None:
        if stream.position != self.registry.positions[key][0] and self.rng.random() < 0.2:
            self._write(member, key, stream)
        elif stream.phase is not Phase.COPYING:
            self._locate(member, key, stream)
        elif stream.outbox:
            self._send(member, key, stream)
        elif (offset := stream.wants()) is not None:
            records, aborted = self.source[key].read(offset, self.rng.randint(1, 8))
            self._busy(member, key, stream, lambda: stream.fetched(offset, records, aborted))

    def _busy(
        self,
        member: Member,
        key: PartitionKey,
        stream: Stream,
        then: Callable[[], None],
        ms: int | None = None,
    ) -> None:
        """The partition waits for an answer, which comes only to the same life of the stream."""
        member.busy.add(key)

        def answered() -> None:
            if member.streams.get(key) is stream:
                member.busy.discard(key)
                then()

        self.after(self.delay() if ms is None else ms, member, answered)

    def _locate(self, member: Member, key: PartitionKey, stream: Stream) -> None:
        log = self.source[key]
        ms = self.delay()
        survey = stream.survey(TOPIC_ID, 2)
        found = Surveyed(log_start_offset=0, log_end_offset=log.end, epoch=2, epoch_end=log.end)
        position, target = stream.position, self.target[key]
        committed, sequence = target.committed, target.next_sequence(position.producer_id)
        if sequence is not None and position.ahead(sequence) <= 0:
            self._busy(
                member,
                key,
                stream,
                lambda: stream.located(survey, found, sequence, target_offset=committed),
                ms,
            )
            self._answer_under_way(key, ms)
        elif target.committed == len(target.appended) or not self.looks_at_what_is_committed:
            search = Search(position.producer_id, position.target_offset, log_start=0, log_end=committed)
            search.take(target.appended[search.next_offset :])
            self._busy(
                member,
                key,
                stream,
                lambda: stream.located(
                    survey,
                    found,
                    search.next_sequence,
                    target_offset=committed,
                    lost=search.lost,
                ),
                ms,
            )
            self._answer_under_way(key, ms)

    def _answer_under_way(self, key: PartitionKey, ms: int) -> None:
        """It arrives then, whatever has become by then of the member that asked."""

        def arrived() -> None:
            self.in_flight[key] -= 1

        self.in_flight[key] += 1
        self.after(ms, None, arrived)

    def _send(self, member: Member, key: PartitionKey, stream: Stream) -> None:
        if not member.lease.holds(self.now_ms):
            return
        owner = self.registry.owners.get(key)
        assert owner == member.session, f"{member.name} sends what {owner} owns"
        parcel = stream.outbox[0]
        (place,) = iter_batches(bytes(parcel.batch))
        member.busy.add(key)

        def answer(problem: str, place: int = -1) -> None:
            def answered() -> None:
                if member.streams.get(key) is not stream:
                    return
                member.busy.discard(key)
                if stream.outbox and stream.outbox[0] is parcel:
                    stream.refused(problem) if problem else stream.acknowledged(place)

            is_lost = self.rng.random() < 0.05
            self.after(200 if is_lost else self.delay(), member, answered if not is_lost else lost)

        def lost() -> None:
            if member.streams.get(key) is stream and stream.outbox and stream.outbox[0] is parcel:
                member.busy.discard(key)
                stream.refused("no answer")

        is_late = self.has_faults and self.rng.random() < 0.02
        ms = self.rng.randint(900, 3000) if is_late else self.delay()
        self.in_flight[key] += 1
        self.after(ms, None, lambda: self._arrived(key, place[1], answer))
        if is_late:
            self.after(300, member, lost)

    def _write(self, member: Member, key: PartitionKey, stream: Stream) -> None:
        """By compare and set; whoever is told that another wrote goes on from what that one wrote."""
        position, expected = stream.position, member.versions[key]
        member.busy.add(key)

        def arrived() -> None:
            before, version = self.registry.positions[key]
            is_expected = version == expected
            if is_expected or not self.checks_versions:
                assert position.offset >= before.offset, (
                    f"the position of {key} goes back to {position.offset}"
                )
                assert self._committed_to(key) >= position.offset, (
                    f"{key} is not committed to {position.offset}"
                )
                self.registry.positions[key] = position, version + 1
            self.after(self.delay(), member, lambda: answered(is_expected=is_expected))

        def answered(*, is_expected: bool) -> None:
            if member.streams.get(key) is not stream:
                return
            member.busy.discard(key)
            if is_expected:
                member.versions[key] = expected + 1
            else:
                self._read(member, key)

        self.after(self.delay(), None, arrived)

    def _read(self, member: Member, key: PartitionKey) -> None:
        position, member.versions[key] = self.registry.positions[key]
        member.streams[key] = Stream(position)
        member.busy.discard(key)

    # -- the target

    def _arrived(self, key: PartitionKey, header: BatchHeader, answer: Callable[..., None]) -> None:
        log = self.target[key]
        count = len(log.appended)
        self.in_flight[key] -= 1
        try:
            needed = log.append(header)
        except KafkaError as error:
            self.refusals += 1
            answer(str(error))
            return
        if len(log.appended) == count:
            self.repeated += 1
        else:
            self._check(key)
        self.waiting.append((key, needed, log.term, answer))

    def _acknowledge(self) -> None:
        for entry in list(self.waiting):
            key, needed, term, answer = entry
            log = self.target[key]
            if log.term != term:
                answer("not the leader")
            elif log.committed >= needed:
                answer("", needed - 1)
            else:
                continue
            self.waiting.remove(entry)

    # -- the oracle

    def _taken(self, key: PartitionKey) -> list[int]:
        return [header.base_timestamp for header in self.target[key].appended]

    def _committed_to(self, key: PartitionKey) -> int:
        """Up to which of the source's offsets all that is to be had is committed in the target."""
        log, source = self.target[key], self.source[key]
        wanted = source.committed
        return wanted[log.committed] if log.committed < len(wanted) else source.end

    def _check(self, key: PartitionKey) -> None:
        taken, wanted = self._taken(key), self.source[key].committed
        assert taken[-1:] == wanted[len(taken) - 1 : len(taken)], (
            f"{key}: {taken[-5:]} are not what comes next"
        )

    def check_all(self) -> None:
        for key in self.keys:
            assert self._taken(key) == self.source[key].committed, f"{key} is not all there"
        assert self.is_done, "the positions are not at the end"
