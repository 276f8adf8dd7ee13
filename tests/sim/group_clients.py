"""Models of consumers for the simulation of groups: they stall, die, leave, come back, and retry what got lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.broker.errors import ErrorCode
from headrace.broker.groups.events import (
    CommitOffsets,
    FetchOffsets,
    Heartbeat,
    JoinAnswer,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    Request,
    SyncAnswer,
    SyncGroup,
)
from headrace.broker.groups.records import OffsetValue
from headrace.broker.wire.partitions import TopicPartition

if TYPE_CHECKING:
    from group_world import World

GROUP, TOPIC, PARTITION_COUNT = "g", "t", 6
SESSION_MS, REBALANCE_MS = 6_000, 8_000
RETRY_ERRORS = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}
LOST_ERRORS = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}


class Client:
    """An eager consumer: join, sync, fetch offsets, then read, heartbeat and commit until it must join again."""

    def __init__(self, world: World, name: str, instance_id: str | None) -> None:
        self.world = world
        self.name = name
        self.instance_id = instance_id
        self.life = 0
        self.stalled_until_ms = 0
        self._fresh = 0
        self._forget_all()

    def _forget_all(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.state = "out"
        self.positions: dict[int, int] = {}
        self.connection = 0
        self._free_ms = 0

    # What happens to it.

    def start(self) -> None:
        self.life += 1
        self._forget_all()
        self.world.tell(f"{self.name} starts")
        self._join()
        self._every(1_000, self._beat)
        self._every(400, self._read)
        self._every(700, self._commit)

    def stall(self) -> None:
        self.stalled_until_ms = self.world.now_ms + self.world.random.randint(1_000, 15_000)
        self.world.tell(f"{self.name} stalls until {self.stalled_until_ms}")

    def die(self) -> None:
        self.world.tell(f"{self.name} dies")
        self.life += 1
        self._forget_all()
        self.world.after(self.world.random.randint(100, 10_000), self._start_again(self.life))

    def vanish(self) -> None:
        """Die without a word, for good."""
        self.world.tell(f"{self.name} vanishes")
        self.life += 1

    def leave(self) -> None:
        if self.instance_id is None and self.member_id:
            leaving = LeavingMember(member_id=self.member_id)
            self._send(LeaveGroup(group_id=GROUP, members=(leaving,)), lambda _: None)
        self.die()

    def _start_again(self, life: int) -> Callable[[], None]:
        return lambda: self.start() if life == self.life else None

    # Its machinery: timers and requests end with its life, and wait while it is stalled.

    def _later(self, delay_ms: int, action: Callable[[], None]) -> None:
        life = self.life

        def act() -> None:
            if life != self.life:
                return
            if self.world.now_ms < self.stalled_until_ms:
                self.world.after(self.stalled_until_ms - self.world.now_ms, act)
            else:
                action()

        self.world.after(delay_ms, act)

    def _every(self, interval_ms: int, action: Callable[[], None]) -> None:
        def again() -> None:
            action()
            self._later(interval_ms, again)

        self._later(interval_ms, again)

    def _send(self, request: Request[Any], answered: Callable[[Any], None], timeout_ms: int = 2_500) -> None:
        """One request on the current connection; a time-out gives the connection up with all that is on it."""
        world, connection, done = self.world, self.connection, [False]
        travel = world.delivery()

        def receive(answer: Any) -> None:
            if connection == self.connection and not done[0]:
                done[0] = True
                answered(answer)

        def reply(answer: Any) -> None:
            back = world.delivery()
            if back is not None:
                self._later(back, lambda: receive(answer))

        def arrive() -> None:
            if connection == self.connection:
                world.coordinator.receive(request, reply)

        def time_out() -> None:
            if connection == self.connection and not done[0]:
                self.connection += 1
                if self.state in ("joining", "syncing", "fetching"):
                    self._join()

        if travel is not None:
            # Requests of one connection arrive in order.
            self._free_ms = max(self._free_ms, world.now_ms + travel)
            world.after(self._free_ms - world.now_ms, arrive)
        self._later(timeout_ms, time_out)

    # What it does.

    def _join(self) -> None:
        self.state, self.positions = "joining", {}
        self._fresh += 1
        join = JoinGroup(
            group_id=GROUP,
            member_id=self.member_id,
            fresh_id=f"{self.name}.{self.life}.{self._fresh}",
            client_id=self.name,
            client_host="/sim",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=(("range", b""),),
            instance_id=self.instance_id,
            requires_member_id=self.instance_id is None,
        )
        self._send(join, self._joined, timeout_ms=REBALANCE_MS + 5_000)

    def _joined(self, answer: JoinAnswer) -> None:
        if self.state != "joining":
            return
        if answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self._join()
        elif answer.error is not ErrorCode.NONE:
            self._failed(answer.error)
        else:
            self.member_id, self.generation, self.state = answer.member_id, answer.generation, "syncing"
            members = sorted(member_id for member_id, _, _ in answer.members)
            self._sync(
                {m: partitions_of(m, members) for m in members} if answer.leader == self.member_id else {}
            )

    def _sync(self, assignments: dict[str, bytes]) -> None:
        sync = SyncGroup(
            group_id=GROUP,
            generation=self.generation,
            member_id=self.member_id,
            instance_id=self.instance_id,
            assignments=assignments,
        )
        self._send(sync, self._synced, timeout_ms=REBALANCE_MS + 5_000)

    def _synced(self, answer: SyncAnswer) -> None:
        if self.state != "syncing":
            return
        if answer.error is not ErrorCode.NONE:
            self._failed(answer.error)
            return
        self.state = "fetching"
        assigned = json.loads(answer.assignment or b"[]")
        self.positions = dict.fromkeys(assigned, -1)
        partitions = tuple(TopicPartition(TOPIC, partition) for partition in assigned)
        floor = dict(self.world.acknowledged)
        self._send(
            FetchOffsets(group_id=GROUP, partitions=partitions), lambda fetched: self._fetched(floor, fetched)
        )

    def _fetched(self, floor: dict[TopicPartition, int], answer: Any) -> None:
        if self.state != "fetching":
            return
        if answer.error is not ErrorCode.NONE:
            self._failed(answer.error)
            return
        for partition, fetched in answer.offsets.items():
            self.world.check_fetched(floor, partition, fetched.offset)
            self.positions[partition.partition] = max(fetched.offset, 0)
        self.state = "stable"

    def _read(self) -> None:
        if self.state == "stable":
            for partition in self.positions:
                self.positions[partition] += self.world.random.randint(0, 10)

    def _beat(self) -> None:
        if self.state == "stable":
            beat = Heartbeat(
                group_id=GROUP,
                generation=self.generation,
                member_id=self.member_id,
                instance_id=self.instance_id,
            )
            generation = self.generation
            self._send(beat, lambda error: self._heard(generation, error))

    def _commit(self) -> None:
        if self.state != "stable" or not self.positions:
            return
        offsets = {
            TopicPartition(TOPIC, p): OffsetValue(offset=position) for p, position in self.positions.items()
        }
        commit = CommitOffsets(
            group_id=GROUP,
            generation=self.generation,
            member_id=self.member_id,
            instance_id=self.instance_id,
            offsets=offsets,
        )
        generation = self.generation

        def committed(errors: dict[TopicPartition, ErrorCode]) -> None:
            for partition, error in errors.items():
                if error is ErrorCode.NONE:
                    known = self.world.acknowledged.get(partition, -1)
                    self.world.acknowledged[partition] = max(known, offsets[partition].offset)
            self._heard(generation, next(iter(errors.values())))

        self._send(commit, committed)

    def _heard(self, generation: int, error: ErrorCode) -> None:
        if self.state != "stable" or generation != self.generation or error is ErrorCode.NONE:
            return
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            if self.world.random.random() < 0.5:
                self._commit()
            self._join()
        elif error not in RETRY_ERRORS:
            self._failed(error)

    def _failed(self, error: ErrorCode) -> None:
        """What a consumer does with an error while it owns nothing, or with the loss of its membership."""
        self.world.tell(f"{self.name} hears {error.name} in {self.state}")
        if error in LOST_ERRORS or error is ErrorCode.FENCED_INSTANCE_ID:
            self.member_id, self.generation = "", -1
        self.state, self.positions = "joining", {}
        self._later(self.world.random.randint(50, 300), self._join)


def partitions_of(member_id: str, members: list[str]) -> bytes:
    """A round-robin share of the partitions."""
    return json.dumps(list(range(PARTITION_COUNT))[members.index(member_id) :: len(members)]).encode()
