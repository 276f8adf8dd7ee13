"""Quotas beside Apache Kafka: how they are asked for, set and stored, whom they hold back and for how long.

Both measure over ten whole windows until more than that has passed, so that a client that sends without a pause is told the
same to the millisecond.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from processes import eventually
from sessions import (
    API_VERSIONS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    INIT_PRODUCER_ID,
    LIST_GROUPS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FETCH,
    PRODUCE,
    Message,
    Pair,
    Session,
    batch,
    create_topic,
    produce_message,
)

DESCRIBE_QUOTAS, ALTER_QUOTAS = 48, 49
EXACT, DEFAULT, ANY = 0, 1, 2
Entity = dict[str, str | None]
Quotas = dict[str, float | None]


def alteration(entity: Entity, quotas: Quotas) -> Message:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": [
            {"key": key, "value": value or 0.0, "remove": value is None} for key, value in quotas.items()
        ],
    }


def _in_order(entries: list[Message]) -> list[Message]:
    for entry in entries:
        entry["entity"] = sorted(entry["entity"], key=lambda named: str(named["entity_type"]))
        if "values" in entry:
            entry["values"] = sorted(entry["values"], key=lambda value: str(value["key"]))
    return sorted(entries, key=lambda entry: str(entry["entity"]))


def alter(
    session: Session, *entries: tuple[Entity, Quotas], version: int = 1, validate_only: bool = False
) -> None:
    message = {"entries": [alteration(*entry) for entry in entries], "validate_only": validate_only}
    answer = session.look(ALTER_QUOTAS, version, message, noted=True)
    told = [{k: v for k, v in entry.items() if k != "error_message"} for entry in answer["entries"]]
    session.note(f"alter v{version} {entries}", _in_order(told))


def describe(
    session: Session, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1
) -> None:
    named = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
    answer = session.look(DESCRIBE_QUOTAS, version, {"components": named, "strict": strict}, noted=True)
    entries = answer["entries"]
    told = answer["error_code"], None if entries is None else _in_order(entries)
    session.note(f"describe v{version} {components} {strict}", told)


def clear(session: Session) -> None:
    """Remove all quotas."""
    found = session.look(DESCRIBE_QUOTAS, 1, {"components": [], "strict": False})["entries"]
    entries = [
        alteration(
            {named["entity_type"]: named["entity_name"] for named in entry["entity"]},
            {value["key"]: None for value in entry["values"]},
        )
        for entry in found
    ]
    session.look(ALTER_QUOTAS, 1, {"entries": entries, "validate_only": False})


def stored(pair: Pair, kind: str) -> dict[str, Any]:
    """What `/config` holds for users, clients or addresses, by path, in the chroot of a broker."""
    found = {}

    def walk(path: str) -> None:
        data, _ = pair.znodes.get(path)
        found[path.partition("/config/")[2]] = json.loads(data) if data else None
        for child in pair.znodes.get_children(path):
            walk(f"{path}/{child}")

    walk(f"/{kind}/config/users")
    walk(f"/{kind}/config/clients")
    walk(f"/{kind}/config/ips")
    return found


@pytest.fixture
def quotas(pair: Pair) -> Iterator[Pair]:
    """The pair, without any quotas afterwards."""
    yield pair
    for address in (pair.kafka.address, pair.headrace.addresses[0]):
        session = Session(address)
        clear(session)
        session.close()


USERS: list[tuple[Entity, Quotas]] = [
    ({"user": "alice"}, {"producer_byte_rate": 1000.0, "request_percentage": 12.5}),
    ({"user": "CN=b/c,O=*"}, {"consumer_byte_rate": 2e9}),
    ({"user": None}, {"controller_mutation_rate": 1e10}),
    ({"user": "alice", "client-id": "app 1"}, {"producer_byte_rate": 10.0, "consumer_byte_rate": 20.0}),
    ({"user": "alice", "client-id": None}, {"producer_byte_rate": 11.0}),
    ({"user": None, "client-id": "app 1"}, {"producer_byte_rate": 12.0}),
    ({"user": None, "client-id": None}, {"producer_byte_rate": 13.0}),
    ({"client-id": "app 1"}, {"producer_byte_rate": 14.0}),
    ({"client-id": None}, {"producer_byte_rate": 15.0}),
    ({"ip": "127.0.0.9"}, {"connection_creation_rate": 30.0}),
    ({"ip": None}, {"connection_creation_rate": 1e6}),
]


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_set_stored_and_shown_alike(quotas: Pair, version: int) -> None:
    def script(session: Session) -> None:
        alter(session, *USERS, version=version)
        for strict in (False, True):
            describe(session, strict=strict, version=version)
            for kind, name in (("user", "alice"), ("client-id", "app 1"), ("ip", "127.0.0.9")):
                for match in (EXACT, DEFAULT, ANY):
                    component = (kind, match, name if match == EXACT else None)
                    describe(session, component, strict=strict, version=version)
            for user in (("user", EXACT, "alice"), ("user", DEFAULT, None), ("user", ANY, None)):
                for client in (("client-id", EXACT, "app 1"), ("client-id", DEFAULT, None)):
                    describe(session, user, client, strict=strict, version=version)

    quotas.compare(script)
    assert stored(quotas, "headrace") == stored(quotas, "kafka")

    def remove(session: Session) -> None:
        for entity, values in USERS:
            alter(session, (entity, dict.fromkeys(values)), version=version)
            describe(session, version=version)

    quotas.compare(remove)
    assert stored(quotas, "headrace") == stored(quotas, "kafka")


REFUSED: list[tuple[Entity, Quotas]] = [
    ({}, {"producer_byte_rate": 1.0}),
    ({"user": ""}, {"producer_byte_rate": 1.0}),
    ({"group": "g"}, {"producer_byte_rate": 1.0}),
    ({"user": "alice", "ip": "127.0.0.9"}, {"producer_byte_rate": 1.0}),
    ({"ip": "no.such.host.invalid"}, {"connection_creation_rate": 1.0}),
    ({"ip": "::1"}, {"connection_creation_rate": 1.0}),
    ({"ip": "127.0.0.9"}, {"producer_byte_rate": 1.0}),
    ({"ip": "127.0.0.9"}, {"connection_creation_rate": -1.0}),
    ({"ip": "127.0.0.9"}, {"connection_creation_rate": 1.5}),
    ({"user": "alice"}, {"connection_creation_rate": 1.0}),
    ({"user": "alice"}, {"leader.replication.throttled.rate": 1.0}),
    ({"user": "alice"}, {"SCRAM-SHA-256": 1.0}),
    ({"client-id": "app"}, {"SCRAM-SHA-256": 1.0}),
    ({"user": "alice"}, {"producer_byte_rate": 1.5}),
    ({"user": "alice"}, {"consumer_byte_rate": 1.0, "no_such_quota": 1.0}),
]
ODD: list[tuple[Entity, Quotas]] = [
    ({"user": "alice"}, {"producer_byte_rate": -5.0}),
    ({"user": "alice"}, {"request_percentage": -0.5, "controller_mutation_rate": 0.0}),
    ({"user": "bob"}, {"producer_byte_rate": 1e30, "consumer_byte_rate": -1e30}),
    ({"user": "carol"}, {"producer_byte_rate": float("nan"), "request_percentage": float("inf")}),
    ({"client-id": "app"}, {"request_percentage": 1e-5, "controller_mutation_rate": 123456789.125}),
    ({"client-id": "nothing"}, {"no_such_quota": None}),
    ({"ip": "localhost"}, {"connection_creation_rate": 2147483647.0}),
]


@pytest.mark.parametrize("validate_only", [True, False])
def test_odd_quotas_and_entities_are_refused_or_taken_alike(quotas: Pair, validate_only: bool) -> None:
    def script(session: Session) -> None:
        for entry in [*REFUSED, *ODD]:
            alter(session, entry, validate_only=validate_only)
        # Each on its own, the last of two for one entity counts.
        alter(session, REFUSED[1], USERS[0], (USERS[0][0], {"producer_byte_rate": 7.0}))
        describe(session)

    quotas.compare(script)
    assert stored(quotas, "headrace") == stored(quotas, "kafka")


def test_odd_filters_are_refused_alike(quotas: Pair) -> None:
    def script(session: Session) -> None:
        for version in (0, 1):
            describe(session, ("user", ANY, None), ("user", EXACT, "alice"), version=version)
            describe(session, ("", ANY, None), version=version)
            describe(session, ("group", ANY, None), version=version)
            describe(session, ("ip", ANY, None), ("user", ANY, None), version=version)
            describe(session, ("user", 3, None), version=version)
            describe(session, ("user", EXACT, None), version=version)
            describe(session, ("user", ANY, "passed over"), version=version)

    quotas.compare(script)


@contextmanager
def limited(pair: Pair, *entries: tuple[Entity, Quotas]) -> Iterator[tuple[Session, Session]]:
    """A session of each, headrace's first, once the quotas hold."""
    sessions = Session(pair.headrace.addresses[0]), Session(pair.kafka.address)
    for session in sessions:
        let_hold(session, *entries)
    try:
        yield sessions
    finally:
        for session in sessions:
            session.close()


def let_hold(session: Session, *entries: tuple[Entity, Quotas]) -> None:
    """Set quotas, and wait until they hold: changes come in order, and that of a client `probe` can be seen."""
    for throttled in (False, True):
        probe = alteration({"client-id": "probe"}, {"request_percentage": 0.0 if throttled else None})
        altered = [*(alteration(*entry) for entry in entries), probe]
        session.look(ALTER_QUOTAS, 1, {"entries": altered, "validate_only": False})
        eventually(partial(_is_throttled, session, throttled), what="quotas that hold")


def _is_throttled(session: Session, wanted: bool) -> bool:
    return bool(asked(session, "probe", API_VERSIONS, 2, {})["throttle_time_ms"]) == wanted


def asked(session: Session, client: str | None, key: int, version: int, message: Message) -> Message:
    """The answer to one request of that client, by a connection of its own."""
    own = session.another()
    try:
        return own.send_frame(own.frame(key, version, message, client), key, version)
    finally:
        own.close()


def produce(topic: str, size: int) -> Message:
    return produce_message(topic, batch(bytes(size)), acks=1)


LEVELS: list[Entity] = [
    {"user": "ANONYMOUS", "client-id": "leveled"},
    {"user": "ANONYMOUS", "client-id": None},
    {"user": "ANONYMOUS"},
    {"user": None, "client-id": "leveled"},
    {"user": None, "client-id": None},
    {"user": None},
    {"client-id": "leveled"},
    {"client-id": None},
]


def test_the_most_specific_of_eight_levels_holds(quotas: Pair) -> None:
    """With each level that is taken away the next one holds, which allows three times as much."""
    rates = [100.0 * 3**n for n in range(8)]
    entries: list[tuple[Entity, Quotas]] = [
        (entity, {"producer_byte_rate": rate}) for entity, rate in zip(LEVELS, rates, strict=True)
    ]
    seen: list[list[int]] = []
    with limited(quotas, *entries) as sessions:
        for session in sessions:
            create_topic(session, "levels")
            told = []
            for entity in LEVELS:
                told.append(_throttle_of_level(session))
                let_hold(session, (entity, {"producer_byte_rate": None}))
            told.append(_throttle_of_level(session))
            seen.append(told)
    ours, theirs = seen
    assert ours == pytest.approx(theirs, abs=1000, rel=0.05)
    # Who shares a level shares what was sent, too: only of the last two levels nobody has sent anything before.
    assert ours[-1] == 0 < ours[0]


def _throttle_of_level(session: Session) -> int:
    message = produce("levels", 40_000)
    return int(asked(session, "leveled", PRODUCE, 9, message)["throttle_time_ms"])


@pytest.mark.parametrize("version", [1, 3, 9, 11])
def test_producers_wait_as_long_and_are_told_so(quotas: Pair, version: int) -> None:
    client = f"producer-{version}"

    def script(session: Session) -> list[int]:
        create_topic(session, "produced")
        return [
            int(asked(session, client, PRODUCE, version, produce("produced", size))["throttle_time_ms"])
            for size in (4000, 4000, 4000, 100, 20_000)
        ]

    with limited(quotas, ({"client-id": client}, {"producer_byte_rate": 1000.0})) as sessions:
        ours, theirs = map(script, sessions)
    # Each millisecond that passes counts.
    assert ours == pytest.approx(theirs, abs=200)
    assert ours[0] == ours[1] == 0 < ours[2] < ours[3] < ours[4]


@pytest.mark.parametrize("version", [4, 8, 12, 16])
def test_consumers_wait_as_long_and_get_nothing_meanwhile(quotas: Pair, version: int) -> None:
    client = f"consumer-{version}"

    def script(session: Session) -> list[tuple[int, bool]]:
        topic_id = create_topic(session, f"fetched-{version}")
        for _ in range(30):
            session.look(PRODUCE, 9, produce(f"fetched-{version}", 1000))
        partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 6000}
        topic = {"topic": f"fetched-{version}", "topic_id": topic_id, "partitions": [partition]}
        message = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50_000, "topics": [topic]}
        told = []
        for _ in range(4):
            answer = asked(session, client, FETCH, version, message)
            found = [p for t in answer["responses"] for p in t["partitions"]]
            told.append((int(answer["throttle_time_ms"]), any(p["records"] for p in found)))
        return told

    with limited(quotas, ({"client-id": client}, {"consumer_byte_rate": 1000.0})) as sessions:
        ours, theirs = map(script, sessions)
    assert [has_records for _, has_records in ours] == [has_records for _, has_records in theirs]
    assert [has_records for _, has_records in ours] == [True, False, False, False]
    assert [ms for ms, _ in ours] == pytest.approx([ms for ms, _ in theirs], abs=100)


def test_who_waits_is_answered_at_once_and_served_nothing_meanwhile(quotas: Pair) -> None:
    def script(session: Session) -> tuple[int, float, float, float]:
        create_topic(session, "muted")
        own, bystander = session.another(), session.another()
        began = time.monotonic()
        frame = own.frame(PRODUCE, 9, produce("muted", 11_500), "muted")
        throttle_ms = own.send_frame(frame, PRODUCE, 9)["throttle_time_ms"]
        answered = time.monotonic()
        own.send_only(own.frame(API_VERSIONS, 2, {}, "muted"))
        bystander.look(API_VERSIONS, 2)
        passed = time.monotonic()
        own.next_answer(API_VERSIONS, 2)
        served = time.monotonic()
        own.close()
        bystander.close()
        return throttle_ms, answered - began, passed - answered, served - answered

    with limited(quotas, ({"client-id": "muted"}, {"producer_byte_rate": 1000.0})) as sessions:
        ours, theirs = map(script, sessions)
    assert ours[0] == pytest.approx(theirs[0], abs=200)
    assert ours[0] > 1000
    for throttle_ms, answered, passed, served in (ours, theirs):
        assert answered < throttle_ms / 2000
        assert passed < throttle_ms / 2000
        assert throttle_ms / 1000 - 0.1 <= served <= throttle_ms / 1000 + 1


# (key, version, message): whatever is asked, a client whose time is up waits.
ASKED: list[tuple[int, int, Message]] = [
    (LIST_OFFSETS, 5, {"replica_id": -1, "topics": []}),
    (METADATA, 9, {"topics": []}),
    (OFFSET_FETCH, 7, {"group_id": "g", "topics": []}),
    (FIND_COORDINATOR, 3, {"key": "g"}),
    (HEARTBEAT, 3, {"group_id": "g", "generation_id": 1, "member_id": "m"}),
    (LIST_GROUPS, 3, {}),
    (API_VERSIONS, 0, {}),
    (API_VERSIONS, 3, {"client_software_name": "a", "client_software_version": "1"}),
    (CREATE_TOPICS, 5, {"topics": [], "timeout_ms": 1000}),
    (DELETE_TOPICS, 4, {"topic_names": [], "timeout_ms": 1000}),
    (INIT_PRODUCER_ID, 4, {"transactional_id": None, "transaction_timeout_ms": 1000}),
    (DESCRIBE_CONFIGS, 4, {"resources": []}),
    (CREATE_PARTITIONS, 1, {"topics": [], "timeout_ms": 1000}),
    (DESCRIBE_QUOTAS, 1, {"components": [], "strict": True}),
    (ALTER_QUOTAS, 1, {"entries": []}),
    (DESCRIBE_CLUSTER, 0, {}),
    (FETCH, 12, {"max_wait_ms": 0, "topics": []}),
    # A follower's, and other words between brokers.
    (FETCH, 12, {"replica_id": 7, "max_wait_ms": 0, "topics": []}),
    (56, 0, {"broker_id": 7, "broker_epoch": 1, "topics": []}),
    (67, 0, {"broker_id": 7, "broker_epoch": 1}),
]


def test_whatever_costs_time_is_throttled_but_for_the_words_of_brokers(quotas: Pair) -> None:
    def script(session: Session) -> list[tuple[int, int | None]]:
        return [
            (key, asked(session, "busy", key, version, message).get("throttle_time_ms"))
            for key, version, message in ASKED
        ]

    with limited(quotas, ({"client-id": "busy"}, {"request_percentage": 0.0})) as sessions:
        ours, theirs = map(script, sessions)
    assert ours == theirs
    assert {ms for _, ms in ours} == {0, 1000}


def test_changes_of_the_cluster_are_refused_or_held_back_by_version(quotas: Pair) -> None:
    """A burst of eleven, and one a second; what is taken above it once has to come back first."""
    within_ms = 1500

    def script(session: Session, client: str) -> list[tuple[list[int], int]]:
        def create(name: str, partitions: int, version: int) -> tuple[list[int], int]:
            topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
            message = {"topics": [topic], "timeout_ms": 20_000}
            answer = asked(session, client, CREATE_TOPICS, version, message)
            return [t["error_code"] for t in answer["topics"]], answer["throttle_time_ms"]

        def delete(name: str, version: int) -> tuple[list[int], int]:
            message: Message = {"timeout_ms": 20_000}
            message |= {"topics": [{"name": name}]} if version >= 6 else {"topic_names": [name]}
            answer = asked(session, client, DELETE_TOPICS, version, message)
            return [t["error_code"] for t in answer["responses"]], answer["throttle_time_ms"]

        def grow(name: str, count: int, version: int) -> tuple[list[int], int]:
            message = {"topics": [{"name": name, "count": count, "assignments": None}], "timeout_ms": 20_000}
            answer = asked(session, client, CREATE_PARTITIONS, version, message)
            return [t["error_code"] for t in answer["results"]], answer["throttle_time_ms"]

        return [
            create(f"{client}-1", 31, 7),
            create(f"{client}-2", 1, 7),
            create(f"{client}-2", 1, 6),
            create(f"{client}-1", 1, 7),
            create(f"{client}-2", 2, 5),
            grow(f"{client}-2", 3, 3),
            grow(f"{client}-2", 3, 2),
            delete(f"{client}-2", 6),
            delete(f"{client}-2", 5),
            delete(f"{client}-2", 4),
        ]

    for rate in (1.0, 0.0):
        client = f"admin-{rate}"
        with limited(quotas, ({"client-id": client}, {"controller_mutation_rate": rate})) as sessions:
            ours, theirs = (script(session, client) for session in sessions)
        assert [codes for codes, _ in ours] == [codes for codes, _ in theirs]
        for (_, our_ms), (_, their_ms) in zip(ours, theirs, strict=True):
            assert abs(our_ms - their_ms) < within_ms, (ours, theirs)
        assert [codes for codes, _ in ours].count([89]) == 5
        assert (max(ms for _, ms in ours) > 15_000) == (rate > 0)
