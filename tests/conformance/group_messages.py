"""The requests that the steps of `random_groups` stand for, from what their clients believe."""

from __future__ import annotations

from collections.abc import Callable

from random_groups import GARBAGE_ID, PROTOCOLS, Step
from sessions import (
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC_GROUP,
    Message,
)

MEMBER_ID_REQUIRED = 79


class Belief:
    """What a client knows of itself in one group."""

    def __init__(self) -> None:
        self.member_id = ""
        self.stale_id = GARBAGE_ID
        self.generation = -1
        self.protocol_name = "range"
        self.leads = False
        self.members: list[str] = []

    def learn(self, answer: Message) -> None:
        """Take in the answer to a join."""
        if answer["error_code"] not in (0, MEMBER_ID_REQUIRED):
            return
        if answer["member_id"] != self.member_id:
            self.stale_id, self.member_id = self.member_id or self.stale_id, answer["member_id"]
        if answer["error_code"] == 0:
            self.generation = answer["generation_id"]
            self.protocol_name = answer["protocol_name"]
            self.leads = answer["leader"] == self.member_id
            self.members = [member["member_id"] for member in answer["members"]]


class Clients:
    """The clients of one performance; `run` keeps their groups apart from those of others."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._beliefs: dict[tuple[str, int], Belief] = {}

    def group(self, name: str) -> str:
        names = {"odd": f"{self._run} ü", "long": f"{self._run}-{'x' * 3000}", "main": self._run}
        return names.get(name, f"{self._run}-{name}")

    def belief(self, step: Step) -> Belief:
        return self._belief(step.choices.get("group", "main"), step.slot)

    def request(self, step: Step) -> tuple[int, Message]:
        """(API key, message) of a step."""
        key, build = _BUILDERS[step.action]
        return key, build(self, step)

    def _belief(self, group: str, slot: int) -> Belief:
        return self._beliefs.setdefault((group, slot), Belief())

    def _member(self, group: str, slot: int, reference: str) -> str:
        belief = self._belief(group, slot)
        match reference:
            case "own":
                return belief.member_id
            case "stale":
                return belief.stale_id
            case "other":
                return self._belief(group, slot + 1).member_id or self._belief(group, slot - 1).member_id
            case "garbage":
                return GARBAGE_ID
        return ""

    def _generation(self, belief: Belief, reference: str) -> int:
        if reference.startswith("="):
            return int(reference[1:])
        return max(belief.generation, 0) + int(reference) if belief.generation >= 0 else int(reference)

    def _instance(self, slot: int, reference: str | bool) -> str | None:
        names = {True: f"static-{slot}", "other": f"static-{slot + 1}", "odd": "nobody's instance"}
        return names.get(reference)

    def identity(self, step: Step) -> Message:
        choices = step.choices
        group = choices.get("group", "main")
        return {
            "group_id": self.group(group),
            "member_id": self._member(group, step.slot, choices["member"]),
            "group_instance_id": self._instance(step.slot, choices["instance"]),
            "generation_id": self._generation(self._belief(group, step.slot), choices["generation"]),
        }

    def join(self, step: Step) -> Message:
        identity = self.identity(step._replace(choices={**step.choices, "generation": "+0"}))
        del identity["generation_id"]
        protocols = PROTOCOLS[step.choices["protocols"]]
        return identity | {
            "protocol_type": step.choices["protocol_type"],
            "protocols": [{"name": name, "metadata": metadata} for name, metadata in protocols],
            "session_timeout_ms": step.choices["session_ms"],
            "rebalance_timeout_ms": step.choices["rebalance_ms"],
        }

    def sync(self, step: Step) -> Message:
        belief, choices = self.belief(step), step.choices
        assigned = {
            "members": belief.members if belief.leads else [],
            "nobody": [],
            "strangers": [*belief.members, GARBAGE_ID, "", "x"],
            "itself": [belief.member_id],
            "twice": belief.members * 2,
        }[choices["assign"]]
        name = choices["protocol_name"]
        return self.identity(step) | {
            "protocol_type": choices["protocol_type"],
            "protocol_name": belief.protocol_name if name == "known" else name,
            "assignments": [
                # What a client gets must not depend on the order of members, which Kafka has from their ids' hashes.
                {
                    "member_id": member,
                    "assignment": b"%d for %s"
                    % (number // max(len(set(assigned)), 1), member[:-37].encode()),
                }
                for number, member in enumerate(assigned)
            ],
        }

    def leave(self, step: Step) -> Message:
        members = [
            {
                "member_id": self._member("main", each["slot"], each["member"]),
                "group_instance_id": self._instance(each["slot"], each["instance"]),
            }
            for each in step.choices["members"]
        ]
        group = {"group_id": self.group("main")}
        return {**group, "members": members} if step.version >= 3 else {**group, **members[0]}

    def commit(self, step: Step) -> Message:
        choices, identity = step.choices, self.identity(step)
        topics: dict[str, list[Message]] = {}
        for (topic, partition), offset in zip(choices["places"], choices["offsets"], strict=True):
            part = {
                "partition_index": partition,
                "committed_offset": offset,
                "committed_leader_epoch": choices["leader_epoch"],
                "committed_metadata": choices["metadata"],
            }
            if step.version == 1:
                part["commit_timestamp"] = choices["timestamp"]
            topics.setdefault(topic, []).append(part)
        return {
            **identity,
            "generation_id_or_member_epoch": identity.pop("generation_id"),
            "retention_time_ms": choices["retention_ms"],
            "topics": [{"name": name, "partitions": parts} for name, parts in topics.items()],
        }

    def fetch(self, step: Step) -> Message:
        choices = step.choices
        member, epoch = choices["member"]
        groups = [
            {
                "group_id": self.group(name),
                "member_id": None if member is None else self._member("main", step.slot, member),
                "member_epoch": epoch,
                "topics": None if places is None else _indexes(places),
            }
            for name, places in zip(choices["groups"], choices["places"], strict=True)
        ]
        stable = {"require_stable": choices["require_stable"]}
        return {"groups": groups, **stable} if step.version >= 8 else {**groups[0], **stable}

    def groups(self, step: Step) -> list[str]:
        return [self.group(name) for name in step.choices["groups"]]

    def find(self, step: Step) -> Message:
        key_type = {"key_type": step.choices["key_type"]}
        if step.version >= 4:
            return {"coordinator_keys": self.groups(step), **key_type}
        return {"key": self.groups(step)[0], **key_type}

    def delete_offsets(self, step: Step) -> Message:
        topics = [
            {
                "name": topic["name"],
                "partitions": [{"partition_index": p} for p in topic["partition_indexes"]],
            }
            for topic in _indexes(step.choices["places"])
        ]
        return {"group_id": self.group(step.choices["group"]), "topics": topics}


def _indexes(places: list[tuple[str, int]]) -> list[Message]:
    topics: dict[str, list[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(partition)
    return [{"name": name, "partition_indexes": indexes} for name, indexes in topics.items()]


_BUILDERS: dict[str, tuple[int, Callable[[Clients, Step], Message]]] = {
    "join": (JOIN_GROUP, Clients.join),
    "sync": (SYNC_GROUP, Clients.sync),
    "heartbeat": (HEARTBEAT, Clients.identity),
    "leave": (LEAVE_GROUP, Clients.leave),
    "commit": (OFFSET_COMMIT, Clients.commit),
    "fetch": (OFFSET_FETCH, Clients.fetch),
    "find": (FIND_COORDINATOR, Clients.find),
    "delete offsets": (OFFSET_DELETE, Clients.delete_offsets),
    "delete groups": (DELETE_GROUPS, lambda clients, step: {"groups_names": clients.groups(step)}),
    "describe": (
        DESCRIBE_GROUPS,
        lambda clients, step: {
            "groups": clients.groups(step),
            "include_authorized_operations": step.version >= 3 and step.choices["operations"],
        },
    ),
    "list": (
        LIST_GROUPS,
        lambda _, step: {
            name: step.choices[choice]
            for name, choice, version in (("states_filter", "states", 4), ("types_filter", "types", 5))
            if step.version >= version
        },
    ),
    "heartbeat of KIP-848": (
        CONSUMER_GROUP_HEARTBEAT,
        lambda clients, _: {"group_id": clients.group("nobody"), "member_id": ""},
    ),
    "describe of KIP-848": (
        CONSUMER_GROUP_DESCRIBE,
        lambda clients, _: {"group_ids": [clients.group("main"), clients.group("nobody")]},
    ),
}
