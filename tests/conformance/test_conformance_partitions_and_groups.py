"""CreatePartitions, and the filters of ListGroups and DescribeGroups, beside Apache Kafka."""

from __future__ import annotations

from typing import Any

import pytest
from processes import eventually
from sessions import (
    CREATE_PARTITIONS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    LIST_GROUPS,
    METADATA,
    OFFSET_COMMIT,
    Message,
    Pair,
    Session,
    create_topic,
)


@pytest.mark.parametrize("version", range(4))
def test_create_partitions(pair: Pair, version: int) -> None:
    name = f"grown-{version}"

    def script(session: Session) -> None:
        create_topic(session, name, partitions=2)

        def grow(*topics: tuple[str, int, Any], validate_only: bool = False) -> None:
            message = {
                "topics": [
                    {
                        "name": topic,
                        "count": count,
                        "assignments": None if brokers is None else [{"broker_ids": b} for b in brokers],
                    }
                    for topic, count, brokers in topics
                ],
                "timeout_ms": 10_000,
                "validate_only": validate_only,
            }
            answer = session.look(CREATE_PARTITIONS, version, message, noted=True)
            results = sorted((r["name"], r["error_code"]) for r in answer["results"])
            session.note(f"{topics} {validate_only}", results)

        grow((name, 4, None), validate_only=True)
        grow((name, 4, None))
        for count in (4, 3, 0, -1):
            grow((name, count, None))
        grow(("nowhere", 4, None), (name, 5, [[1]]))
        grow((name, 6, None), (name, 7, None))
        odd: list[list[list[int]]] = [[], [[1], [1]], [[]], [[1, 1]], [[7]], [[1, 7]], [[-1]]]
        for brokers in odd:
            grow((name, 6, brokers))
        found = session.look(METADATA, 5, {"topics": [{"name": name}], "allow_auto_topic_creation": False})
        session.note("partitions", len(found["topics"][0]["partitions"]))

    pair.compare(script)


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed_and_described(pair: Pair, version: int) -> None:
    def script(session: Session) -> None:
        create_topic(session, "listed")

        def is_here() -> bool:
            message = {"coordinator_keys": ["simple"], "key_type": 0}
            found = session.look(FIND_COORDINATOR, 4, message)["coordinators"]
            return bool(found[0]["error_code"] == 0)

        eventually(is_here, what="the coordinator")
        partitions = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": "m"}]
        commit = {"group_id": "simple", "topics": [{"name": "listed", "partitions": partitions}]}

        def is_committed() -> bool:
            answer = session.look(OFFSET_COMMIT, 2, commit)
            return bool(answer["topics"][0]["partitions"][0]["error_code"] == 0)

        eventually(is_committed, what="the commit")

        def listed(note: str, message: Message) -> None:
            answer = session.look(LIST_GROUPS, version, message, noted=True)
            groups = [g for g in answer["groups"] if g["group_id"] == "simple"]
            session.note(note, (answer["error_code"], groups))

        listed("all", {})
        if version >= 4:
            for state in ("Empty", "empty", "Stable", "nonsense", ""):
                listed(f"state {state}", {"states_filter": [state]})
        if version >= 5:
            for group_type in ("classic", "CLASSIC", "consumer", "nonsense"):
                listed(f"type {group_type}", {"types_filter": [group_type]})
        message: Message = {"groups": ["simple", "nobody", ""]}
        if version >= 3:
            message["include_authorized_operations"] = True
        session.ask(DESCRIBE_GROUPS, version, message)

    pair.compare(script)
