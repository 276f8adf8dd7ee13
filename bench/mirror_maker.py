"""MirrorMaker 2 as a process of its own, between two brokers: what a mirror is measured beside.

It is tuned for throughput as its users are told to: a task for each partition, fetches of megabytes, batches as large as a
broker takes. Heartbeats, checkpoints and the sync of configurations and ACLs are off, as headrace copies messages alone here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psutil

from bench.apache_kafka import mirror_maker_command
from bench.contest import jvm_options, running
from bench.peers import Peer

SETTINGS = {
    "clusters": "source,target",
    "source->target.enabled": "true",
    "source->target.topics": "warm,bench",
    "target->source.enabled": "false",
    "replication.factor": "1",
    "offset-syncs.topic.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "config.storage.replication.factor": "1",
    "emit.heartbeats.enabled": "false",
    "emit.checkpoints.enabled": "false",
    "sync.topic.configs.enabled": "false",
    "sync.topic.acls.enabled": "false",
    "offset.lag.max": "100000",
    "source.consumer.max.poll.records": "10000",
    "source.consumer.fetch.max.bytes": "52428800",
    "source.consumer.max.partition.fetch.bytes": "8388608",
    "source.consumer.receive.buffer.bytes": "-1",
    "target.producer.batch.size": "1000000",
    "target.producer.linger.ms": "20",
    "target.producer.buffer.memory": "134217728",
    "target.producer.send.buffer.bytes": "-1",
    # It is held still for some seconds, and must not be taken for dead.
    "target.session.timeout.ms": "60000",
}


@contextlib.contextmanager
def mirror_maker(
    jars: Path, own_jars: Path, data: Path, source: Peer, target: Peer, tasks: int
) -> Iterator[psutil.Process]:
    """One MirrorMaker 2 that copies the topics `warm` and `bench`; it serves once copies arrive."""
    settings = {
        **SETTINGS,
        "tasks.max": str(tasks),
        "source.bootstrap.servers": source.bootstrap,
        "target.bootstrap.servers": target.bootstrap,
    }
    config = data / "mm2.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    options = jvm_options(data / "mirror-maker.log")
    with running(mirror_maker_command(jars, own_jars, config, options), data / "output.log") as process:
        yield psutil.Process(process.pid)
