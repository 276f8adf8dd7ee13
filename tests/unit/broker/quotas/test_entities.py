"""How entities are named, and which of them a filter wants."""

from __future__ import annotations

import pytest

from headrace.broker.errors import ErrorCode, KafkaError
from headrace.broker.quotas.entities import (
    CLIENTS,
    DEFAULT_ONLY,
    EXACT,
    IPS,
    SPECIFIED,
    USERS,
    ConfigPath,
    Entity,
    Filter,
    Wanted,
    entity_at,
    place_of,
)

PLACES: list[tuple[dict[str, str | None], ConfigPath]] = [
    ({"user": "CN=a/b"}, ConfigPath(USERS, "CN%3Da%2Fb")),
    ({"user": None}, ConfigPath(USERS, "<default>")),
    ({"user": "<default>"}, ConfigPath(USERS, "%3Cdefault%3E")),
    ({"user": "alice", "client-id": "app 1"}, ConfigPath(USERS, "alice/clients/app%201")),
    ({"user": None, "client-id": None}, ConfigPath(USERS, "<default>/clients/<default>")),
    ({"client-id": "clients/x"}, ConfigPath(CLIENTS, "clients%2Fx")),
    ({"client-id": None}, ConfigPath(CLIENTS, "<default>")),
    ({"ip": "10.0.0.1"}, ConfigPath(IPS, "10.0.0.1")),
    ({"ip": None}, ConfigPath(IPS, "<default>")),
]


@pytest.mark.parametrize(("entity", "place"), PLACES)
def test_an_entity_has_one_place_and_is_found_there(entity: Entity, place: ConfigPath) -> None:
    assert place_of(entity) == place
    assert entity_at(place) == entity


@pytest.mark.parametrize(
    ("entity", "reason"),
    [
        ({}, "empty"),
        ({"user": ""}, "Empty user"),
        ({"group": "g"}, "group"),
        ({"ip": "10.0.0.1", "user": "alice"}, "combination"),
    ],
)
def test_what_cannot_have_quotas_is_refused(entity: Entity, reason: str) -> None:
    with pytest.raises(KafkaError, match=reason) as raised:
        place_of(entity)
    assert raised.value.code == ErrorCode.INVALID_REQUEST


ALICE, ANY, DEFAULTS = Wanted(EXACT, "alice"), Wanted(SPECIFIED, None), Wanted(DEFAULT_ONLY, None)


@pytest.mark.parametrize(
    ("components", "is_strict", "found"),
    [
        ([], False, {"alice", "alice+app", "default+app", "app", "address"}),
        ([], True, set()),
        ([("user", ALICE)], False, {"alice", "alice+app"}),
        ([("user", ALICE)], True, {"alice"}),
        ([("user", DEFAULTS)], False, {"default+app"}),
        ([("user", ANY)], False, {"alice", "alice+app", "default+app"}),
        ([("client-id", ANY)], False, {"alice+app", "default+app", "app"}),
        ([("client-id", ANY)], True, {"app"}),
        ([("user", ALICE), ("client-id", ANY)], True, {"alice+app"}),
        ([("ip", ANY)], True, {"address"}),
        ([("ip", DEFAULTS)], False, set()),
    ],
)
def test_a_filter_wants_what_it_names_and_a_strict_one_nothing_else(
    components: list[tuple[str, Wanted]], is_strict: bool, found: set[str]
) -> None:
    entities: dict[str, tuple[str, Entity]] = {
        "alice": (USERS, {"user": "alice"}),
        "alice+app": (USERS, {"user": "alice", "client-id": "app"}),
        "default+app": (USERS, {"user": None, "client-id": "app"}),
        "app": (CLIENTS, {"client-id": "app"}),
        "address": (IPS, {"ip": "10.0.0.1"}),
    }
    wanted = Filter(components, is_strict=is_strict)
    assert {
        name for name, (kind, entity) in entities.items() if kind in wanted.kinds and wanted.matches(entity)
    } == found


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("user", ANY), ("user", ALICE)], ErrorCode.INVALID_REQUEST),
        ([("", ANY)], ErrorCode.INVALID_REQUEST),
        ([("group", ANY)], ErrorCode.UNSUPPORTED_VERSION),
        ([("ip", ANY), ("client-id", ANY)], ErrorCode.INVALID_REQUEST),
        ([("user", Wanted(3, None))], ErrorCode.UNKNOWN_SERVER_ERROR),
        ([("user", Wanted(EXACT, None))], ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(
    components: list[tuple[str, Wanted]], code: ErrorCode
) -> None:
    with pytest.raises(KafkaError) as raised:
        Filter(components, is_strict=False)
    assert raised.value.code == code
