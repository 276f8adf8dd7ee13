"""Schemas that come late, grow, or never come; and brokers that are away."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from pathlib import Path
from typing import Any, cast

import confluent_kafka
import pytest
from commands import headrace
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from load_helpers import EVENT, create_topic, event, framed, schemas_served
from processes import DevCluster, eventually
from registry_process import RegistryProcess

from headrace.broker.client.bootstrap import Bootstrap
from headrace.events.registry_address import RegistryAddress
from headrace.load import query, tables, task
from headrace.load.datasource import HeadraceReader
from headrace.load.driver import LoadConfig, Loader, RoundReport
from headrace.load.log_client import LogClient
from headrace.load.registry import RegistryUnreachableError, SchemaRegistry
from headrace.registry.records import SchemaVersion, encode

WIDER = {
    **EVENT,
    "fields": [*EVENT["fields"], {"name": "zone", "type": "string", "default": "eu"}],
}
CHANGED = {**EVENT, "fields": [EVENT["fields"][0], {"name": "path", "type": "long"}]}


def loader_of(bootstrap: str, registry: str, warehouse: Path, topic: str, wait_seconds: float = 60) -> Loader:
    config = LoadConfig(
        bootstrap=Bootstrap(bootstrap),
        registry=RegistryAddress(registry),
        task_count_max=2,
        wanted=lambda name: re.fullmatch(topic, name) is not None,
        schema_wait_seconds=wait_seconds,
    )
    return Loader(tables.open_catalog(str(warehouse)), config, lambda work: [task.run(item) for item in work])


def settle_down(loader: Loader) -> RoundReport:
    while (report := loader.round()).moved:
        pass
    return report


def publish_values(bootstrap: str, topic: str, values: list[bytes]) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def answer(warehouse: Path, sql: str) -> list[Any]:
    return query.connect(tables.open_catalog(str(warehouse))).sql(sql).fetchall()


def test_data_that_comes_before_its_schema_waits_for_it_and_holds_back_what_follows(
    broker: DevCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.load.registry.UNKNOWN_AGAIN_AFTER_SECONDS", 0.0)
    topic = "dc-late.pageviews"
    create_topic(broker.bootstrap, topic, 1)
    values = [framed(1, EVENT, event(0)), framed(2, EVENT, event(1)), framed(1, EVENT, event(2))]
    publish_values(broker.bootstrap, topic, values)
    schemas = {1: EVENT}
    with schemas_served(schemas) as url:
        loader = loader_of(broker.bootstrap, url, tmp_path, topic)
        assert settle_down(loader).waiting_for_schemas == [2]
        assert answer(tmp_path, "SELECT _offset FROM warehouse.pageviews") == [(0,)]
        schemas[2] = EVENT
        settle_down(loader)
        assert answer(tmp_path, "SELECT _offset FROM warehouse.pageviews ORDER BY 1") == [(0,), (1,), (2,)]
        assert answer(tmp_path, "SELECT count(*) FROM warehouse.dead_letter") == [(0,)]


def test_a_schema_that_never_comes_costs_only_its_own_records(broker: DevCluster, tmp_path: Path) -> None:
    topic = "dc-never.pageviews"
    create_topic(broker.bootstrap, topic, 1)
    values = [framed(1, EVENT, event(0)), framed(2, EVENT, event(1)), framed(1, EVENT, event(2))]
    publish_values(broker.bootstrap, topic, values)
    with schemas_served({1: EVENT}) as url:
        loader = loader_of(broker.bootstrap, url, tmp_path, topic, wait_seconds=0)
        settle_down(loader)
        settle_down(loader)
    assert answer(tmp_path, "SELECT _offset FROM warehouse.pageviews ORDER BY 1") == [(0,), (2,)]
    letters = answer(tmp_path, "SELECT _offset, _reason, value FROM warehouse.dead_letter")
    assert letters == [(1, "the registry has no schema 2", values[1])]


def test_a_partition_with_many_schemas_that_never_come_stands_still_once(
    broker: DevCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = "dc-many.pageviews"
    create_topic(broker.bootstrap, topic, 1)
    unknown = [framed(100 + number, EVENT, event(number)) for number in range(20)]
    publish_values(
        broker.bootstrap, topic, [framed(1, EVENT, event(0)), *unknown, framed(1, EVENT, event(1))]
    )
    now = time.monotonic()
    monkeypatch.setattr("headrace.load.driver.time.monotonic", lambda: now)
    with schemas_served({1: EVENT}) as url:
        loader = loader_of(broker.bootstrap, url, tmp_path, topic, wait_seconds=60)
        assert settle_down(loader).waiting_for_schemas == list(range(100, 120))
        publish_values(broker.bootstrap, topic, [framed(200, EVENT, event(2)), framed(100, EVENT, event(3))])
        now += 60
        report = settle_down(loader)
        assert (report.waiting_for_schemas, report.lag) == ([200], 2)
        now += 60
        assert settle_down(loader).lag == 0
    assert answer(tmp_path, "SELECT _offset FROM warehouse.pageviews ORDER BY 1") == [(0,), (21,)]
    assert answer(tmp_path, "SELECT count(*) FROM warehouse.dead_letter") == [(22,)]


def test_one_id_of_two_datacenters_registries_decodes_each_datacenters_records(
    broker: DevCluster, tmp_path: Path
) -> None:
    schemas = {"dc-one": EVENT, "dc-two": WIDER}
    for datacenter, schema in schemas.items():
        create_topic(broker.bootstrap, f"{datacenter}.pageviews", 1)
        topic = f"{datacenter}._schemas"
        create_topic(broker.bootstrap, topic, 1)
        record = SchemaVersion(subject="pageviews-value", version=1, schema_id=1, text=json.dumps(schema))
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce(topic, key=encode(record)[0], value=encode(record)[1])
        assert producer.flush(30) == 0
    publish_values(broker.bootstrap, "dc-one.pageviews", [framed(1, EVENT, event(0))])
    publish_values(broker.bootstrap, "dc-two.pageviews", [framed(1, WIDER, {**event(1), "zone": "us"})])
    replayed = ",".join(f"{datacenter}._schemas" for datacenter in schemas)
    registry = RegistryProcess(tmp_path / "log", broker.bootstrap, "--replay-topics", replayed)
    try:
        loader = loader_of(broker.bootstrap, registry.url, tmp_path, r"dc-(one|two)\.pageviews")
        eventually(lambda: settle_down(loader).lag == 0, what="both schemas to be mirrored")
    finally:
        registry.end()
    rows = answer(
        tmp_path, "SELECT _datacenter, header.sequence, path, zone FROM warehouse.pageviews ORDER BY 1"
    )
    assert [row[:3] for row in rows] == [("dc-one", 0, "/"), ("dc-two", 1, "/")]
    assert (rows[1][3], answer(tmp_path, "SELECT count(*) FROM warehouse.dead_letter")) == ("us", [(0,)])


def test_the_table_grows_with_its_schemas_and_refuses_what_cannot_fit(
    broker: DevCluster, tmp_path: Path
) -> None:
    topic = "dc-grow.pageviews"
    create_topic(broker.bootstrap, topic, 1)
    old, wider = framed(1, EVENT, event(0)), framed(2, WIDER, {**event(1), "zone": "us"})
    changed = framed(3, CHANGED, {**event(2), "path": 5})
    with schemas_served({1: EVENT, 2: WIDER, 3: CHANGED}) as url:
        loader = loader_of(broker.bootstrap, url, tmp_path, topic)
        publish_values(broker.bootstrap, topic, [old])
        settle_down(loader)
        publish_values(broker.bootstrap, topic, [wider, old, changed, wider])
        assert settle_down(loader).lag == 0
    rows = answer(tmp_path, "SELECT _offset, path, zone FROM warehouse.pageviews ORDER BY 1")
    assert rows == [(0, "/", None), (1, "/", "us"), (2, "/", "eu"), (4, "/", "us")]
    ((offset, reason),) = answer(tmp_path, "SELECT _offset, _reason FROM warehouse.dead_letter")
    assert offset == 3
    assert "field path is int64, but the table's column is string" in reason


CLICK = {"type": "record", "name": "Click", "fields": [{"name": "at", "type": "int"}]}


def with_either(*branches: Any) -> dict[str, Any]:
    return {**EVENT, "fields": [*EVENT["fields"], {"name": "what", "type": ["null", *branches]}]}


def test_a_field_of_several_types_is_a_struct_that_grows_by_members(
    broker: DevCluster, tmp_path: Path
) -> None:
    topic = "dc-either.pageviews"
    create_topic(broker.bootstrap, topic, 1)
    old, new = with_either("string", "long"), with_either("string", "long", CLICK)
    values: list[bytes] = [
        framed(1, old, {**event(n), "what": what}) for n, what in enumerate(("a", 5, None))
    ]
    with schemas_served({1: old, 2: new}) as url:
        loader = loader_of(broker.bootstrap, url, tmp_path, topic)
        publish_values(broker.bootstrap, topic, values)
        settle_down(loader)
        publish_values(broker.bootstrap, topic, [framed(2, new, {**event(3), "what": {"at": 7}}), values[1]])
        assert settle_down(loader).lag == 0
    rows = answer(
        tmp_path, "SELECT what.string, what.long, what.Click.at FROM warehouse.pageviews ORDER BY _offset"
    )
    assert rows == [("a", None, None), (None, 5, None), (None, None, None), (None, None, 7), (None, 5, None)]
    found = answer(tmp_path, "SELECT _offset FROM warehouse.pageviews WHERE what IS NULL")
    assert found == [(2,)]
    assert answer(tmp_path, "SELECT count(*) FROM warehouse.dead_letter") == [(0,)]


def with_what(kind: Any) -> dict[str, Any]:
    return {**EVENT, "fields": [*EVENT["fields"], {"name": "what", "type": kind}]}


def test_a_field_that_becomes_one_of_several_types_keeps_its_column(
    broker: DevCluster, tmp_path: Path
) -> None:
    topic = "dc-several.pageviews"
    create_topic(broker.bootstrap, topic, 1)
    alone, several = with_what("string"), with_what(["null", "string", "long"])
    values = [framed(2, several, {**event(n), "what": what}) for n, what in enumerate(("b", 5, None))]
    with schemas_served({1: alone, 2: several}) as url:
        loader = loader_of(broker.bootstrap, url, tmp_path, topic)
        publish_values(broker.bootstrap, topic, [framed(1, alone, {**event(9), "what": "a"})])
        settle_down(loader)
        publish_values(broker.bootstrap, topic, values)
        assert settle_down(loader).lag == 0
    rows = answer(tmp_path, "SELECT _offset, what FROM warehouse.pageviews ORDER BY 1")
    assert rows == [(0, "a"), (1, "b"), (3, None)]
    ((offset, reason),) = answer(tmp_path, "SELECT _offset, _reason FROM warehouse.dead_letter")
    assert (offset, reason) == (
        2,
        "schema 2: field what is a value of long, but the table's column is string: "
        "rename the column, and the field gets its own",
    )


@pytest.mark.parametrize("newest", [None, 2])
def test_a_type_alone_goes_to_its_member_and_the_newest_schema_says_whether_it_is_one(
    broker: DevCluster, tmp_path: Path, newest: int | None
) -> None:
    topic = f"dc-alone{newest or 0}.pageviews"
    create_topic(broker.bootstrap, topic, 1)
    alone, several = with_what("string"), with_what(["null", "string", "long"])
    text, number = framed(1, alone, {**event(0), "what": "a"}), framed(2, several, {**event(1), "what": 5})
    with schemas_served({1: alone, 2: several}, newest=newest) as url:
        loader = loader_of(broker.bootstrap, url, tmp_path, topic)
        for value in (text, number) if newest else (number, text):
            publish_values(broker.bootstrap, topic, [value])
            settle_down(loader)
    rows = answer(tmp_path, "SELECT what.string, what.long FROM warehouse.pageviews ORDER BY header.sequence")
    assert rows == [("a", None), (None, 5)]
    assert answer(tmp_path, "SELECT count(*) FROM warehouse.dead_letter") == [(0,)]


PAGE = {"type": "record", "name": "web.Page", "fields": [{"name": "path", "type": "string"}]}
OPENED = {
    "type": "record",
    "name": "web.Opened",
    "fields": [{"name": "page", "type": "web.Page"}, {"name": "place", "type": "int"}],
}


def register_union(client: SchemaRegistryClient, topic: str) -> None:
    """Register a topic's schema as Confluent recommends it: a union of references to the schemas of its events."""
    page = SchemaReference("web.Page", "page", 1)
    opened = SchemaReference("web.Opened", "opened", 1)
    client.register_schema("page", Schema(json.dumps(PAGE), "AVRO"))
    client.register_schema("opened", Schema(json.dumps(OPENED), "AVRO", [page]))
    union = Schema(json.dumps(["web.Page", "web.Opened"]), "AVRO", [page, opened])
    client.register_schema(f"{topic}-value", union)


def test_events_of_a_union_of_references_have_the_rows_of_their_own_schemas(
    broker: DevCluster, tmp_path: Path
) -> None:
    topic = "dc-union.events"
    create_topic(broker.bootstrap, topic, 1)
    registry = RegistryProcess(tmp_path / "log", broker.bootstrap)
    try:
        client = SchemaRegistryClient({"url": registry.url})
        register_union(client, topic)
        serializer = AvroSerializer(client, conf={"auto.register.schemas": False, "use.latest.version": True})
        context = SerializationContext(topic, MessageField.VALUE)
        events: list[Any] = [{"path": "/"}, {"page": {"path": "/a"}, "place": 7}, {"path": "/b"}]
        values = [cast(bytes, serializer(event, context)) for event in events]
        publish_values(broker.bootstrap, topic, [*values, values[0][:5] + b"\x7f"])
        loader = loader_of(broker.bootstrap, registry.url, tmp_path, topic)
        assert settle_down(loader).lag == 0
        told = ["--bootstrap", broker.bootstrap, "--registry", registry.url, "--max", "3"]
        consumed = headrace("consume", topic, *told)
        reader = HeadraceReader(Bootstrap(broker.bootstrap), topic, RegistryAddress(registry.url))
        (partition,) = reader.partitions()
        frame = [row for batch in reader.read(partition) for row in batch.to_pylist()]
    finally:
        registry.end()
    rows = answer(tmp_path, "SELECT _offset, path, page.path, place FROM warehouse.events ORDER BY 1")
    assert rows == [(0, "/", None, None), (1, None, "/a", 7), (2, "/b", None, None)]
    ((offset, reason),) = answer(tmp_path, "SELECT _offset, _reason FROM warehouse.dead_letter")
    assert (offset, reason.partition(": ")[2]) == (3, "the value has no branch of the union")
    assert [json.loads(line) for line in consumed.stdout.splitlines()] == events
    found = sorted((row["_offset"], row["path"], row["place"], row["_error"] is None) for row in frame)
    assert found == [(0, "/", None, True), (1, None, 7, True), (2, "/b", None, True), (3, None, None, False)]


def test_old_events_get_the_newest_schemas_default_whichever_come_first(
    broker: DevCluster, tmp_path: Path
) -> None:
    topic = "dc-default.pageviews"
    create_topic(broker.bootstrap, topic, 1)
    old, wider = framed(1, EVENT, event(0)), framed(2, WIDER, {**event(1), "zone": "us"})
    with schemas_served({1: EVENT, 2: WIDER}, newest=2) as url:
        loader = loader_of(broker.bootstrap, url, tmp_path, topic)
        for values in ([old], [wider, old]):
            publish_values(broker.bootstrap, topic, values)
            settle_down(loader)
    rows = answer(tmp_path, "SELECT _offset, zone FROM warehouse.pageviews ORDER BY 1")
    assert rows == [(0, "eu"), (1, "us"), (2, "eu")]


def with_zone(kind: str, default: object) -> dict[str, Any]:
    return {**EVENT, "fields": [*EVENT["fields"], {"name": "zone", "type": kind, "default": default}]}


def test_a_field_of_another_type_gets_a_column_and_default_of_its_own_once_the_former_column_is_renamed(
    broker: DevCluster, tmp_path: Path
) -> None:
    topic = "dc-retyped.pageviews"
    create_topic(broker.bootstrap, topic, 1)
    text, number = with_zone("string", "eu"), with_zone("long", 7)
    old = framed(1, EVENT, event(0))
    with schemas_served({1: EVENT, 2: text, 3: number}) as url:
        loader = loader_of(broker.bootstrap, url, tmp_path, topic)
        publish_values(broker.bootstrap, topic, [framed(2, text, {**event(1), "zone": "us"}), old])
        settle_down(loader)
        with tables.load_table(tables.open_catalog(str(tmp_path)), "pageviews").update_schema() as update:
            update.rename_column("zone", "zone_text")
        publish_values(broker.bootstrap, topic, [framed(3, number, {**event(2), "zone": 5}), old])
        settle_down(loader)
    rows = answer(tmp_path, "SELECT _offset, zone_text, zone FROM warehouse.pageviews ORDER BY 1")
    assert rows == [(0, "us", None), (1, "eu", None), (2, None, 5), (3, None, 7)]


def with_place(*parts: dict[str, Any]) -> dict[str, Any]:
    place = {"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}, *parts]}
    return {
        **EVENT,
        "fields": [*EVENT["fields"], {"name": "place", "type": place, "default": {"city": "Ulm"}}],
    }


def test_a_records_default_gets_those_of_the_fields_that_the_record_grew_since(
    broker: DevCluster, tmp_path: Path
) -> None:
    topic = "dc-place.pageviews"
    create_topic(broker.bootstrap, topic, 1)
    first, grown = with_place(), with_place({"name": "zone", "type": "string", "default": "eu"})
    old = framed(1, EVENT, event(0))
    values = [
        framed(2, first, {**event(1), "place": {"city": "Bonn"}}),
        old,
        framed(3, grown, {**event(3), "place": {"city": "Rome", "zone": "it"}}),
        old,
    ]
    with schemas_served({1: EVENT, 2: first, 3: grown}) as url:
        loader = loader_of(broker.bootstrap, url, tmp_path, topic)
        for value in values:
            publish_values(broker.bootstrap, topic, [value])
            settle_down(loader)
    rows = answer(tmp_path, "SELECT place FROM warehouse.pageviews ORDER BY _offset")
    places = [("Bonn", None), ("Ulm", None), ("Rome", "it"), ("Ulm", "eu")]
    assert rows == [({"city": city, "zone": zone},) for city, zone in places]


def test_keys_and_headers_are_kept_in_rows_and_in_dead_letters(broker: DevCluster, tmp_path: Path) -> None:
    topic = "dc-keys.pageviews"
    create_topic(broker.bootstrap, topic, 1)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    trace: list[tuple[str, bytes | None]] = [("trace", b"1"), ("trace", None), ("host", "né".encode())]
    for number, value in enumerate([framed(1, EVENT, event(0)), b"junk", framed(1, EVENT, event(2))]):
        kept: dict[str, Any] = {"key": b"\xffk", "headers": trace} if number < 2 else {}
        producer.produce(topic, value, partition=0, **kept)
    assert producer.flush(30) == 0
    with schemas_served({1: EVENT}) as url:
        settle_down(loader_of(broker.bootstrap, url, tmp_path, topic))
    expected = [{"key": name, "value": value} for name, value in trace]
    rows = answer(tmp_path, "SELECT _offset, _key, _headers, path FROM warehouse.pageviews ORDER BY 1")
    assert rows == [(0, b"\xffk", expected, "/"), (2, None, None, "/")]
    letters = answer(tmp_path, "SELECT _offset, key, value, headers FROM warehouse.dead_letter")
    assert letters == [(1, b"\xffk", b"junk", expected)]


def test_topics_that_would_share_a_table_are_refused_and_others_are_loaded(
    broker: DevCluster, tmp_path: Path
) -> None:
    topics = ["dc-share.a-b", "dc-share.a.B", "dc-share.dead.letter", "dc-share.pageviews"]
    for topic in topics:
        create_topic(broker.bootstrap, topic, 1)
        publish_values(broker.bootstrap, topic, [framed(1, EVENT, event(0))])
    with schemas_served({1: EVENT}) as url:
        loader = loader_of(broker.bootstrap, url, tmp_path, "dc-share.a-b")
        settle_down(loader)
        config = dataclasses.replace(loader._config, wanted=topics.__contains__)
        report = settle_down(Loader(tables.open_catalog(str(tmp_path)), config, loader._run_tasks))
    assert [sentence.split(":")[0] for sentence in report.refused_topics] == [
        "topic dc-share.dead.letter cannot be loaded",
        "topic dc-share.a.B cannot be loaded",
    ]
    assert "its table warehouse.a_b is that of a-b" in report.refused_topics[1]
    assert answer(tmp_path, "SELECT _topic FROM warehouse.a_b") == [("a-b",)]
    assert answer(tmp_path, "SELECT _topic FROM warehouse.pageviews") == [("pageviews",)]


def test_a_registry_that_is_away_makes_no_dead_letters(broker: DevCluster, tmp_path: Path) -> None:
    topic = "dc-away.pageviews"
    create_topic(broker.bootstrap, topic, 1)
    publish_values(broker.bootstrap, topic, [framed(1, EVENT, event(0))])
    loader = loader_of(broker.bootstrap, "http://127.0.0.1:1", tmp_path, topic, wait_seconds=0)
    report = loader.round()
    assert "no registry of http://127.0.0.1:1 answers" in report.failures[0]
    assert (report.rows, report.dead_letters, report.lag) == (0, 0, 1)


@pytest.mark.acceptance
def test_a_dead_broker_costs_its_own_partitions_alone(
    dev_cluster: Any, broker_process: Any, tmp_path: Path
) -> None:
    cluster = dev_cluster()
    second = broker_process(broker_id=50, zookeeper=cluster.zookeeper)
    topic = "dc-half.pageviews"
    create_topic(cluster.bootstrap, topic, 4)
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(40):
        producer.produce(topic, framed(1, EVENT, event(number)), partition=number % 4)
    assert producer.flush(30) == 0
    second.kill()
    with schemas_served({1: EVENT}) as url:
        loader = loader_of(cluster.bootstrap, url, tmp_path, topic)
        report = settle_down(loader)
        assert any("no leader answers" in failure for failure in report.failures)
        assert answer(tmp_path, "SELECT count(*) FROM warehouse.pageviews") == [(20,)]
        broker_process(broker_id=50, zookeeper=cluster.zookeeper)
        while loader.round().failures:
            pass
        settle_down(loader)
    assert answer(
        tmp_path, "SELECT count(*), count(DISTINCT (_topic_partition, _offset)) FROM warehouse.pageviews"
    ) == [(40, 40)]


def test_a_topic_deleted_and_made_anew_stands_still_until_somebody_looks(
    broker: DevCluster, tmp_path: Path
) -> None:
    topic = "dc-anew.pageviews"
    create_topic(broker.bootstrap, topic, 1)
    publish_values(broker.bootstrap, topic, [framed(1, EVENT, event(number)) for number in range(3)])
    with schemas_served({1: EVENT}) as url:
        loader = loader_of(broker.bootstrap, url, tmp_path, topic)
        settle_down(loader)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.delete_topics([topic])[topic].result(20)
        eventually(
            lambda: (
                not settle_down(loader).findings
                and not LogClient(Bootstrap(broker.bootstrap)).partitions(topic.__eq__)
            )
        )
        create_topic(broker.bootstrap, topic, 1)
        publish_values(broker.bootstrap, topic, [framed(1, EVENT, event(number)) for number in range(9)])
        assert [finding.kind for finding in settle_down(loader).findings] == ["recreation"]
    assert answer(tmp_path, "SELECT count(*) FROM warehouse.pageviews") == [(3,)]


def test_an_unreachable_registry_is_no_verdict() -> None:
    with pytest.raises(RegistryUnreachableError):
        SchemaRegistry(RegistryAddress("http://127.0.0.1:1"), timeout_seconds=1).schema("orders", 1)
