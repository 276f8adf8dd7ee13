"""The registry as a real process: Confluent's client and serializers, restarts, brokers that come and go."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import requests
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext
from processes import DevCluster, eventually, free_port
from registry_process import RegistryProcess

V1 = '{"type":"record","name":"User","fields":[{"name":"name","type":"string"}]}'
V2 = (
    '{"type":"record","name":"User","fields":[{"name":"name","type":"string"},'
    '{"name":"age","type":["null","int"],"default":null}]}'
)
BROKEN = '{"type":"record","name":"User","fields":[{"name":"other","type":"int"}]}'
MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


@pytest.fixture(scope="module")
def registry(broker: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryProcess]:
    process = RegistryProcess(tmp_path_factory.mktemp("registry") / "log", broker.bootstrap)
    yield process
    process.end()


def client_of(process: RegistryProcess) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": process.url})


def post(url: str, path: str, body: Any) -> requests.Response:
    return requests.post(url + path, data=body if isinstance(body, bytes) else json.dumps(body), timeout=20)


def test_confluents_serializer_and_deserializer_work(registry: RegistryProcess) -> None:
    client = client_of(registry)
    context = SerializationContext("users", MessageField.VALUE)
    value = AvroSerializer(client, V1)({"name": "Ada"}, context)
    assert AvroDeserializer(client)(value, context) == {"name": "Ada"}
    newer = AvroSerializer(client, V2)({"name": "Bob", "age": 3}, context)
    assert AvroDeserializer(client, V1)(newer, context) == {"name": "Bob"}
    assert client.get_versions("users-value") == [1, 2]


def test_confluents_client_registers_finds_checks_and_deletes(registry: RegistryProcess) -> None:
    client = client_of(registry)
    schema_id = client.register_schema("things", Schema(V1, "AVRO"))
    assert client.register_schema("things", Schema(V1, "AVRO")) == schema_id
    assert client.get_schema(schema_id).schema_str == V1
    assert client.lookup_schema("things", Schema(V1, "AVRO")).version == 1
    assert client.test_compatibility("things", Schema(V2, "AVRO"))
    assert not client.test_compatibility("things", Schema(BROKEN, "AVRO"))
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema("things", Schema(BROKEN, "AVRO"))
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 409)
    assert client.test_compatibility("a-subject-to-be", Schema(V1, "AVRO"))
    assert client.get_contexts() == ["."]
    assert client.get_compatibility() == "BACKWARD"
    client.set_compatibility("things", "NONE")
    assert client.get_compatibility("things") == "NONE"
    client.register_schema("things", Schema(BROKEN, "AVRO"))
    assert client.delete_version("things", 2) == 2
    assert client.get_latest_version("things").version == 1
    assert client.delete_subject("things") == [1]
    assert client.delete_subject("things", permanent=True) == [1, 2]
    assert "things" not in client.get_subjects()


def test_lists_are_told_in_pages(registry: RegistryProcess) -> None:
    client = client_of(registry)
    for subject in ("pages-a", "pages-b", "pages-c"):
        client.register_schema(subject, Schema(V1, "AVRO"))
    client.register_schema("pages-b", Schema(V2, "AVRO"))
    assert client.get_subjects("pages-", offset=1, limit=1) == ["pages-b"]
    assert client.get_subjects(":*:pages-", offset=1) == ["pages-b", "pages-c"]
    assert (client.get_versions("pages-b", limit=1), client.get_versions("pages-b", offset=9)) == ([1], [])

    def listed(query: str) -> list[tuple[str, int]]:
        found = requests.get(f"{registry.url}/schemas?subjectPrefix=pages-&{query}", timeout=20).json()
        return [(each["subject"], each["version"]) for each in found]

    assert listed("offset=1&limit=2") == [("pages-b", 1), ("pages-b", 2)]
    assert listed("latestOnly=true&offset=1") == [("pages-b", 2), ("pages-c", 1)]
    refused = requests.get(registry.url + "/schemas?limit=some", timeout=20)
    assert (refused.status_code, refused.json()["message"]) == (400, "limit is 'some': write a whole number")
    assert requests.get(registry.url + "/subjects?offset=-1", timeout=20).status_code == 400


def test_lists_of_what_is_deleted_softly(registry: RegistryProcess) -> None:
    client = client_of(registry)
    for subject in ("soft-all", "soft-none", "soft-some"):
        client.register_schema(subject, Schema(V1, "AVRO"))
        client.register_schema(subject, Schema(V2, "AVRO"))
    client.delete_subject("soft-all")
    client.delete_version("soft-some", 1)

    def listed(path: str) -> Any:
        return requests.get(registry.url + path, timeout=20).json()

    only = "/subjects?subjectPrefix=soft-&deletedOnly=true"
    assert listed(only) == listed(only + "&deleted=true") == ["soft-all", "soft-some"]
    assert listed("/subjects/soft-some/versions?deleted=true&deletedOnly=true") == [1]
    assert listed("/subjects/soft-all/versions?deletedOnly=true&limit=1") == [1]
    assert listed("/subjects/soft-none/versions?deletedOnly=true") == []
    assert listed("/subjects/soft-never/versions?deletedOnly=true")["error_code"] == 40401
    every = listed("/schemas?subjectPrefix=soft-")
    assert [each["subject"] for each in every] == ["soft-none", "soft-none", "soft-some"]
    assert listed("/schemas?subjectPrefix=soft-&aliases=true&deletedOnly=true") == every
    assert listed("/schemas?subjectPrefix=soft-&ruleType=ENCRYPT") == []


def test_every_answer_is_json_of_the_media_type_also_to_an_unknown_path(registry: RegistryProcess) -> None:
    for method, path, status in (
        ("GET", "/", 200),
        ("GET", "/nowhere/at/all", 404),
        ("PUT", "/subjects", 405),
        ("GET", "/schemas/ids/x", 404),
        ("GET", "/schemas/ids/99999999999999999999", 404),
        ("GET", "/subjects/%00/versions/1", 404),
    ):
        answer = requests.request(method, registry.url + path, timeout=20)
        assert (path, answer.status_code) == (path, status)
        assert answer.headers["content-type"] == MEDIA_TYPE
        assert status == 200 or str(answer.json()["error_code"]).startswith(str(status))
    assert requests.get(registry.url + "/schemas/types", timeout=20).json() == ["AVRO"]
    assert requests.get(registry.url + "/mode", timeout=20).json() == {"mode": "READWRITE"}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, 400),
        (b"\xff\xfe", 400, 400),
        (b"[]", 400, 400),
        (b"[" * 100_000, 400, 400),
        ({}, 422, 42201),
        ({"schema": 5}, 422, 42201),
        ({"schema": {"type": "string"}}, 422, 42201),
        ({"schema": V1, "ruleSet": {"domainRules": [{"name": "encrypt"}]}}, 422, 42201),
        ({"schema": V1, "metadata": {"properties": {"owner": "me"}}}, 422, 42201),
        ({"schema": "{"}, 422, 42201),
        ({"schema": V1, "schemaType": "PROTOBUF"}, 422, 42201),
        ({"schema": V1, "references": [{"name": "x"}]}, 422, 42201),
        ({"schema": V1, "references": [{"name": "x", "subject": "none", "version": 1}]}, 422, 42201),
        (b" " * 1_000_000, 413, 413),
    ],
)
def test_bad_bodies_are_refused_with_confluents_codes(
    registry: RegistryProcess, body: Any, status: int, code: int
) -> None:
    answer = post(registry.url, "/subjects/bad/versions", body)
    assert (answer.status_code, answer.json()["error_code"]) == (status, code)


def test_subjects_with_odd_names_are_subjects(registry: RegistryProcess) -> None:
    for subject in ("with space", "a%b", "日本", ":.:ctx", "a/b.proto", "a+b"):
        quoted = quote(subject, safe="")
        assert post(registry.url, f"/subjects/{quoted}/versions", {"schema": V1}).status_code == 200
        assert subject in requests.get(registry.url + "/subjects", timeout=20).json()
        assert client_of(registry).get_versions(subject) == [1]


def test_a_slash_at_the_end_of_a_path_changes_nothing(registry: RegistryProcess) -> None:
    for path in ("/subjects", "/config", "/schemas/types"):
        plain, slashed = (
            requests.get(registry.url + path + end, timeout=20, allow_redirects=False) for end in ("", "/")
        )
        assert (slashed.status_code, slashed.json()) == (200, plain.json())


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/subjects/own/versions", {"schema": V1, "version": 3}),
        ("PUT", "/config/own", {"compatibility": "FULL", "normalize": True}),
    ],
)
def test_what_confluents_registry_has_beyond_this_one_is_refused_not_ignored(
    registry: RegistryProcess, method: str, path: str, body: dict[str, Any]
) -> None:
    answer = requests.request(method, registry.url + path, json=body, timeout=20)
    assert (answer.status_code, answer.json()["error_code"]) == (422, 42205)


def test_a_team_brings_its_schemas_with_their_ids(broker: DevCluster, tmp_path: Path) -> None:
    arguments = ("--topic", "brought_schemas")
    first = RegistryProcess(tmp_path / "first", broker.bootstrap, *arguments)
    brought = {"schema": V1, "id": 77, "version": 3}
    assert post(first.url, "/subjects/own/versions", brought).json()["error_code"] == 42205
    assert requests.put(first.url + "/mode/own", json={"mode": "IMPORT"}, timeout=20).json() == {
        "mode": "IMPORT"
    }
    assert post(first.url, "/subjects/own/versions", brought).json() == {"id": 77}
    assert post(first.url, "/subjects/own/versions", {"schema": V2, "id": 77}).json()["error_code"] == 42205
    assert post(first.url, "/subjects/own/versions", {"schema": V2, "id": 2**31}).status_code == 400
    assert requests.put(first.url + "/mode", json={"mode": "IMPORT"}, timeout=20).status_code == 422
    assert requests.delete(first.url + "/mode/own", timeout=20).json() == {"mode": "IMPORT"}
    assert requests.put(first.url + "/mode?force=true", json={"mode": "IMPORT"}, timeout=20).ok
    first.kill()
    second = RegistryProcess(tmp_path / "second", broker.bootstrap, *arguments)
    try:
        client = client_of(second)
        assert client.get_latest_version("own").version == 3
        assert requests.get(second.url + "/mode", timeout=20).json() == {"mode": "IMPORT"}
        assert requests.delete(second.url + "/mode", timeout=20).json() == {"mode": "IMPORT"}
        assert client.register_schema("another", Schema(V1, "AVRO")) == 77
    finally:
        second.end()


def test_many_clients_at_once_get_one_version_per_schema(registry: RegistryProcess) -> None:
    schemas = [
        json.dumps({"type": "enum", "name": "E", "symbols": [f"S{n}", "X"], "default": "X"}) for n in range(8)
    ]

    def register(schema: str) -> int:
        identifier: int = post(registry.url, "/subjects/crowd/versions", {"schema": schema}).json()["id"]
        return identifier

    with ThreadPoolExecutor(16) as pool:
        ids = list(pool.map(register, schemas * 5))
    assert ids[:8] * 5 == ids
    assert requests.get(registry.url + "/subjects/crowd/versions", timeout=20).json() == list(range(1, 9))


@pytest.mark.acceptance
def test_two_registries_on_one_topic_lose_no_schema(broker: DevCluster, tmp_path: Path) -> None:
    arguments = ("--topic", "shared_schemas")
    processes = [RegistryProcess(tmp_path / name, broker.bootstrap, *arguments) for name in ("one", "two")]
    schemas = [json.dumps({"type": "fixed", "name": "F", "size": size}) for size in range(1, 41)]
    # Neighbours go to different registries, and every fourth schema to both.
    wanted = [(number, number % 2) for number in range(40)] + [(number, 1) for number in range(0, 40, 4)]
    assert requests.put(f"{processes[0].url}/config", data='{"compatibility":"NONE"}', timeout=20).ok

    def register(wish: tuple[int, int]) -> tuple[str, int]:
        schema = schemas[wish[0]]
        answer = post(processes[wish[1]].url, "/subjects/shared/versions", {"schema": schema})
        assert answer.status_code == 200, answer.text
        return schema, answer.json()["id"]

    try:
        with ThreadPoolExecutor(16) as pool:
            answered = set(pool.map(register, sorted(wanted)))
        assert len(answered) == len(schemas)
        processes[1].kill()
        processes.append(RegistryProcess(tmp_path / "three", broker.bootstrap, *arguments))
        for process in (processes[0], processes[2]):
            client = client_of(process)
            assert {(client.get_schema(each).schema_str, each) for _, each in answered} == answered
            assert client.get_versions("shared") == list(range(1, len(schemas) + 1))
    finally:
        for process in processes:
            process.end()


def test_the_topic_is_compacted_with_one_partition_and_confluents_records(
    broker: DevCluster, registry: RegistryProcess
) -> None:
    schema_id = post(registry.url, "/subjects/stored/versions", {"schema": V1}).json()["id"]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    resource = ConfigResource(ConfigResource.Type.TOPIC, "_schemas")
    assert admin.describe_configs([resource])[resource].result()["cleanup.policy"].value == "compact"
    assert len(admin.list_topics("_schemas", timeout=10).topics["_schemas"].partitions) == 1
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "x", "auto.offset.reset": "earliest"}
    )
    consumer.assign([TopicPartition("_schemas", 0, 0)])
    _, end = consumer.get_watermark_offsets(TopicPartition("_schemas", 0), timeout=10)
    records: dict[Any, Any] = {
        message.key(): message.value() for message in consumer.consume(end, timeout=10)
    }
    consumer.close()
    value = json.loads(records[b'{"keytype":"SCHEMA","subject":"stored","version":1,"magic":1}'])
    assert value == {"subject": "stored", "version": 1, "id": schema_id, "schema": V1, "deleted": False}


def test_a_restart_replays_everything(broker: DevCluster, tmp_path: Path) -> None:
    arguments = ("--topic", "restarted_schemas")
    first = RegistryProcess(tmp_path / "first", broker.bootstrap, *arguments)
    schema_id = client_of(first).register_schema("kept", Schema(V1, "AVRO"))
    client_of(first).set_compatibility("kept", "FULL")
    first.kill()
    second = RegistryProcess(tmp_path / "second", broker.bootstrap, *arguments)
    try:
        client = client_of(second)
        assert client.get_latest_version("kept").schema_id == schema_id
        assert client.get_compatibility("kept") == "FULL"
    finally:
        assert second.stop() == 0


def test_an_offline_registry_serves_mirrored_topics_read_only(broker: DevCluster, tmp_path: Path) -> None:
    live = RegistryProcess(tmp_path / "live", broker.bootstrap, "--topic", "dc-east._schemas")
    offline = RegistryProcess(
        tmp_path / "offline", broker.bootstrap, "--replay-topics", "dc-east._schemas,dc-none._schemas"
    )
    try:
        schema_id = client_of(live).register_schema("pageviews-value", Schema(V1, "AVRO"))
        client = client_of(offline)
        eventually(lambda: "dc-east.pageviews-value" in client.get_subjects(), what="the mirrored subject")
        assert client.get_schema(schema_id).schema_str == V1
        with pytest.raises(SchemaRegistryError) as refused:
            client.register_schema("dc-east.pageviews-value", Schema(V2, "AVRO"))
        assert refused.value.error_code == 42205
    finally:
        live.end()
        offline.end()


def test_it_starts_before_its_brokers_and_survives_their_restart(
    dev_cluster: Callable[..., DevCluster], tmp_path: Path
) -> None:
    broker_address, address = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    url = f"http://{address}"
    options = ["--bootstrap", broker_address, "--listen", address]
    command = [sys.executable, "-m", "headrace.registry.command", *options]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log, stdout=log)
    try:
        eventually(lambda: _status(url + "/subjects") == 503, what="an answer before the brokers are up")
        data = tmp_path / "data"
        cluster = dev_cluster(listen=broker_address, data=data)
        eventually(lambda: _status(url + "/subjects") == 200, timeout_s=60, what="readiness")
        assert post(url, "/subjects/s/versions", {"schema": V1}).status_code == 200
        assert cluster.stop() == 0
        assert requests.get(url + "/subjects", timeout=20).json() == ["s"], "reads go on from memory"
        dev_cluster(listen=broker_address, data=data)
        eventually(
            lambda: post(url, "/subjects/s/versions", {"schema": V2}).status_code == 200,
            timeout_s=90,
            what="a write after the brokers' restart",
        )
        assert requests.get(url + "/subjects/s/versions", timeout=20).json() == [1, 2]
    finally:
        process.terminate()
        assert process.wait(20) == 0


def _status(url: str) -> int:
    try:
        return requests.get(url, timeout=20).status_code
    except requests.ConnectionError:
        return 0
