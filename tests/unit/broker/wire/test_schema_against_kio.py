"""Every table of `wire/api` against kio, a codec generated from Kafka's own definitions.

For each key, side and version that kio has, the fields must have the same names, a message that headrace
writes must be read by kio to the same values, and kio must write it back to the same bytes.
"""

import dataclasses
import datetime
import io
import typing
from collections.abc import Iterator
from enum import Enum
from functools import cache
from typing import Any, Literal
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_entity_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from long_runs import first_of

from headrace.broker.wire import fields as f
from headrace.broker.wire.api import APIS

SIDES: dict[str, Literal[EntityType.request, EntityType.response]] = {
    "request": EntityType.request,
    "response": EntityType.response,
}
PLAIN: dict[f.Primitive | f.Struct, st.SearchStrategy[Any]] = {
    f.BOOL: st.booleans(),
    f.INT8: st.integers(-(2**7), 2**7 - 1),
    f.INT16: st.integers(-(2**15), 2**15 - 1),
    f.UINT16: st.integers(0, 2**16 - 1),
    f.INT32: st.integers(-(2**31), 2**31 - 1),
    f.UINT32: st.integers(0, 2**32 - 1),
    f.INT64: st.integers(-(2**63), 2**63 - 1),
    f.FLOAT64: st.floats(allow_nan=False),
    f.UUID: st.uuids(),
    f.STRING: st.text(max_size=12),
    f.BYTES: st.binary(max_size=12),
    f.RECORDS: st.binary(max_size=12) | st.none(),
}
# kio turns these into richer types with narrower ranges
RICH: dict[str, st.SearchStrategy[Any]] = {
    "error_code": st.sampled_from([code.value for code in ErrorCode]),
    "timedelta_i32": st.integers(0, 2**31 - 1),
    "timedelta_i64": st.integers(0, 2**40),
    "datetime_i64": st.integers(0, 2**40),
}


def cases() -> Iterator[tuple[int, str, int]]:
    for key, api in APIS.items():
        known = schema_name_map.get(api_key_map.get(key, ""), {})
        for version in range(api.versions[0], api.versions[1] + 1):
            for side, entity in SIDES.items():
                if entity in known.get(version, {}):
                    yield key, side, version


CASES = list(cases())
ENDS = [
    case for case in CASES if (*case[:2], case[2] - 1) not in CASES or (*case[:2], case[2] + 1) not in CASES
]
"""The oldest and the newest version of each key and side."""


def squashed(name: str) -> str:
    """kio gives durations and times a type of their own and drops the unit from their names."""
    return name.replace("_", "").lower().removesuffix("ms")


@cache
def present(struct: f.Struct, version: int) -> tuple[f.Field, ...]:
    fields = (field for field in struct.fields if field.present_in(version))
    return tuple(field for field in fields if field.tag is None or field.tag < f.OWN_TAGS_MIN)


@cache
def kio_fields(entity: type) -> dict[str, dataclasses.Field[Any]]:
    return {squashed(field.name): field for field in dataclasses.fields(entity)}


@cache
def nested_entity(entity: type, kio_name: str) -> type:
    """The dataclass inside `X`, `X | None`, `tuple[X, ...]` or `tuple[X, ...] | None`."""
    pending = [typing.get_type_hints(entity)[kio_name]]
    while pending:
        kind = pending.pop()
        if dataclasses.is_dataclass(kind):
            return typing.cast(type, kind)
        pending += typing.get_args(kind)
    raise AssertionError(f"{entity.__name__}.{kio_name} holds no entity")


def values(field: f.Field, version: int, entity: type) -> st.SearchStrategy[Any]:
    kio_field = kio_fields(entity)[squashed(field.name)]
    kind = field.type
    element = kind.of if isinstance(kind, f.Array) else kind
    if isinstance(element, f.Struct):
        strategy: st.SearchStrategy[Any] = messages(element, version, nested_entity(entity, kio_field.name))
    else:
        kafka_type = kio_field.metadata.get("kafka_type", "")
        strategy = RICH[kafka_type] if kafka_type in RICH else PLAIN[element]
    if isinstance(kind, f.Array):
        strategy = st.lists(strategy, max_size=3)
    return strategy | st.none() if field.nullable_in(version) else strategy


@cache
def messages(struct: f.Struct, version: int, entity: type) -> st.SearchStrategy[dict[str, Any]]:
    fields = present(struct, version)
    return st.fixed_dictionaries({field.name: values(field, version, entity) for field in fields})


def plain(value: Any, struct: f.Struct, version: int) -> Any:
    """A kio entity as the dict that headrace would decode."""
    entity: type = type(value)
    own_fields = present(struct, version)
    result = {}
    for field in own_fields:
        kio_name = kio_fields(entity)[squashed(field.name)].name
        result[field.name] = plain_value(getattr(value, kio_name), field.type, version)
    return result


def plain_value(value: Any, kind: f.FieldType, version: int) -> Any:
    element = kind.of if isinstance(kind, f.Array) else kind
    if isinstance(value, tuple):
        return [plain_value(item, element, version) for item in value]
    if dataclasses.is_dataclass(value):
        assert isinstance(element, f.Struct)
        return plain(value, element, version)
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        return (value - epoch) // datetime.timedelta(milliseconds=1)
    if isinstance(value, Enum):
        return value.value
    if value is None and element is f.UUID:
        return UUID(int=0)
    return value


def test_kio_covers_most_keys_and_the_oldest_versions_it_still_knows() -> None:
    assert len({key for key, _, _ in CASES}) >= 54
    assert len(CASES) > 350


@pytest.mark.parametrize(("key", "side", "version"), CASES)
def test_fields_have_the_names_of_kafkas_definitions(key: int, side: str, version: int) -> None:
    entity = load_entity_schema(api_key_map[key], version, SIDES[side])
    assert_same_names(f.Struct(*getattr(APIS[key], side)), version, entity)


def assert_same_names(struct: f.Struct, version: int, entity: type) -> None:
    fields = present(struct, version)
    assert {squashed(field.name) for field in fields} == set(kio_fields(entity))
    for field in fields:
        element = field.type.of if isinstance(field.type, f.Array) else field.type
        if isinstance(element, f.Struct):
            kio_name = kio_fields(entity)[squashed(field.name)].name
            assert_same_names(element, version, nested_entity(entity, kio_name))


@pytest.mark.parametrize(
    ("key", "side", "version"), first_of(len(ENDS), [*ENDS, *(case for case in CASES if case not in ENDS)])
)
@settings(max_examples=6, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_bytes_and_values_are_the_same_both_ways(
    key: int, side: str, version: int, data: st.DataObject
) -> None:
    api = APIS[key]
    struct = f.Struct(*getattr(api, side))
    entity = load_entity_schema(api_key_map[key], version, SIDES[side])
    message = data.draw(messages(struct, version, entity))

    encoded = getattr(api, f"encode_{side}")(version, message)
    from_kio, size = entity_reader(entity)(encoded, 0)
    assert size == len(encoded)
    assert plain(from_kio, struct, version) == message

    written = io.BytesIO()
    entity_writer(entity)(written, from_kio)
    assert written.getvalue() == encoded

    decoded = getattr(api, f"decode_{side}")(version, encoded)
    assert decoded == f.new_message(struct) | message_with_defaults(struct, version, message)


def message_with_defaults(struct: f.Struct, version: int, message: dict[str, Any]) -> dict[str, Any]:
    """The message with the defaults that nested structs get for fields their version lacks."""
    return {
        field.name: completed(field.type, version, message[field.name]) for field in present(struct, version)
    }


def completed(kind: f.FieldType, version: int, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, f.Array):
        return [completed(kind.of, version, item) for item in value]
    if isinstance(kind, f.Struct):
        return f.new_message(kind) | message_with_defaults(kind, version, value)
    return value
