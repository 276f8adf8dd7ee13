"""What the registry decides, applies and refuses; every decision travels through the topic's own record format."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from registry_machine_kit import V1, V2, Log, Registry, refused, replay

from headrace.registry.machine import Machine, Submitted
from headrace.registry.records import (
    Change,
    CompatibilityLevel,
    RecordError,
    SchemaVersion,
    SubjectDeletion,
    Turn,
    decode,
    encode,
)
from headrace.registry.schemas import Reference, normal_form, schema_id

BROKEN = '{"type":"record","name":"R","fields":[{"name":"c","type":"int"}]}'


def test_versions_grow_and_a_known_schema_keeps_its_version_and_id() -> None:
    registry = Registry()
    first = registry.register("s", V1)
    second = registry.register("s", V2)
    assert registry.register("s", V1.replace(":", ": ")) == first == schema_id(normal_form(V1, {}))
    assert first != second
    assert registry.machine.versions("s") == [1, 2]
    assert registry.machine.version("s", "latest") == {
        "subject": "s",
        "version": 2,
        "id": second,
        "schema": V2,
    }
    assert registry.machine.lookup("s", Submitted(text=V1))["version"] == 1
    assert registry.machine.schema(first) == {"schema": V1}


def test_a_decision_changes_nothing_before_it_is_applied() -> None:
    machine = Machine()
    decision = machine.decide_register("s", Submitted(text=V1))
    assert machine.subjects() == []
    assert len(decision.records) == 1


def test_a_replayed_topic_gives_the_same_state() -> None:
    registry = Registry()
    registry.register("s", V1)
    registry.register("s", V2)
    registry.register("t", V1)
    registry.write(registry.machine.decide_set_level("s", "FULL"))
    registry.write(registry.machine.decide_delete_version("s", "1", permanent=False))
    other = Machine()
    assert replay(registry.log, other) == []
    assert other.subjects() == ["s", "t"]
    assert (other.versions("s"), other.versions("s", deleted=True)) == ([2], [1, 2])
    assert other.level("s") == "FULL"


def test_ids_agree_between_registries_that_never_met() -> None:
    east, west = Registry(), Registry()
    west.register("x", V2)
    assert east.register("s", V1) == west.register("other", V1)


def test_a_schema_whose_id_stands_for_another_one_gets_the_next() -> None:
    registry = Registry(lambda normal: 7)
    assert [registry.register("s", V1), registry.register("t", V2), registry.register("u", V1)] == [7, 8, 7]
    assert registry.machine.schema(8) == {"schema": V2}
    assert Registry(lambda normal: 2**31 - 1).register("s", V1) == 2**31 - 1


def test_two_datacenters_ids_are_told_apart_by_a_subject_of_theirs() -> None:
    east, west, offline = Registry(lambda _: 1), Registry(lambda _: 1), Machine(("dc-east.", "dc-west."))
    east.register("s", V1)
    west.register("t", V2)
    assert replay(east.log, offline, "dc-east.") + replay(west.log, offline, "dc-west.") == []
    assert offline.schema(1, "dc-east.pageviews-value") == {"schema": V1}
    assert offline.schema(1, "dc-west.t") == {"schema": V2}
    assert refused(lambda: offline.schema(1)) == (422, 42205)
    assert refused(lambda: offline.schema(1, "own-value")) == (422, 42205)
    assert offline.usages(1) == [
        {"subject": "dc-east.s", "version": 1},
        {"subject": "dc-west.t", "version": 1},
    ]


def test_an_id_that_a_split_registry_gave_twice_is_told_by_the_subject_and_never_given_again() -> None:
    log = [version_record("s", 1, 5, V1), version_record("t", 1, 5, V2)]
    registry = Registry(lambda _: 5)
    [finding] = replay(log, registry.machine)
    assert "id 5" in finding
    assert registry.machine.schema(5, "s") == {"schema": V1}
    assert registry.machine.schema(5, "t") == {"schema": V2}
    assert refused(lambda: registry.machine.schema(5)) == (422, 42205)
    assert registry.register("u", V2) == 6


def version_record(
    subject: str, version: int, schema_id: int, text: str, *, deleted: bool = False
) -> tuple[bytes, bytes | None]:
    return encode(
        SchemaVersion(subject=subject, version=version, schema_id=schema_id, text=text, deleted=deleted)
    )


def test_a_schema_whose_version_another_one_took_keeps_its_id_and_gets_a_version_of_its_own() -> None:
    spoiled = [version_record("s", 1, 11, V1), version_record("s", 1, 12, V2)]
    registry = Registry()
    assert len(replay(spoiled, registry.machine)) == 1
    assert registry.machine.schema(11) == {"schema": V1}
    assert registry.machine.usages(11) == []
    before = registry.machine.needs_repair
    registry.write(registry.machine.decide_repair())
    assert (before, registry.machine.needs_repair) == (True, False)
    compacted = Machine()
    replay(list(dict(spoiled + registry.log).items()), compacted)
    assert not compacted.needs_repair
    for machine in (registry.machine, compacted):
        assert (machine.schema(11), machine.schema(12)) == ({"schema": V1}, {"schema": V2})
        assert (machine.versions("s"), machine.versions("s", deleted=True)) == ([1], [1, 2])


def test_a_displaced_schema_goes_with_its_version_for_good() -> None:
    machine = Machine()
    replay([version_record("s", 1, 11, V1), version_record("s", 1, 12, V2)], machine)
    replay([encode(SchemaVersion(subject="s", version=1))], machine)
    assert refused(lambda: machine.schema(11)) == (404, 40403)
    assert not machine.needs_repair


def test_a_schema_is_known_also_when_what_it_refers_to_comes_later() -> None:
    registry = Registry()
    outer = '{"type":"record","name":"Outer","fields":[{"name":"i","type":"n.Inner"}]}'
    registry.register("inner", '{"type":"record","name":"n.Inner","fields":[]}')
    outer_id = registry.register("outer", outer, Reference(name="n.Inner", subject="inner", version=1))
    machine = Machine()
    assert replay(registry.log[::-1], machine) == []
    assert machine.schema(outer_id)["schema"] == outer
    submitted = Submitted(text=outer, references=(Reference(name="n.Inner", subject="inner", version=1),))
    assert machine.decide_register("outer", submitted).answer == {"id": outer_id}


def test_a_record_that_came_after_its_turn_counts_for_nothing_and_is_written_over() -> None:
    registry = Registry()
    registry.register("s", V1)
    registry.write(registry.machine.decide_set_level("s", "NONE"))
    late: list[Change] = [
        SchemaVersion(subject="s", version=1, schema_id=12, text=V2),
        SchemaVersion(subject="t", version=1, schema_id=12, text=V2),
        CompatibilityLevel(subject="s", level="FULL"),
        SubjectDeletion(subject="s", version=1),
    ]
    registry.machine.apply(Turn(turn="slow"))
    registry.machine.apply(Turn(turn="slow", is_over=True))
    assert all(registry.machine.apply(record, turn="slow") for record in late)
    assert (registry.machine.versions("s"), registry.machine.level("s")) == ([1], "NONE")
    assert registry.machine.subjects(deleted=True) == ["s"]
    registry.log += [encode(record) for record in late]
    registry.write(registry.machine.decide_repair())
    assert not registry.machine.needs_repair
    compacted = Machine()
    replay(list(dict(registry.log).items()), compacted)
    assert (compacted.versions("s"), compacted.level("s")) == ([1], "NONE")
    assert (compacted.subjects(deleted=True), compacted.version("s", "1")["schema"]) == (["s"], V1)


def test_an_incompatible_schema_is_refused_at_the_levels_backward_and_full_only() -> None:
    registry = Registry()
    registry.register("s", V1)
    assert refused(lambda: registry.register("s", BROKEN)) == (409, 409)
    registry.write(registry.machine.decide_set_level(None, "FULL"))
    removed = '{"type":"record","name":"R","fields":[]}'
    assert refused(lambda: registry.register("s", removed)) == (409, 409)
    registry.write(registry.machine.decide_set_level("s", "BACKWARD"))
    registry.register("s", removed)
    registry.write(registry.machine.decide_set_level("s", "NONE"))
    registry.register("s", BROKEN)
    assert registry.machine.versions("s") == [1, 2, 3]


EMPTY = '{"type":"record","name":"R","fields":[]}'


@pytest.mark.parametrize(
    ("level", "versions", "new"),
    [
        ("BACKWARD", [EMPTY, V1], V1.replace("int", "long")),
        ("FORWARD", [V1, EMPTY], BROKEN),
        ("FULL", [V1, EMPTY], V1.replace('"int"', '"string","default":""')),
    ],
)
def test_a_transitive_level_is_about_all_versions_and_any_other_about_the_newest(
    level: str, versions: list[str], new: str
) -> None:
    registry = Registry()
    registry.write(registry.machine.decide_set_level(None, "NONE"))
    for text in versions:
        registry.register("s", text)
    registry.write(registry.machine.decide_set_level("s", level))
    assert registry.machine.compatibility("s", None, Submitted(text=new)) == []
    registry.write(registry.machine.decide_set_level("s", f"{level}_TRANSITIVE"))
    reasons = registry.machine.compatibility("s", None, Submitted(text=new))
    assert reasons[-1] == f"level {level}_TRANSITIVE, version 1"
    assert refused(lambda: registry.register("s", new)) == (409, 409)


def test_levels_fall_back_to_the_global_one() -> None:
    registry = Registry()
    machine = registry.machine
    assert machine.level(None) == "BACKWARD"
    assert refused(lambda: machine.level("s")) == (404, 40408)
    assert machine.level("s", default_to_global=True) == "BACKWARD"
    assert refused(lambda: machine.decide_set_level("s", "SIDEWAYS")) == (422, 42203)
    assert refused(lambda: machine.decide_set_level("s", None)) == (422, 42203)
    registry.write(machine.decide_set_level("s", "NONE"))
    assert registry.write(machine.decide_delete_level("s")) == {"compatibilityLevel": "NONE"}
    assert machine.level_of("s") == "BACKWARD"


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (lambda m: m.versions("no"), (404, 40401)),
        (lambda m: m.version("no", "1"), (404, 40401)),
        (lambda m: m.version("s", "9"), (404, 40402)),
        (lambda m: m.version("s", "0"), (422, 42202)),
        (lambda m: m.version("s", "x"), (422, 42202)),
        (lambda m: m.version("s", "2147483648"), (422, 42202)),
        (lambda m: m.version("s", "1" * 5000), (422, 42202)),
        (lambda m: m.schema(1), (404, 40403)),
        (lambda m: m.usages(1), (404, 40403)),
        (lambda m: m.lookup("s", Submitted(text=V2)), (404, 40403)),
        (lambda m: m.lookup("no", Submitted(text=V1)), (404, 40401)),
        (lambda m: m.decide_register("s", Submitted(text="{")), (422, 42201)),
        (lambda m: m.decide_delete_subject("no", permanent=False), (404, 40401)),
        (lambda m: m.decide_delete_subject("s", permanent=True), (404, 40405)),
        (lambda m: m.decide_delete_version("s", "1", permanent=True), (404, 40407)),
        (lambda m: m.mode("s"), (404, 40409)),
    ],
)
def test_errors_bear_confluents_codes(action: Callable[[Machine], Any], expected: tuple[int, int]) -> None:
    registry = Registry()
    registry.register("s", V1)
    assert refused(lambda: action(registry.machine)) == expected


def test_a_subject_is_deleted_softly_then_for_good() -> None:
    registry = Registry()
    machine = registry.machine
    schema = registry.register("s", V1)
    registry.register("s", V2)
    assert registry.write(machine.decide_delete_subject("s", permanent=False)) == [1, 2]
    assert (machine.subjects(), machine.subjects(deleted=True)) == ([], ["s"])
    assert machine.schema(schema) == {"schema": V1}, "messages that were written must stay readable"
    assert refused(lambda: machine.decide_delete_subject("s", permanent=False)) == (404, 40404)
    assert registry.register("s", V1) == schema
    assert machine.versions("s") == [3], "a version number is never used twice"
    registry.write(machine.decide_delete_subject("s", permanent=False))
    assert registry.write(machine.decide_delete_subject("s", permanent=True)) == [1, 2, 3]
    assert machine.subjects(deleted=True) == []
    assert refused(lambda: machine.schema(schema)) == (404, 40403)
    fresh = Machine()
    replay(registry.log, fresh)
    assert fresh.subjects(deleted=True) == []


def test_a_version_is_deleted_softly_then_for_good() -> None:
    registry = Registry()
    machine = registry.machine
    registry.register("s", V1)
    registry.register("s", V2)
    assert registry.write(machine.decide_delete_version("s", "latest", permanent=False)) == 2
    assert machine.version("s", "latest")["version"] == 1
    assert refused(lambda: machine.decide_delete_version("s", "2", permanent=False)) == (404, 40406)
    assert machine.version("s", "2", deleted=True)["version"] == 2
    registry.write(machine.decide_delete_version("s", "2", permanent=True))
    assert machine.versions("s", deleted=True) == [1]


def test_a_number_below_the_highest_is_not_given_again() -> None:
    registry = Registry()
    for text in (V1, V2):
        registry.register("s", text)
    for permanent in (False, True):
        registry.write(registry.machine.decide_delete_version("s", "1", permanent=permanent))
    registry.register("s", V1)
    assert registry.machine.versions("s") == [2, 3]


def test_schemas_are_listed_by_subject_and_version() -> None:
    registry = Registry()
    for subject, text in (("b", V1), ("a", V1), ("a", V2), ("gone", V1)):
        registry.register(subject, text)
    registry.write(registry.machine.decide_delete_version("a", "2", permanent=False))
    registry.write(registry.machine.decide_delete_subject("gone", permanent=False))

    def listed(**wanted: Any) -> list[tuple[str, int]]:
        return [(each["subject"], each["version"]) for each in registry.machine.schemas(**wanted)]

    assert listed() == [("a", 1), ("b", 1)]
    assert listed(deleted=True) == [("a", 1), ("a", 2), ("b", 1), ("gone", 1)]
    assert listed(latest_only=True) == [("a", 1), ("b", 1)]
    assert listed(latest_only=True, deleted=True, prefix="a") == [("a", 2)]
    assert registry.machine.schemas(prefix="b") == [registry.machine.version("b", "1")]


def test_what_is_deleted_softly_is_listed_alone() -> None:
    registry = Registry()
    for subject, text in (("all", V1), ("none", V1), ("some", V1), ("some", V2)):
        registry.register(subject, text)
    registry.write(registry.machine.decide_delete_subject("all", permanent=False))
    registry.write(registry.machine.decide_delete_version("some", "1", permanent=False))
    machine = registry.machine
    assert machine.subjects(deleted_only=True) == machine.subjects(deleted=True, deleted_only=True)
    assert machine.subjects(deleted_only=True) == ["all", "some"]
    assert machine.versions("some", deleted=True, deleted_only=True) == [1]
    assert machine.versions("none", deleted_only=True) == []
    assert refused(lambda: machine.versions("never", deleted_only=True)) == (404, 40401)


def test_references_resolve_and_protect_what_they_refer_to() -> None:
    registry = Registry()
    machine = registry.machine
    registry.register("inner", '{"type":"record","name":"n.Inner","fields":[]}')
    outer = '{"type":"record","name":"Outer","fields":[{"name":"i","type":"n.Inner"}]}'
    reference = Reference(name="n.Inner", subject="inner", version=1)
    assert refused(lambda: registry.register("outer", outer)) == (422, 42201)
    outer_id = registry.register("outer", outer, reference)
    assert machine.referenced_by("inner", "1") == [outer_id]
    assert machine.schema(outer_id)["references"] == [reference.as_json()]
    assert refused(lambda: machine.decide_delete_version("inner", "1", permanent=False)) == (422, 42206)
    assert refused(lambda: machine.decide_delete_subject("inner", permanent=False)) == (422, 42206)
    registry.register("other", outer, Reference(name="n.Inner", subject="inner", version=-1))
    assert machine.version("other", "1")["references"] == [reference.as_json()]
    missing = Reference(name="n.Inner", subject="inner", version=5)
    assert refused(lambda: registry.register("outer", outer, missing)) == (422, 42201)


def test_replayed_topics_are_served_with_their_datacenters_prefix_and_read_only() -> None:
    east, west, offline = Registry(), Registry(), Machine(("dc-east.", "dc-west."))
    inner = '{"type":"record","name":"n.Inner","fields":[]}'
    outer = '{"type":"record","name":"Outer","fields":[{"name":"i","type":"n.Inner"}]}'
    for live in (east, west):
        live.register("inner", inner)
        live.register("outer", outer, Reference(name="n.Inner", subject="inner", version=1))
        live.write(live.machine.decide_set_level(None, "NONE"))
    assert replay(east.log, offline, "dc-east.") == []
    assert replay(west.log, offline, "dc-west.") == []
    assert offline.subjects() == ["dc-east.inner", "dc-east.outer", "dc-west.inner", "dc-west.outer"]
    assert offline.version("dc-west.outer", "1")["references"][0]["subject"] == "dc-west.inner"
    assert offline.level(None) == "BACKWARD", "another datacenter's global level is not ours"
    assert refused(lambda: offline.level("dc-east.None")) == (404, 40408)
    assert offline.mode("dc-east.outer") == "READONLY"
    assert refused(lambda: offline.decide_register("dc-east.new", Submitted(text=V1))) == (422, 42205)
    assert refused(lambda: offline.decide_delete_subject("dc-east.inner", permanent=False)) == (422, 42205)


def test_records_are_confluents_own_json() -> None:
    registry = Registry()
    schema = registry.register("s", V1)
    registry.write(registry.machine.decide_set_level("s", "FULL"))
    registry.write(registry.machine.decide_delete_subject("s", permanent=False))
    decoded = [(json.loads(key), value and json.loads(value)) for key, value in registry.log]
    assert decoded == [
        (
            {"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1},
            {"subject": "s", "version": 1, "id": schema, "schema": V1, "deleted": False},
        ),
        ({"keytype": "CONFIG", "subject": "s", "magic": 0}, {"compatibilityLevel": "FULL"}),
        ({"keytype": "DELETE_SUBJECT", "subject": "s", "magic": 0}, {"subject": "s", "version": 1}),
        ({"keytype": "CONFIG", "subject": "s", "magic": 0}, None),
    ]


def test_a_topic_of_confluents_registry_with_its_small_ids_is_read_and_its_ids_are_reused() -> None:
    log: Log = [
        (b'{"keytype":"NOOP","magic":0}', None),
        (b'{"keytype":"MODE","subject":null,"magic":0}', b'{"mode":"READWRITE"}'),
        (
            b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
            json.dumps({"subject": "s", "version": 1, "id": 3, "schema": V1, "deleted": False}).encode(),
        ),
        (
            b'{"keytype":"SCHEMA","subject":"p","version":1,"magic":1}',
            b'{"subject":"p","version":1,"id":4,"schemaType":"PROTOBUF","schema":"message A {}","deleted":false}',
        ),
        (b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"NONE"}'),
    ]
    registry = Registry()
    assert replay(log, registry.machine) == []
    assert registry.machine.level(None) == "NONE"
    assert registry.register("t", V1) == 3
    assert registry.machine.subjects() == ["s", "t"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"[]", None),
        (b"{", None),
        (b'{"keytype":"SCHEMA"}', b"{}"),
        (b"\xff", b""),
        (b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"SIDEWAYS"}'),
    ],
)
def test_a_record_of_another_format_is_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(RecordError):
        decode(key, value)
