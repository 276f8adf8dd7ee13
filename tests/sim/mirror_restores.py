"""Brokers that copy one partition in turn, whose topic is promoted, written to by clients, and restored, again and again.

What is a model here, beside what `mirror_fail_over` models: who hears when that the topic is a copy, or is not; the clients
that write to it in between; the person who restores it, whose command may be broken off after the orders; the controller,
which has the leader go on in another leader epoch. The source loses nothing. At the end the copy is the source's, to the last
batch, on every replica, and nothing that clients wrote here is left.

In a `ReverseWorld` the topic never was a copy: its source was one of it, which was promoted, and the first restore reverses that.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, cast

from mirror_fail_over import PLACE, Broker, FailOverWorld, SharedLog
from mirror_world import TARGET_ID, Batch

from headrace.broker.log.appender import Appender
from headrace.broker.log.truncation import truncate_to
from headrace.broker.wire.batches import (
    Record,
    encode_batch,
    iter_batches,
    read_header,
    set_base_offset_and_epoch,
)
from headrace.mirror.equality import difference
from headrace.mirror.equality.common_point import CommonPoint
from headrace.mirror.memory.state import RESTORE, RestoreOrder, State, encode_restore, key_of
from headrace.mirror.restoring import Restoring

KEY = key_of(PLACE, RESTORE)


class RestoringBroker(Broker):
    """`is_copy` is what it heard last of the topic."""

    world: RestoreWorld

    def start(self) -> None:
        super().start()
        self.is_copy = self.world.is_copy
        self.restoring: Restoring | None = None
        self.state_before: State | None = None

    def tell(self, epoch: int, leader: int, isr: set[int]) -> None:
        was_told = self.told_epoch, self.partition.leader_epoch
        super().tell(epoch, leader, isr)
        if (self.told_epoch, self.partition.leader_epoch) != was_told:
            self.restoring = None

    def hear(self) -> None:
        """Of the topic's configuration; who missed that it was promoted in between finds the order."""
        is_to_restore = self.is_copying and self.journal.restore_of(self.lead) is not None
        if self.is_copy == self.world.is_copy and not is_to_restore:
            return
        self.is_copy, self.is_copying, self.restoring = self.world.is_copy, False, None
        if not self.partition.is_leader:
            return
        self.arrivals.let_go(self.lead)
        if not self.is_copy:
            self.journal.forget(cast("Any", self.partition))
        self.take_over()

    def take_over(self) -> None:
        if self.is_copy:
            super().take_over()

    def begin(self, lead: Any, state: State) -> None:
        order = self.journal.restore_of(lead)
        if not self.is_copy or self.lead != lead or not lead.holds:
            return
        if order is None:
            super().begin(lead, state)
        else:
            self.restoring, self.state_before = Restoring(order, self), state

    # -- restoring

    @property
    def leads_since_its_last_message(self) -> bool:
        return self.log.epoch_at(self.log.log_end_offset - 1) < self.lead.leader_epoch

    @property
    def is_on_all_in_sync(self) -> bool:
        end = self.log.log_end_offset
        return all(self.ends.get(other, -1) >= end for other in self.partition.isr if other != self.number)

    def restore(self) -> None:
        """What `Restorer` does of a copy."""
        lead, restoring, state = self.lead, self.restoring, self.state_before
        if restoring is None or state is None or not lead.holds:
            return
        if restoring.wants_cut:
            self.cut(restoring.order.end_offset)
            self.ends = {n: end for n, end in self.ends.items() if end < self.log.log_end_offset}
            self.log.assign_epoch(lead.leader_epoch)
            restoring.was_cut()
        if restoring.is_done:
            self.restoring = None
            restored = state.restored(restoring.order)
            begin = super().begin
            self.journal.restored(lead, restored, lambda: begin(lead, restored) if self.is_copy else None)

    def cut(self, offset: int) -> None:
        self.copied = [batch for batch in self.copied if batch.base_offset < offset]
        truncate_to(self.log, offset)

    def _truncate(self, leader: Broker) -> None:
        """Cut what differs from the leader's log, where the epochs show that something does; at each fetch, as followers do."""
        latest = self.log.latest_epoch
        known = leader.log.epoch_end_offset(latest)
        if latest == known.leader_epoch and self.log.log_end_offset <= known.end_offset:
            return
        for own, other in zip_longest(self.headers(), leader.headers()):
            if own is None:
                break
            if other is None or own[:2] != other[:2]:
                self.cut(min(own[0], leader.log.log_end_offset))
                break

    def fetch_from(self, leader: Broker) -> None:
        self.must_truncate = True
        super().fetch_from(leader)

    def write_own(self) -> None:
        """A client's batch, in a topic that is no copy."""
        if self.is_copy or not self.lead.holds or self.partition.is_under_min_isr:
            return
        self.world.own_count += 1
        size = self.random.randint(1, 3)
        own = self.append_own(
            [Record(0, 1, None, b"own %d/%d" % (self.world.own_count, i), []) for i in range(size)]
        )
        self.world.own.add(own.key)

    def append_own(self, records: Sequence[Record]) -> Batch:
        """One batch of a client's."""
        end = self.log.log_end_offset
        data = bytearray(encode_batch(records))
        Appender(self.log).append_as_leader(
            memoryview(data), leader_epoch=self.lead.leader_epoch, now_ms=self.now_ms
        )
        set_base_offset_and_epoch(data, 0, end, self.lead.leader_epoch)
        own = Batch(end, end + len(records), -1, bytes(data))
        self.source.ever.setdefault(own.key, own)
        self.copied.append(self.source.ever[own.key])
        self.advance()
        return own


class RestoreWorld(FailOverWorld):
    """One seed's life; `own` are the batches that clients wrote here, `restores` how often it was made a copy again, `following`
    is the share of steps in which a follower comes to fetch.
    """

    broker_type = RestoringBroker
    begins_as_copy = True
    may_copy_again = True
    unknown_end = -1

    def __init__(self, seed: int) -> None:
        self.is_copy = self.begins_as_copy
        self.own: set[tuple[int, int]] = set()
        self.own_count = self.restores = 0
        self._rounds = 0
        super().__init__(seed)
        self.is_quiet = True
        self.following = self.random.choice((0.05, 0.2, 1.0))
        self.source.is_compacted = False

    def _step(self) -> None:
        choice = self.random.random()
        if self.is_copy and choice < 0.03 and not self._is_ordered:
            self.is_copy = False
        elif not self.is_copy and choice < 0.3:
            leader = self._leader
            if leader is not None and self._have_all_heard:
                leader.survive(leader.write_own)
        elif not self.is_copy and choice < 0.36:
            self._restore()
        elif self._is_ordered and choice < 0.2:
            self._renew()
        elif choice > 0.95:
            self._fail_over()
        super()._step()

    def _turn(self, broker: Broker) -> None:
        restoring = cast("RestoringBroker", broker)
        for task, share in ((restoring.hear, 0.4), (restoring.restore, self.haste)):
            if broker.is_up and self.random.random() < share:
                broker.survive(task)
        super()._turn(broker)

    def _replicate(self, broker: Broker) -> None:
        if self.is_calm or self.random.random() < self.following:
            super()._replicate(broker)

    @property
    def _leader(self) -> RestoringBroker | None:
        return cast("RestoringBroker | None", self.led_by)

    @property
    def _have_all_heard(self) -> bool:
        """Else the next leader may take clients' messages for a truncation of its source."""
        return not any(cast("RestoringBroker", broker).is_copy for broker in self.brokers if broker.is_up)

    @property
    def _is_ordered(self) -> bool:
        return self._effective.restore_of(PLACE, TARGET_ID) is not None

    def _renew(self) -> None:
        """The controller has the leader go on in the next epoch."""
        if self.leader in self.isr:
            self.epoch += 1

    def _restore(self) -> None:
        """The command: the order; then, unless it is broken off, the mark."""
        leader = self._leader
        if leader is None:
            return
        if leader.log.high_watermark < leader.log.epoch_end_offset(self.epoch - 1).end_offset:
            return  # OFFSET_NOT_AVAILABLE: a new leader does not know yet what is committed
        point = CommonPoint(leader.log_start_offset, min(leader.log.high_watermark, self.source.end))
        while (wanted := point.wants) is not None:
            here = leader.log.read(wanted, size_max=1, upper_offset=leader.log.log_end_offset).read()
            there = next(b.data for b in self.source.batches if b.next_offset > wanted)
            point.served(_batch(there), _batch(here))
        last = point.last
        order = RestoreOrder(
            target_id=TARGET_ID,
            source_id=self.source.topic_id,
            end_offset=point.offset,
            epoch=-1 if last is None else last.leader_epoch,
            epoch_start=-1 if last is None else last.base_offset,
        )
        self.logs[0].commit([(KEY, encode_restore(order))], self.now_ms)
        if self.is_calm or self.random.random() < 0.7:
            self.is_copy = True
            self.restores += 1

    def _commit_late(self, log: SharedLog, pairs: Any) -> None:
        """What a dead broker sent may arrive at any time, but not so late as to remove the order of another promotion."""
        if all(key != KEY for key, _ in pairs):
            super()._commit_late(log, pairs)

    def _calm_step(self) -> None:
        self._rounds += 1
        if self._rounds > 100 and not self.is_copy:
            self._restore()
        if self._rounds % 60 == 0 and self._is_ordered:
            self._renew()
        for broker in self.brokers:
            restoring = cast("RestoringBroker", broker)
            restoring.hear()
            restoring.restore()
        super()._calm_step()

    def _check(self) -> None:
        super()._check()
        assert self.is_copy, "it was restored"
        assert not self.findings, "the source lost nothing"
        for broker in self.brokers:
            left = self.own & {(base, crc) for base, _, crc in broker.headers()}
            assert not left, f"broker {broker.number} still has what clients wrote here: {sorted(left)}"
            assert broker.log_end_offset == self.source.end, "the copy has all that the source has"


class ReverseWorld(RestoreWorld):
    """Clients wrote here first: `SHARED_MAX` batches at most were copied to what is the source since it took over."""

    begins_as_copy = False
    SHARED_MAX = 8

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        leader = cast("RestoringBroker", self.brokers[0])
        for number in range(self.random.randint(0, self.SHARED_MAX)):
            records = [Record(0, 1, None, b"shared %d" % number, [])] * self.random.randint(1, 3)
            self.source.append_batch(records)
            leader.append_own(records)
        while any(broker.log_end_offset < leader.log_end_offset for broker in self.brokers):
            for broker in self.brokers[1:]:
                broker.fetch_from(leader)
        self.source.elect()


def _batch(data: bytes) -> difference.Batch:
    position, header = next(iter(iter_batches(data)), (0, read_header(data)))
    return difference.Batch(header, memoryview(data)[position : position + header.size])
