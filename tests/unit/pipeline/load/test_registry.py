"""Which registry of a list is asked, what its answers mean to a load, and schemas with references."""

from __future__ import annotations

import json
from typing import Any

import pytest
from registry_kit import scripted_registry

from headrace.events.registry_address import RegistryAddress
from headrace.load import registry as module
from headrace.load.avro_types import UnsupportedSchemaError
from headrace.load.registry import RegistryUnreachableError, SchemaRegistry, UnknownSchemaError

RECORD = {"type": "record", "name": "Event", "fields": [{"name": "n", "type": "int"}]}
NO_REGISTRY = b"<html>Not Found</html>"
KNOWN = (200, {"id": 5, "schema": json.dumps(RECORD)})


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_WAIT_SECONDS", 0.0)


def test_the_first_registry_that_answers_is_believed() -> None:
    with (
        scripted_registry({"/schemas/ids/5": (503, b"")}) as away,
        scripted_registry({"/schemas/ids/5": KNOWN}) as there,
    ):
        found = SchemaRegistry(RegistryAddress(f"http://127.0.0.1:1, {away.url}/,{there.url}")).schema(
            "orders", 5
        )
        assert found.records[0].natural.names == ["n"]
    assert [path for _, path, _ in there.asked] == ["/schemas/ids/5?subject=orders-value"]
    assert len(away.asked) == 1


def test_a_registry_without_an_answer_is_asked_three_times_and_no_verdict() -> None:
    with scripted_registry(
        {"/schemas/ids/5": (500, {"error_code": 50001, "message": "no store"})}
    ) as registry:
        with pytest.raises(RegistryUnreachableError) as raised:
            SchemaRegistry(RegistryAddress(registry.url.replace("://", "://load:secret@"))).schema(
                "orders", 5
            )
        assert len(registry.asked) == 3
    assert str(raised.value) == (
        f"no registry of {registry.url} answers /schemas/ids/5?subject=orders-value: no store"
    )


@pytest.mark.parametrize(
    "answer",
    [
        (404, NO_REGISTRY),
        (404, {"error_code": 404, "message": "HTTP 404 Not Found"}),
        (404, {"message": "no Route matched with those values"}),
        (200, b"<html>Welcome</html>"),
        (200, {"hello": 1}),
    ],
)
def test_a_server_that_is_no_registry_gives_no_verdict_on_a_record(answer: tuple[int, Any]) -> None:
    path = "/subjects/orders-value/versions/latest"
    with scripted_registry({"/schemas/ids/5": answer, path: answer}) as registry:
        schemas = SchemaRegistry(RegistryAddress(registry.url))
        with pytest.raises(RegistryUnreachableError) as raised:
            schemas.schema("orders", 5)
        assert answer[1] != NO_REGISTRY or "404, is this a schema registry?" in str(raised.value)
        if answer[0] == 404:
            with pytest.raises(RegistryUnreachableError):
                schemas.latest("orders")


def test_a_number_that_is_no_id_is_unknown_whatever_a_registry_makes_of_its_path() -> None:
    no_path = (404, {"error_code": 404, "message": "HTTP 404 Not Found"})
    with scripted_registry({f"/schemas/ids/{2**31}": no_path}) as registry:
        with pytest.raises(UnknownSchemaError, match="the registry has no schema 2147483648"):
            SchemaRegistry(RegistryAddress(registry.url)).schema("orders", 2**31)
        assert registry.asked == []


def test_an_unknown_id_and_a_refused_one_are_asked_for_once() -> None:
    refused = (422, {"error_code": 42201, "message": "id 6 stands for two schemas"})
    with scripted_registry({"/schemas/ids/6": refused}) as registry:
        schemas = SchemaRegistry(RegistryAddress(registry.url))
        with pytest.raises(UnknownSchemaError, match="the registry has no schema 5"):
            schemas.schema("orders", 5)
        for _ in range(2):
            with pytest.raises(UnsupportedSchemaError, match="refuses schema 6: id 6 stands for two schemas"):
                schemas.schema("orders", 6)
        assert schemas.latest("orders") is None
        assert len(registry.asked) == 3


def test_the_latest_schema_is_the_one_that_the_registry_has_now() -> None:
    path = "/subjects/orders-value/versions/latest"
    answers: dict[str, tuple[int, Any]] = {path: KNOWN}
    with scripted_registry(answers) as registry:
        schemas = SchemaRegistry(RegistryAddress(registry.url))
        assert getattr(schemas.latest("orders"), "schema_id", None) == 5
        answers[path] = (200, {"id": 6, "schema": json.dumps(RECORD)})
        assert getattr(schemas.latest("orders"), "schema_id", None) == 6
        answers[path] = (200, {"id": 7, "schema": "{}", "schemaType": "JSON"})
        assert schemas.latest("orders") is None


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"schema": "{}", "schemaType": "PROTOBUF"}, "schema 5 is PROTOBUF, the load reads Avro"),
        ({"schema": "{"}, "schema 5 is no valid Avro schema"),
        ({"schema": '"Item"', "references": [{"name": "Item"}]}, "a reference lacks its name"),
    ],
)
def test_a_schema_that_is_of_no_use_is_said_to_be(answer: Any, reason: str) -> None:
    with (
        scripted_registry({"/schemas/ids/5": (200, answer)}) as registry,
        pytest.raises(UnsupportedSchemaError, match=reason),
    ):
        SchemaRegistry(RegistryAddress(registry.url)).schema("orders", 5)


def test_schemas_are_found_with_their_references() -> None:
    item = {"type": "record", "name": "Item", "namespace": "shop", "fields": [{"name": "n", "type": "int"}]}
    order = {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "one", "type": "shop.Item"},
            {"name": "more", "type": {"type": "array", "items": "Item"}},
        ],
    }
    references = [{"name": "shop.Item", "subject": "items/a b", "version": 3}]
    answers = {
        "/schemas/ids/5": (200, {"schema": json.dumps(order), "references": references}),
        "/subjects/items%2Fa%20b/versions/3": (200, {"id": 4, "version": 3, "schema": json.dumps(item)}),
    }
    with scripted_registry(answers) as registry:
        schemas = SchemaRegistry(RegistryAddress(registry.url))
        fields = schemas.schema("dc-east.orders", 5).records[0].natural
        assert str(fields.field("one").type) == "struct<n: int32>"
        assert str(fields.field("more").type) == "list<item: struct<n: int32>>"
        with pytest.raises(UnknownSchemaError):
            schemas.schema("dc-east.orders", 6)
