"""What tests of loads share: a registry of fixed schemas, events of known offsets, and the account of a warehouse."""

from __future__ import annotations

import io
import json
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import confluent_kafka
import fastavro
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.load import tables

HEADER = {
    "type": "record",
    "name": "Header",
    "fields": [
        {"name": "time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "producer", "type": "string"},
        {"name": "sequence", "type": "long"},
    ],
}
EVENT = {
    "type": "record",
    "name": "Event",
    "fields": [{"name": "header", "type": HEADER}, {"name": "path", "type": "string"}],
}
EVENT_ID = 7
GARBAGE = b"no event at all"


def framed(schema_id: int, schema: dict[str, Any], event: dict[str, Any]) -> bytes:
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, fastavro.parse_schema(json.loads(json.dumps(schema))), event)
    return b"\x00" + struct.pack(">I", schema_id) + sink.getvalue()


def event(sequence: int) -> dict[str, Any]:
    return {
        "header": {"time": 1_700_000_000_000 + sequence, "producer": "p", "sequence": sequence},
        "path": "/",
    }


@contextmanager
def schemas_served(schemas: dict[int, dict[str, Any]], newest: int | None = None) -> Iterator[str]:
    """Serve schemas by id as a registry does; the dictionary may grow meanwhile. Gives the URL.

    `newest` is the id of every subject's latest version; without it there are no subjects.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _, folder, number = urlsplit(self.path).path.rpartition("/schemas/ids/")
            schema_id = int(number) if folder else newest
            schema = None if schema_id is None else schemas.get(schema_id)
            found = {"schema": json.dumps(schema), "id": schema_id}
            known = found if schema else {"error_code": 40403, "message": "unknown"}
            body = json.dumps(known).encode()
            self.send_response(200 if schema else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(20)


def publish(bootstrap: str, topic: str, partitions: int, count: int, *, garbage_every: int = 0) -> None:
    """Publish `count` values round robin; every `garbage_every`-th does not decode."""
    failed: list[Any] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in range(count):
        is_garbage = garbage_every and number % garbage_every == 0
        value = GARBAGE if is_garbage else framed(EVENT_ID, EVENT, event(number))
        producer.produce(
            topic,
            value,
            partition=number % partitions,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(30) == 0
    assert failed == []


def account(warehouse: Path) -> Counter[tuple[int, int]]:
    """Count how often each (partition, offset) is in the tables, as a row or as a dead letter."""
    catalog = tables.open_catalog(str(warehouse))
    found: Counter[tuple[int, int]] = Counter()
    for name in ("pageviews", tables.DEAD_LETTER):
        rows = (
            tables.load_table(catalog, name).scan(selected_fields=("_topic_partition", "_offset")).to_arrow()
        )
        found.update(
            zip(rows.column("_topic_partition").to_pylist(), rows.column("_offset").to_pylist(), strict=True)
        )
    return found


def every_offset_once(partitions: int, count: int) -> Counter[tuple[int, int]]:
    return Counter((number % partitions, number // partitions) for number in range(count))
