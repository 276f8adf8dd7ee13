"""Performs a script of `random_groups` on one broker, and compares what two brokers made of the same script.

Every request has a connection of its own, so that any number may wait at once. Both brokers handle requests one after
the other (Kafka gets one thread for each kind of work), so that an answer to DescribeGroups shows that all earlier
requests were handled. Noted is which request became answered by which step, how, and what the groups look like then.

What may differ, beside what `sessions` lists:

- MEMBER IDS end in random UUIDs; they are numbered as they show up, by what stands before the UUID.
- SUPERSEDED: where Kafka never answers a join or sync that was parked, ours answers REBALANCE_IN_PROGRESS when the same
  member asks again, and UNKNOWN_MEMBER_ID when it is removed.
- ELECTIONS: when the leader goes, Kafka elects whoever comes first by the hashes of the random ids. A session in which
  the brokers elected different members is compared up to there.
"""

from __future__ import annotations

import re
import select
import socket
import time
from typing import Any, NamedTuple

from group_messages import Clients
from random_groups import SESSION_MS_SHORT, Step
from raw_client import read_frame
from sessions import API_VERSIONS, CLOSED, DESCRIBE_GROUPS, JOIN_GROUP, SYNC_GROUP, Message, Session

from headrace.broker.wire import frames
from headrace.broker.wire.api import APIS

MAY_WAIT = (JOIN_GROUP, SYNC_GROUP)
QUIET_SECONDS = 1.5 * SESSION_MS_SHORT / 1000
INITIAL_SECONDS_MAX = 2
NO_ANSWER_SECONDS = 8
MEMBER_ID_REQUIRED = 79
UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS = 25, 27
UUID_AT_END = re.compile(r"(.*-)([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})", re.DOTALL)


class Asked(NamedTuple):
    """A request that is on its way; a join with `again` is sent once more with the id that it may get."""

    number: int
    key: int
    step: Step
    message: Message
    connection: socket.socket
    again: bool


class Noted(NamedTuple):
    """What came of the steps up to one: answers by the number of their request, and the groups as described."""

    step: int
    answers: dict[int, Any]
    groups: Any


class _Comparable(Session):
    """Numbers member ids by what stands before their UUID."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address)
        self._numbers: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def _identity(self, value: Any) -> Any:
        found = UUID_AT_END.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            return value
        if value not in self._numbers:
            prefix = found.group(1)
            self._counts[prefix] = self._counts.get(prefix, 0) + 1
            self._numbers[value] = f"{prefix}#{self._counts[prefix]}"
        return self._numbers[value]


class GroupRun:
    """One performance of a script."""

    def __init__(self, address: tuple[str, int], run: str) -> None:
        self._address = address
        self._clients = Clients(run)
        self._run = run
        self._session = _Comparable(address)
        self._waiting: list[Asked] = []
        self._idle: list[socket.socket] = []
        self._answers: dict[int, Any] = {}
        self._empty: set[str] = {self._clients.group(name) for name in ("main", "second")}
        self.labels: dict[int, str] = {}
        self.notes: list[Noted] = []

    def perform(self, steps: list[Step]) -> GroupRun:
        try:
            for number, step in enumerate(steps):
                if step.action == "pause":
                    self._await_quiet()
                else:
                    self._send(step, f"step {number}")
                if step.settled:
                    groups = self._settled()
                    self.notes.append(Noted(number, self._answers, groups))
                    self._answers = {}
                else:
                    self._describe()
        finally:
            for connection in [asked.connection for asked in self._waiting] + self._idle:
                connection.close()
            self._session.close()
        return self

    @property
    def unanswered(self) -> set[int]:
        return {asked.number for asked in self._waiting}

    # Sending.

    def _send(self, step: Step, label: str) -> None:
        key, message = self._clients.request(step)
        again = key == JOIN_GROUP and step.choices["again"] and not message["member_id"]
        self._ask(key, step, message, label, again=again)
        if again:
            self._describe_later()
            self._drain()

    def _ask(self, key: int, step: Step, message: Message, label: str, *, again: bool) -> None:
        connection = self._idle.pop() if self._idle else self._connect()
        number = len(self.labels)
        self.labels[number] = f"{label}: {APIS[key].name} v{step.version}"
        client = step.choices.get("client", f"client-{step.slot}")
        header = frames.encode_request_header(key, step.version, number, client)
        connection.sendall(
            frames.frame(header, APIS[key].encode_request(step.version, _fit(key, step, message)))
        )
        asked = Asked(number, key, step, message, connection, again)
        self._waiting.append(asked)
        if key not in MAY_WAIT:
            self._read(asked)

    def _connect(self) -> socket.socket:
        """A connection that the broker has seen: what comes on it is handled in turn."""
        connection = socket.create_connection(self._address, timeout=NO_ANSWER_SECONDS)
        header = frames.encode_request_header(API_VERSIONS, 0, 0, None)
        connection.sendall(frames.frame(header))
        read_frame(connection)
        return connection

    # Receiving.

    def _settled(self) -> Any:
        """The groups' state once everything that follows at once has followed, and all its answers are here."""
        deadline = time.monotonic() + INITIAL_SECONDS_MAX
        groups = self._describe_later()
        while self._begins(groups) and time.monotonic() < deadline:
            time.sleep(0.02)
            groups = self._describe()
        groups = self._describe_later()
        self._drain()
        self._empty = {each["group_id"] for each in groups if each["group_state"] in ("Empty", "Dead")}
        return self._session.comparable(groups, "groups")

    def _begins(self, groups: Any) -> bool:
        """Whether a group has its first members and lets others come."""
        return any(
            each["group_id"] in self._empty and each["group_state"] == "PreparingRebalance" for each in groups
        )

    def _await_quiet(self) -> None:
        """Wait until nothing has changed for longer than any short time-out."""
        last, since = self._describe(), time.monotonic()
        while time.monotonic() - since < QUIET_SECONDS:
            time.sleep(0.05)
            now = self._describe()
            if now != last:
                last, since = now, time.monotonic()

    def _describe(self) -> Any:
        groups = [self._clients.group("main"), self._clients.group("second")]
        return self._session.look(DESCRIBE_GROUPS, 5, {"groups": groups})["groups"]

    def _describe_later(self) -> Any:
        """After whatever the broker finds to do at the same time as a first look."""
        self._describe()
        return self._describe()

    def _drain(self) -> None:
        """Take in the answers that have come."""
        while self._waiting:
            readable, _, _ = select.select([asked.connection for asked in self._waiting], [], [], 0)
            if not readable:
                return
            for asked in [asked for asked in self._waiting if asked.connection in readable]:
                self._read(asked)

    def _read(self, asked: Asked) -> None:
        self._waiting.remove(asked)
        try:
            reply = read_frame(asked.connection)
        except (ConnectionError, TimeoutError) as error:
            asked.connection.close()
            self._answers[asked.number] = "no answer" if isinstance(error, TimeoutError) else CLOSED
            return
        self._idle.append(asked.connection)
        correlation_id, offset = frames.read_response_header(asked.key, asked.step.version, reply)
        assert correlation_id == asked.number, "an answer to another request"
        self._take(asked, APIS[asked.key].decode_response(asked.step.version, reply, offset))

    def _take(self, asked: Asked, answer: Message) -> None:
        if asked.step.action == "list":
            ours = [each for each in answer["groups"] if each["group_id"].startswith(self._run)]
            answer = {**answer, "groups": ours}
        comparable = self._session.comparable(answer)
        if asked.step.action == "leave" and asked.step.version >= 3:
            # Other than lists of a group's members, this one has the order of the request.
            comparable["members"] = [self._session.comparable(each) for each in answer["members"]]
        self._answers[asked.number] = comparable
        if asked.key == JOIN_GROUP:
            self._clients.belief(asked.step).learn(answer)
            if asked.again and answer["error_code"] == MEMBER_ID_REQUIRED:
                message = {**asked.message, "member_id": answer["member_id"]}
                self._ask(JOIN_GROUP, asked.step, message, self.labels[asked.number], again=False)


def _fit(key: int, step: Step, message: Message) -> Message:
    """The message without the fields that its version lacks."""
    known = {field.name for field in APIS[key].request if field.present_in(step.version)}
    return {name: value for name, value in message.items() if name in known}


class Difference(NamedTuple):
    """The first place where two performances part; `by_chance` when two elections did."""

    step: int
    what: str
    by_chance: bool = False


def first_difference(ours: GroupRun, theirs: GroupRun) -> Difference | None:
    """Where headrace and Kafka part for the first time, but for what may differ."""
    leader = ""
    for our, their in zip(ours.notes, theirs.notes, strict=True):
        if our == their:
            leader = next(iter(_leaders(their)), leader)
            continue
        if leader and _elections(our, their, leader):
            return Difference(our.step, "other leaders", by_chance=True)
        for number in sorted(our.answers.keys() | their.answers.keys()):
            answer, other = our.answers.get(number), their.answers.get(number)
            if answer != other and not (number in theirs.unanswered and _is_release(answer)):
                what = f"headrace {_or_waits(answer)}\nKafka    {_or_waits(other)}"
                return Difference(our.step, f"{ours.labels.get(number) or theirs.labels[number]}\n{what}")
        if our.groups != their.groups:
            return Difference(our.step, f"groups\nheadrace {our.groups}\nKafka    {their.groups}")
    return None


def _or_waits(answer: Any) -> Any:
    return "does not answer" if answer is None else answer


def _is_release(answer: Any) -> bool:
    """Whether it is what ours says to a parked request that Kafka never answers."""
    return isinstance(answer, dict) and answer["error_code"] in (UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS)


def _leaders(noted: Noted) -> set[str]:
    """Whom the answers to joins name."""
    return {
        each["leader"] for each in noted.answers.values() if isinstance(each, dict) and each.get("leader")
    }


def _elections(our: Noted, their: Noted, leader: str) -> bool:
    """Whether both made one of several members the successor of `leader`, each another one."""
    elected, other = _leaders(our), _leaders(their)
    return elected != other and leader not in elected | other and bool(elected) and bool(other)
