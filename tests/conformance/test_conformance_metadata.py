"""ApiVersions, Metadata and DescribeCluster: what a client learns before it does anything."""

from __future__ import annotations

import runpy
from pathlib import Path
from uuid import UUID

import pytest
from sessions import (
    API_VERSIONS,
    CREATE_TOPICS,
    DESCRIBE_CLUSTER,
    LIST_GROUPS,
    METADATA,
    Pair,
    Session,
    create_topic,
    raw_frame,
)

from headrace.broker.wire import frames
from headrace.broker.wire.api import APIS

ROOT = Path(__file__).resolve().parents[2]
UNKNOWN_ID = UUID("11111111-2222-4333-8444-555555555555")
SOFTWARE = {"client_software_name": "script", "client_software_version": "1.0"}


def test_the_same_versions_of_the_keys_that_are_served(pair: Pair) -> None:
    """The others are those that docs/compatibility.md gives a reason for."""
    not_served = runpy.run_path(str(ROOT / "scripts" / "compatibility_page.py"))["NOT_SERVED"]
    answers = []
    for address in (pair.kafka.address, pair.headrace.addresses[0]):
        session = Session(address)
        message = session.ask(API_VERSIONS, 3, SOFTWARE)
        answers.append({k["api_key"]: (k["min_version"], k["max_version"]) for k in message["api_keys"]})
        session.close()
    theirs, ours = answers
    assert ours == {key: versions for key, versions in theirs.items() if key not in not_served}
    assert theirs == {key: api.versions for key, api in APIS.items() if key in theirs}


def test_api_versions_errors(pair: Pair) -> None:
    def script(session: Session) -> None:
        for software in ({}, {"client_software_name": "a b", "client_software_version": "1"}):
            answer = session.look(API_VERSIONS, 3, {"client_software_name": "", **software}, noted=True)
            session.note("bad software name", answer["error_code"])
        header = frames.encode_request_header(API_VERSIONS, 4, 7, "script")
        for version in (5, 99, 32767):
            body = header[:2] + version.to_bytes(2, "big") + header[4:] + b"whatever follows"
            session._write(raw_frame(body))
            answer = APIS[API_VERSIONS].decode_response(0, session._read(), 4)
            session.seen.add(API_VERSIONS, 0, answer)
            session.note(
                f"version {version}", (answer["error_code"], 18 in [k["api_key"] for k in answer["api_keys"]])
            )
        session.note("still served", session.look(API_VERSIONS, 0, {})["error_code"])

    pair.compare(script)


@pytest.mark.parametrize("version", range(4, 13))
def test_metadata_of_known_unknown_and_illegal_topics(pair: Pair, version: int) -> None:
    def script(session: Session) -> None:
        create_topic(session, "metadata-known", partitions=3)
        names = ["metadata-known", "metadata-unknown", "not/legal", "x" * 250, ".", ""]
        session.ask(METADATA, version, wanted(names))
        if version >= 8:
            message = {"include_topic_authorized_operations": True}
            if version <= 10:
                message["include_cluster_authorized_operations"] = True
            session.ask(METADATA, version, {**wanted(["metadata-known"]), **message}, note="operations")
        session.ask(METADATA, version, wanted([]), note="no topics")

    pair.compare(script)


def wanted(names: list[str]) -> dict[str, object]:
    return {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False}


@pytest.mark.parametrize("version", [0, 1, 3, 4, 12])
def test_metadata_creates_topics(pair: Pair, version: int) -> None:
    def script(session: Session) -> None:
        name = f"metadata-auto-{version}"
        message: dict[str, object] = {"topics": [{"name": name}, {"name": "not/legal"}]}
        if version >= 4:
            message["allow_auto_topic_creation"] = True
        session.ask(METADATA, version, message, note="first")
        create_topic(session, name)
        session.ask(METADATA, version, message, note="then")

    pair.compare(script)


def test_metadata_tells_why_a_topic_cannot_be_created(pair: Pair) -> None:
    """Its name and that of another topic would be one name of a metric."""

    def script(session: Session) -> None:
        create_topic(session, "metadata.collides")
        message = {"topics": [{"name": "metadata_collides"}], "allow_auto_topic_creation": True}
        for note in ("first", "again"):
            session.ask(METADATA, 12, message, note=note)

    pair.compare(script)


def test_metadata_by_topic_id(pair: Pair) -> None:
    def script(session: Session) -> None:
        topic_id = create_topic(session, "metadata-by-id")
        for version in (10, 12):
            for unknown in (topic_id, UNKNOWN_ID):
                message = {
                    "topics": [{"name": None, "topic_id": unknown}],
                    "allow_auto_topic_creation": False,
                }
                session.ask(METADATA, version, message)

    pair.compare(script)


def test_all_topics(pair: Pair) -> None:
    def script(session: Session) -> None:
        create_topic(session, "metadata-all")
        for version in (0, 1, 9, 12):
            answer = session.look(METADATA, version, {"topics": [] if version == 0 else None}, noted=True)
            found = [t for t in answer["topics"] if t["name"] == "metadata-all"]
            session.note(f"all topics v{version}", session.comparable(found))

    pair.compare(script)


@pytest.mark.parametrize("version", [0, 1])
def test_describe_cluster(pair: Pair, version: int) -> None:
    def script(session: Session) -> None:
        session.ask(DESCRIBE_CLUSTER, version, {})
        session.ask(DESCRIBE_CLUSTER, version, {"include_cluster_authorized_operations": True})
        if version == 1:
            session.ask(DESCRIBE_CLUSTER, version, {"endpoint_type": 2})

    pair.compare(script)


def test_several_requests_sent_at_once_are_answered_in_order(pair: Pair) -> None:
    def script(session: Session) -> None:
        asked = [(API_VERSIONS, 0), (METADATA, 4), (LIST_GROUPS, 0)] * 20
        data = b"".join(
            session.frame(key, version, {"topics": []} if key == METADATA else {}) for key, version in asked
        )
        session.send_only(data)
        for key, version in asked:
            if key == METADATA:
                session.next_answer(key, version)
            else:
                session._read()
        session.ask(CREATE_TOPICS, 2, {"topics": [], "timeout_ms": 1000}, note="nothing to create")

    pair.compare(script)
