"""A shard driven by a script: events in, replies out, with a log in memory and a clock that the script moves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headrace.broker.config.sections import Groups
from headrace.broker.coordinators.decision import TimerKey
from headrace.broker.coordinators.records import Record
from headrace.broker.coordinators.timers import TimerQueue
from headrace.broker.errors import ErrorCode
from headrace.broker.groups.events import (
    CommitOffsets,
    DeleteGroup,
    DescribeGroup,
    Event,
    FetchOffsets,
    Heartbeat,
    JoinAnswer,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    ShardLoaded,
    SyncAnswer,
    SyncGroup,
)
from headrace.broker.groups.machine import Shard
from headrace.broker.groups.memory import MembersMemory
from headrace.broker.groups.records import OffsetValue
from headrace.broker.wire.partitions import TopicPartition

RANGE = (("range", b"r"),)


@dataclass
class Script:
    """`tell` decides, adopts, appends and applies one event; `replies` holds what has been answered, by token."""

    config: Groups = field(default_factory=lambda: Groups(group_initial_rebalance_delay_ms=0))
    now_ms: int = 1_000_000
    log: list[Record] = field(default_factory=list)
    replies: dict[int, Any] = field(default_factory=dict)
    append_error: ErrorCode | None = None
    token: int = 0
    memory: MembersMemory = field(default_factory=MembersMemory)

    def __post_init__(self) -> None:
        self.shard = Shard(self.config, self.memory)
        self.timers: TimerQueue[TimerKey, Event] = TimerQueue()

    def tell(self, event: Event) -> int:
        """The token under which the reply will be."""
        self.token += 1
        token = self.token
        before = self.memory_of_shard()
        decision = self.shard.decide(event, self.now_ms, token)
        if decision.records and self.append_error is not None:
            decision = self.shard.append_failed(event, decision, self.append_error, self.now_ms, token)
        assert self.memory_of_shard() == before, "a decision changes nothing"
        self.shard.adopt(decision)
        for record in decision.records:
            self.log.append(record)
            self.shard.apply(record)
        for timer in decision.timers:
            if timer.event is None:
                self.timers.cancel(timer.key)
            else:
                self.timers.set(timer.key, timer.deadline_ms, timer.event)
        for reply in decision.replies:
            assert reply.to not in self.replies, "a request is answered once"
            self.replies[reply.to] = reply.answer
        return token

    def memory_of_shard(self) -> str:
        """All that the shard holds in memory."""
        return repr((self.shard.groups, self.memory.size))

    def ask(self, event: Event) -> Any:
        """The answer of a request that is answered at once."""
        return self.replies[self.tell(event)]

    def pass_time(self, ms: int) -> None:
        """Let time pass, bringing timers in their order."""
        end = self.now_ms + ms
        while (deadline := self.timers.next_deadline()) is not None and deadline <= end:
            self.now_ms = max(self.now_ms, deadline)
            for event in self.timers.due(self.now_ms):
                self.tell(event)
        self.now_ms = end

    def reload(self) -> None:
        """The coordinator crashes: a new shard learns everything from the log."""
        self.shard.release()
        self.shard = Shard(self.config, self.memory)
        self.timers = TimerQueue()
        for record in self.log:
            self.shard.apply(record)
        self.tell(ShardLoaded())

    # Requests in short form.

    def join(self, member_id: str = "", **overrides: Any) -> int:
        values: dict[str, Any] = {
            "group_id": "g",
            "member_id": member_id,
            "fresh_id": str(self.token + 1),
            "client_id": "c",
            "client_host": "/127.0.0.1",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": RANGE,
        }
        return self.tell(JoinGroup(**(values | overrides)))

    def sync(
        self, member_id: str, generation: int, assignments: dict[str, bytes] | None = None, **more: Any
    ) -> int:
        return self.tell(
            SyncGroup(
                group_id="g",
                member_id=member_id,
                generation=generation,
                assignments=assignments or {},
                **more,
            )
        )

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> ErrorCode:
        beat = Heartbeat(group_id="g", member_id=member_id, generation=generation, instance_id=instance_id)
        answer: ErrorCode = self.ask(beat)
        return answer

    def leave(self, *members: str | LeavingMember) -> list[ErrorCode]:
        leaving = tuple(LeavingMember(member_id=m) if isinstance(m, str) else m for m in members)
        return [error for _, error in self.ask(LeaveGroup(group_id="g", members=leaving)).members]

    def commit(
        self, member_id: str, generation: int, offset: int, metadata: str = "", **more: Any
    ) -> ErrorCode:
        partition = TopicPartition("t", 0)
        value = OffsetValue(offset=offset, metadata=metadata, commit_timestamp_ms=self.now_ms)
        values: dict[str, Any] = {
            "group_id": "g",
            "member_id": member_id,
            "generation": generation,
            "offsets": {partition: value},
        }
        answer: ErrorCode = self.ask(CommitOffsets(**(values | more)))[partition]
        return answer

    def committed(self, topic: str = "t", partition: int = 0) -> int:
        key = TopicPartition(topic, partition)
        offset: int = self.ask(FetchOffsets(group_id="g", partitions=(key,))).offsets[key].offset
        return offset

    def state(self) -> str:
        state: str = self.ask(DescribeGroup(group_id="g")).state
        return state

    def delete(self) -> ErrorCode:
        answer: ErrorCode = self.ask(DeleteGroup(group_id="g"))
        return answer

    def joined(self, token: int) -> JoinAnswer:
        answer: JoinAnswer = self.replies[token]
        return answer

    def synced(self, token: int) -> SyncAnswer:
        answer: SyncAnswer = self.replies[token]
        return answer

    # Whole rounds.

    def stable(self, count: int = 1, **overrides: Any) -> list[str]:
        """Bring `count` members through join and sync; their ids, the leader first, in generation 1."""
        tokens = [self.join(**overrides) for _ in range(count)]
        self.pass_time(0)
        answers = [self.joined(token) for token in tokens]
        assert all(answer.error is ErrorCode.NONE for answer in answers)
        leader = answers[0].leader
        members = sorted((answer.member_id for answer in answers), key=lambda m: m != leader)
        assignments = {member_id: member_id.encode() for member_id in members}
        for member_id in reversed(members):
            token = self.sync(member_id, answers[0].generation, assignments if member_id == leader else None)
        assert self.synced(token).assignment == leader.encode()
        assert self.state() == "Stable"
        return members
