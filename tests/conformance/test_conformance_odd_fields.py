"""Fields that ordinary clients never set, or set once: honoured or refused as Apache Kafka does, none passed over."""

from __future__ import annotations

from uuid import UUID

import pytest
from sessions import (
    DELETE_GROUPS,
    DESCRIBE_CLUSTER,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    Message,
    Pair,
    Session,
    create_topic,
)

UNKNOWN_ID = UUID(int=7)


@pytest.mark.parametrize("version", [10, 11, 12])
def test_metadata_by_name_and_by_id(pair: Pair, version: int) -> None:
    name = f"odd-{version}"

    def script(session: Session) -> None:
        topic_id = create_topic(session, name)
        wishes: list[Message] = [
            {"name": None, "topic_id": topic_id},
            {"name": name, "topic_id": topic_id},
            {"name": "other", "topic_id": topic_id},
            {"name": None, "topic_id": UNKNOWN_ID},
        ]
        for wish in wishes:
            topics = [wish, {"name": name, "topic_id": UUID(int=0)}]
            message = {"topics": topics, "allow_auto_topic_creation": False}
            session.ask(METADATA, version, message, note=f"{wish['name']} {wish['topic_id'].int > 0}")

    pair.compare(script)


@pytest.mark.parametrize("version", [0, 1])
def test_describe_cluster_of_every_endpoint_type(pair: Pair, version: int) -> None:
    def script(session: Session) -> None:
        for endpoint_type in (1, 2, 0, 9) if version else (None,):
            for operations in (False, True):
                message: Message = {"include_cluster_authorized_operations": operations}
                if endpoint_type is not None:
                    message["endpoint_type"] = endpoint_type
                session.ask(DESCRIBE_CLUSTER, version, message, note=f"{endpoint_type} {operations}")

    pair.compare(script)


@pytest.mark.parametrize("version", [7, 8, 9])
def test_offsets_are_fetched_for_odd_groups(pair: Pair, version: int) -> None:
    def script(session: Session) -> None:
        create_topic(session, "odd-offsets")
        topics = [
            {"name": name, "partition_indexes": [0, 0, 7]}
            for name in ("odd-offsets", "nowhere", "odd-offsets")
        ]
        for group in ("", "nobody"):
            for stable in (False, True):
                if version < 8:
                    message: Message = {"group_id": group, "topics": topics, "require_stable": stable}
                else:
                    member = {"member_id": "m", "member_epoch": 5} if version >= 9 else {}
                    wish = {"group_id": group, "topics": topics, **member}
                    message = {
                        "groups": [wish, {"group_id": group, "topics": None}],
                        "require_stable": stable,
                    }
                session.ask(OFFSET_FETCH, version, message, note=f"{group!r} {stable}")

    pair.compare(script)


def test_groups_and_offsets_are_deleted_that_are_not_there(pair: Pair) -> None:
    def script(session: Session) -> None:
        create_topic(session, "odd-deleted")
        # Other sessions may have made the group without a name: so does this one.
        part = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
        commit = {"group_id": "", "topics": [{"name": "odd-deleted", "partitions": [part]}]}
        session.ask(OFFSET_COMMIT, 2, commit)
        for version in range(3):
            session.ask(DELETE_GROUPS, version, {"groups_names": ["nobody", "", "nobody"]})
        for group in ("nobody", ""):
            for name in ("odd-deleted", "nowhere"):
                topics = [{"name": name, "partitions": [{"partition_index": p} for p in (0, 7)]}]
                session.ask(OFFSET_DELETE, 0, {"group_id": group, "topics": topics}, note=f"{group!r} {name}")

    pair.compare(script)
