"""Modes, and schemas that come with their ids from another registry."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from registry_machine_kit import V1, V2, Log, Registry, refused, replay

from headrace.registry.machine import Machine, Submitted
from headrace.registry.records import Mode, RecordError, SchemaVersion, decode, encode
from headrace.registry.schemas import Reference

OTHER = '{"type":"record","name":"R","fields":[{"name":"c","type":"string"}]}'


def importing(subject: str | None = "s") -> Registry:
    registry = Registry()
    registry.write(registry.machine.decide_set_mode(subject, "IMPORT"))
    return registry


def bring(
    registry: Registry, text: str, schema_id: int, version: int | None = None, *, subject: str = "s"
) -> Any:
    submitted = Submitted(text=text)
    return registry.write(
        registry.machine.decide_import(subject, submitted, schema_id=schema_id, version=version)
    )


def test_schemas_are_brought_with_their_ids_and_versions() -> None:
    registry = importing()
    assert bring(registry, V1, 7, 2) == bring(registry, V1, 7, 2) == bring(registry, V1, 7) == {"id": 7}
    assert bring(registry, OTHER, 9) == {"id": 9}, "compatibility is not asked for"
    assert bring(registry, V2, 8, 1) == {"id": 8}
    machine = registry.machine
    assert machine.versions("s") == [1, 2, 3]
    assert [machine.version("s", number)["id"] for number in ("1", "2", "3")] == [8, 7, 9]
    registry.write(machine.decide_set_mode("s", "readwrite"))
    assert registry.register("t", V1) == 7
    other = Machine()
    assert replay(registry.log, other) == []
    assert (other.mode("s"), other.schema(8)) == ("READWRITE", {"schema": V2})


def test_a_reference_is_brought_after_what_it_refers_to() -> None:
    registry = importing(None)
    bring(registry, '{"type":"fixed","name":"n.F","size":2}', 3, 4, subject="inner")
    outer = '{"type":"record","name":"Outer","fields":[{"name":"f","type":"n.F"}]}'
    reference = Reference(name="n.F", subject="inner", version=4)
    submitted = Submitted(text=outer, references=(reference,))
    decision = registry.machine.decide_import("outer", submitted, schema_id=5, version=1)
    assert registry.write(decision) == {"id": 5}
    assert registry.machine.referenced_by("inner", "4") == [5]
    assert refused(lambda: bring(registry, outer, 6)) == (422, 42201)


def test_an_id_or_a_version_never_comes_to_stand_for_another_schema() -> None:
    registry = importing(None)
    bring(registry, V1, 7, 1)
    for action in (
        lambda: bring(registry, V2, 7),
        lambda: bring(registry, V2, 7, subject="t"),
        lambda: bring(registry, V2, 8, 1),
        lambda: bring(registry, V1, 8, 1),
    ):
        assert refused(action) == (422, 42205)
    assert bring(registry, V1, 8, 2) == {"id": 8}, "two registries may have had one schema under two ids"
    assert (registry.machine.schema(7), registry.machine.schema(8)) == ({"schema": V1}, {"schema": V1})


def test_what_was_brought_by_mistake_is_brought_again_once_it_is_deleted_for_good() -> None:
    registry = importing(None)
    bring(registry, V2, 7, 1)
    registry.write(registry.machine.decide_delete_subject("s", permanent=False))
    assert refused(lambda: bring(registry, V1, 7, 2)) == (422, 42205)
    registry.write(registry.machine.decide_delete_subject("s", permanent=True))
    bring(registry, V1, 7, 1)
    registry.write(registry.machine.decide_delete_mode(None))
    assert registry.machine.schema(7) == {"schema": V1}
    assert (registry.register("t", V1), registry.register("t", V2) == 7) == (7, False)
    assert replay(registry.log, Machine()) == []


def test_import_begins_where_no_schema_is_or_by_force() -> None:
    registry = Registry()
    machine = registry.machine
    registry.register("s", V1)
    registry.register("t", V2)
    for subject in ("s", None):
        assert refused(partial(machine.decide_set_mode, subject, "IMPORT")) == (422, 42205)
    registry.write(machine.decide_delete_subject("s", permanent=False))
    registry.write(machine.decide_set_mode("s", "IMPORT"))
    assert machine.subjects(deleted=True) == ["t"], "what was deleted softly is gone for good"
    registry.write(machine.decide_set_mode(None, "IMPORT", force=True))
    assert bring(registry, V1, 3, subject="t") == {"id": 3}
    assert machine.versions("t") == [1, 2]
    registry.write(machine.decide_set_mode("t", "IMPORT"))


def test_import_does_not_remove_what_another_schema_refers_to() -> None:
    registry = Registry()
    registry.register("inner", '{"type":"fixed","name":"n.F","size":2}')
    outer = '{"type":"record","name":"Outer","fields":[{"name":"f","type":"n.F"}]}'
    [record] = registry.machine.decide_delete_version("inner", "1", permanent=False).records
    registry.register("outer", outer, Reference(name="n.F", subject="inner", version=1))
    replay([encode(record)], registry.machine)
    assert refused(lambda: registry.machine.decide_set_mode("inner", "IMPORT")) == (422, 42206)


@pytest.mark.parametrize(
    ("mode", "action"),
    [
        (None, lambda machine: machine.decide_import("s", Submitted(text=V1), schema_id=3, version=None)),
        ("IMPORT", lambda machine: machine.decide_register("s", Submitted(text=V1))),
        ("READONLY", lambda machine: machine.decide_register("s", Submitted(text=V1))),
        (
            "READONLY",
            lambda machine: machine.decide_import("s", Submitted(text=V1), schema_id=3, version=None),
        ),
        ("READONLY", lambda machine: machine.decide_set_level("s", "NONE")),
        ("READONLY", lambda machine: machine.decide_delete_level("s")),
        ("READONLY", lambda machine: machine.decide_delete_version("s", "1", permanent=False)),
        ("READONLY", lambda machine: machine.decide_delete_subject("s", permanent=False)),
    ],
)
@pytest.mark.parametrize("subject", ["s", None])
def test_a_mode_refuses_what_it_is_not_for(
    mode: str | None, action: Callable[[Machine], Any], subject: str | None
) -> None:
    registry = Registry()
    registry.register("s", V2)
    registry.write(registry.machine.decide_set_level("s", "FULL"))
    if mode is not None:
        registry.write(registry.machine.decide_set_mode(subject, mode, force=True))
    assert refused(lambda: action(registry.machine)) == (422, 42205)


def test_a_subjects_own_mode_comes_before_the_global_one() -> None:
    registry = Registry()
    machine = registry.machine
    registry.write(machine.decide_set_mode(None, "READONLY"))
    registry.write(machine.decide_set_mode("s", "READWRITE"))
    registry.register("s", V1)
    assert (machine.mode(None), machine.mode("s")) == ("READONLY", "READWRITE")
    assert refused(lambda: machine.mode("t")) == (404, 40409)
    assert machine.mode("t", default_to_global=True) == "READONLY"
    assert registry.write(machine.decide_delete_mode(None)) == {"mode": "READONLY"}
    assert registry.write(machine.decide_delete_mode(None)) == {"mode": "READWRITE"}
    assert registry.write(machine.decide_delete_mode("s")) == {"mode": "READWRITE"}
    assert refused(lambda: machine.decide_delete_mode("s")) == (404, 40401)
    for mode in ("FORWARD", "", None, 5):
        assert refused(partial(machine.decide_set_mode, "s", mode)) == (422, 42204)


def test_a_subject_that_is_deleted_for_good_has_no_mode() -> None:
    registry = importing()
    bring(registry, V1, 7)
    for permanent in (False, True):
        assert registry.machine.mode("s") == "IMPORT"
        registry.write(registry.machine.decide_delete_subject("s", permanent=permanent))
    assert refused(lambda: registry.machine.mode("s")) == (404, 40409)


def test_modes_of_another_datacenter_are_not_ours() -> None:
    offline = Machine(("dc-east.",))
    assert replay([*importing("s").log, *importing(None).log], offline, "dc-east.") == []
    assert (offline.mode(None), offline.mode("dc-east.s")) == ("READWRITE", "READONLY")
    assert refused(lambda: offline.decide_set_mode("dc-east.s", "IMPORT")) == (422, 42205)


def test_a_mode_that_came_late_is_written_over() -> None:
    registry = importing(None)
    late = Mode(subject=None, mode="READONLY")
    machine = registry.machine
    machine.turns._end("t-1")
    assert machine.apply(late, turn="t-1") is not None
    registry.log.append(encode(late))
    registry.write(machine.decide_repair())
    other = Machine()
    replay(list(dict(registry.log).items()), other)
    assert other.mode(None) == "IMPORT"


def test_records_are_those_of_confluents_registry() -> None:
    registry = importing(None)
    registry.write(registry.machine.decide_set_mode("s", "IMPORT"))
    bring(registry, V1, 7, 3)
    registry.write(registry.machine.decide_delete_mode("s"))
    decoded = [(json.loads(key), value and json.loads(value)) for key, value in registry.log]
    assert decoded == [
        ({"keytype": "MODE", "subject": None, "magic": 0}, {"subject": None, "mode": "IMPORT"}),
        ({"keytype": "MODE", "subject": "s", "magic": 0}, {"subject": "s", "mode": "IMPORT"}),
        (
            {"keytype": "SCHEMA", "subject": "s", "version": 3, "magic": 1},
            {"subject": "s", "version": 3, "id": 7, "schema": V1, "deleted": False},
        ),
        ({"keytype": "MODE", "subject": "s", "magic": 0}, None),
    ]


def test_modes_and_global_settings_that_confluents_registry_wrote_hold() -> None:
    log: Log = [
        (b'{"keytype":"CONFIG","magic":0}', b'{"compatibilityLevel":"NONE"}'),
        (b'{"keytype":"MODE","magic":0}', b'{"mode":"IMPORT"}'),
        (b'{"keytype":"MODE","subject":"s","magic":0}', b'{"subject":"s","mode":"READONLY_OVERRIDE"}'),
    ]
    registry = Registry()
    assert replay(log, registry.machine) == []
    assert (registry.machine.level(None), registry.machine.mode(None)) == ("NONE", "IMPORT")
    assert refused(lambda: bring(registry, V1, 7)) == (422, 42205)
    with pytest.raises(RecordError):
        decode(b'{"keytype":"MODE","magic":0}', b'{"mode":"SIDEWAYS"}')


def test_a_version_that_was_deleted_softly_is_brought_back() -> None:
    registry = importing()
    bring(registry, V1, 7, 1)
    registry.write(registry.machine.decide_delete_version("s", "1", permanent=False))
    bring(registry, V1, 7, 1)
    assert registry.machine.versions("s") == [1]
    assert isinstance(decode(*registry.log[-1]), SchemaVersion)
