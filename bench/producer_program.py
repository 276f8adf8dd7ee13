"""What the cells of the producer run in a process of its own: events published by a client, and what it took.

    python -m bench.producer_program instrumented|bare BOOTSTRAP REGISTRY TOPIC EVENTS

Prints JSON: seconds and CPU seconds of all threads, from the first event to the last acknowledgement (of the instrumented
producer to its closing account), what is before left out; bytes of the values, and the peak of resident memory in MiB.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any

from confluent_kafka import Producer as KafkaProducer

from headrace.events.avro_schemas import schema_text
from headrace.producer import Producer
from headrace.producer.client import DEFAULTS
from headrace.producer.stream import Encoder

SETTINGS: dict[str, Any] = {"linger.ms": 20}
HEADER = {"server": "web-1", "service": "shop", "producer": "8f14e45f-ceea-467f-a0d6-1f3d9a3f2a11"}
VIEW = {
    "address": "198.51.100.7",
    "user": None,
    "method": "GET",
    "path": "/articles/2026/headraces-and-tailraces",
    "protocol": "HTTP/1.1",
    "status": 200,
    "size": 18_234,
    "referrer": "https://example.org/articles",
    "agent": "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko",
    "logged_at": 1_700_000_000_000,
}


def instrumented(bootstrap: str, registry: str, topic: str, events: int) -> tuple[float, float]:
    """Publish by the library, each event from its fields; return when it began, by the clock and in CPU seconds."""
    producer = Producer(
        bootstrap=bootstrap,
        registry_url=registry,
        schemas={topic: schema_text("page_view")},
        server=HEADER["server"],
        service=HEADER["service"],
        datacenter="bench",
        client_config=SETTINGS,
    )
    assert producer.wait_until_opened(seconds_max=30)
    begun = time.monotonic(), time.process_time()
    for _ in range(events):
        producer.send(topic, VIEW)
    counts = producer.close()[topic]
    assert counts.acknowledged == events, counts
    return begun


def bare(bootstrap: str, _registry: str, topic: str, events: int) -> tuple[float, float]:
    """Publish the same number of values of the same size, encoded beforehand, by the client alone."""
    client = KafkaProducer({**DEFAULTS, **SETTINGS, "bootstrap.servers": bootstrap})
    client.list_topics(topic, timeout=30)
    value = encoded()
    begun = time.monotonic(), time.process_time()
    for _ in range(events):
        while True:
            try:
                client.produce(topic, value=value)
                break
            except BufferError:
                client.poll(0.002)
    assert client.flush(120) == 0
    return begun


def encoded() -> bytes:
    header: dict[str, Any] = {**HEADER, "time": 1_700_000_000_000, "sequence": 1_000}
    return Encoder(schema_text("page_view"), 1).encode({"header": header, **VIEW})


def main() -> None:
    kind, bootstrap, registry, topic, events = sys.argv[1:]
    publish = instrumented if kind == "instrumented" else bare
    begun, begun_cpu = publish(bootstrap, registry, topic, int(events))
    found = {
        "seconds": time.monotonic() - begun,
        "cpu_seconds": time.process_time() - begun_cpu,
        "bytes": len(encoded()) * int(events),
        "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
