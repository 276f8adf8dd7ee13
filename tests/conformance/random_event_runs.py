"""What a random session does to the brokers themselves: new segments, compaction, retention, moves, restarts.

Each event is over on a broker, and its background threads have nothing left to do, before the next step: what they
would do meanwhile is a matter of when. Beyond the lists of `random_runs`, these may differ: where segments end in a log
that was moved, and index entries of logs that were moved, cleaned or recovered, for Kafka writes one a copied chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kafka_oracle import KafkaBroker
from kazoo.client import KazooClient
from processes import eventually
from random_configs import LONG_MAX
from random_runs import Broker, RandomSession, comparable_records, differing_files
from random_steps import Clean, Event, Fill, Move, Restart, Retire, Roll, Step
from sessions import (
    CREATE_TOPICS,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    PRODUCE,
    TIMESTAMP_MS,
    Message,
    _differences,
    produce_message,
)

from headrace.broker.wire.batches import Record, encode_batch

DELETE_RECORDS, ALTER_CONFIGS, ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS = 21, 33, 34, 35
TOPIC, BROKER = 2, 4
BROKER_ID = "1"
# A batch without keys for a compacted topic often has another fault, too; which one is told first is a listed deviation.
REFUSED = (10, 18, 32, 87)
DIRECTORIES = ("a", "b")
LARGE, SMALL = "100000000", "100"
# Nothing is compacted, and nothing expires, but what a step wants; and what it wants happens soon.
SETTINGS = {
    "log.cleaner.min.compaction.lag.ms": LONG_MAX,
    "log.cleaner.backoff.ms": "100",
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "200",
    "zookeeper.session.timeout.ms": "3000",
    # Kafka dies of a lack of memory when it makes new cleaners beside the old ones with the default.
    "log.cleaner.dedupe.buffer.size": "8000000",
}
# What no configuration of all topics changes.
PLAIN = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "max.message.bytes": "100000",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": LONG_MAX,
    "message.timestamp.after.max.ms": LONG_MAX,
    "min.insync.replicas": "1",
    "segment.bytes": LARGE,
}
KEYED = bytes(encode_batch([Record(0, TIMESTAMP_MS, b"key", b"value", [])]))

NO_FAULT = {"error_code": "refused", "record_errors": []}


class EventfulSession(RandomSession):
    """One broker's side of a session with events."""

    files_tries = 80

    def __init__(self, znodes: KazooClient, broker: Broker, prefix: str) -> None:
        super().__init__(broker, prefix)
        self._znodes = znodes
        self._broker = broker
        self._helpers: set[str] = set()
        self._moved: set[str] = set()
        self._cleaned: set[str] = set()
        self._is_recovered = False

    def perform(self, step: Step | Event) -> tuple[str, Any]:
        if isinstance(step, Step):
            label, answer = super().perform(step)
            if step.key == DELETE_RECORDS and isinstance(answer, dict):
                self._wait_for_retention()
            return label, answer
        try:
            return type(step).__name__, self._carry_out(step)
        except AssertionError as error:
            return type(step).__name__, str(error)

    def _carry_out(self, step: Event) -> Any:
        if isinstance(step, Restart):
            return self._restart(is_killed=step.is_killed)
        name = self._filled(step.topic)
        if isinstance(step, Roll):
            return self._roll(name, step.partition)
        if isinstance(step, Fill):
            return self._fill(name, step)
        if isinstance(step, Clean):
            return self._clean(name, step.configs)
        if isinstance(step, Retire):
            return self._retire(name, step.configs)
        return self._move(name, step)

    # Events

    def _roll(self, name: str, partition: int) -> Any:
        codes = [self._alter(name, {"segment.bytes": SMALL, "max.message.bytes": "100000"})]
        answer = self._append(name, partition, KEYED)
        return [*codes, answer, self._alter(name, {"segment.bytes": LARGE})]

    def _fill(self, name: str, step: Fill) -> Any:
        limits = {key: PLAIN[key] for key in PLAIN if key not in ("cleanup.policy", "compression.type")}
        answers = [self._alter(name, limits)]
        for group in step.groups:
            answers += [self._append(name, step.partition, records) for records in group]
            answers.append(self._roll(name, step.partition))
        return answers

    def _append(self, name: str, partition: int, records: bytes) -> Any:
        answer = self.look(PRODUCE, 8, produce_message(name, records, partition=partition))
        return self.comparable(answer)

    def _clean(self, name: str, configs: dict[str, str]) -> Any:
        wanted = {"min.cleanable.dirty.ratio": "0", "min.compaction.lag.ms": "0", **configs}
        code = self._alter(name, wanted)
        if code:
            return code
        folders = [f"{name}-{p['partition_index']}" for p in self._described(name)["partitions"]]
        eventually(lambda: all(map(self._is_cleaned, folders)), what="cleaning")
        self._alter(name, {"min.compaction.lag.ms": LONG_MAX})
        self._cleaned.update(folders)
        return [self._first_dirty_offset(self._folder(folder)) for folder in sorted(folders)]

    def _is_cleaned(self, folder: str) -> bool:
        path = self._folder(folder)
        try:
            sizes = {int(file.stem): file.stat().st_size for file in path.glob("*.log")}
        except FileNotFoundError:
            return False
        clean, active = self._clean_offset(path), max(sizes)
        return clean >= active or not any(size for base, size in sizes.items() if clean <= base < active)

    def _folder(self, folder: str) -> Path:
        (found,) = self._broker.home.glob(f"*/{folder}")
        return found

    def _first_dirty_offset(self, folder: Path) -> int:
        """Kafka puts down where the log starts when that is later, too."""
        return max(self._clean_offset(folder), *(int(file.stem) for file in sorted(folder.glob("*.log"))[:1]))

    @staticmethod
    def _clean_offset(folder: Path) -> int:
        path = folder.parent / "cleaner-offset-checkpoint"
        topic, _, partition = folder.name.rpartition("-")
        lines = path.read_text().splitlines()[2:] if path.exists() else []
        return next((int(end) for t, p, end in map(str.split, lines) if (t, p) == (topic, partition)), -1)

    def _retire(self, name: str, configs: dict[str, str]) -> Any:
        code = self._alter(name, configs)
        if code == 0:
            self._wait_for_retention()
            code = self._alter(name, {"retention.ms": "-1", "retention.bytes": "-1"})
        return code

    def _move(self, name: str, step: Move) -> Any:
        code = self._alter(name, {"segment.bytes": LARGE})
        wanted = [{"name": name, "partitions": [step.partition]}]
        target = self._broker.home / step.directory.name
        answer = self.look(ALTER_REPLICA_LOG_DIRS, 2, {"dirs": [{"path": str(target), "topics": wanted}]})
        appended = self._append(name, step.partition, step.records)
        folder = f"{name}-{step.partition}"
        moved = answer["results"][0]["partitions"][0]["error_code"] == 0
        if moved:
            eventually(lambda: self._places(folder) == [target.name], what="the move")
            self._moved.add(folder)
        return code, answer, appended, self._places(folder) if moved else None

    def _places(self, folder: str) -> list[str]:
        """The data directories with this partition, copies included and what is deleted not."""
        found = self._broker.home.glob(f"*/{folder}*")
        return sorted(d.parent.name for d in found if not d.name.endswith("-delete"))

    def _restart(self, *, is_killed: bool) -> Any:
        names = [*self.names, *self._helpers]
        before = {name: self._partitions(name) for name in names}
        self.close()
        if is_killed:
            self._is_recovered = True
            self._broker.process.kill()
            self._broker.process.wait()
            self._forget_broker()
        else:
            self._broker.stop()
        self._broker.start()
        if isinstance(self._broker, KafkaBroker):
            self._broker.wait_until_serving()
        eventually(lambda: {name: self._partitions(name) for name in names} == before, what="the old state")
        eventually(self._grants_producer_ids, what="producer ids")
        return self._broker.process.poll()

    def _forget_broker(self) -> None:
        """What ZooKeeper would do a session time-out later."""
        chroot = "kafka" if isinstance(self._broker, KafkaBroker) else "headrace"
        for path in (f"/{chroot}/brokers/ids/{BROKER_ID}", f"/{chroot}/controller"):
            self._znodes.delete(path)

    def _partitions(self, name: str) -> list[tuple[int, int]]:
        """Each with what ListOffsets says of it, when the topic is there."""
        found = [p["partition_index"] for p in self._described(name)["partitions"]]
        wanted = [{"partition_index": p, "timestamp": -1} for p in found]
        answer = self.look(
            LIST_OFFSETS, 7, {"replica_id": -1, "topics": [{"name": name, "partitions": wanted}]}
        )
        partitions = answer["topics"][0]["partitions"] if found else []
        return sorted((p["partition_index"], p["error_code"]) for p in partitions)

    def _grants_producer_ids(self) -> bool:
        message: Message = {"transactional_id": None, "transaction_timeout_ms": 1000}
        return bool(self.look(INIT_PRODUCER_ID, 4, message)["error_code"] == 0)

    # Means

    def _alter(self, name: str, configs: dict[str, str]) -> int:
        entries = [{"name": key, "config_operation": 0, "value": value} for key, value in configs.items()]
        resource = {"resource_type": TOPIC, "resource_name": name, "configs": entries}
        answer = self.look(INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
        code = int(answer["responses"][0]["error_code"])
        if code == 0:
            self._wait_until_configured()
        return code

    def _helper(self, name: str, configs: dict[str, str]) -> str:
        """A topic of the script's own."""
        name = self._named(name)
        if name not in self._helpers:
            entries = [{"name": key, "value": value} for key, value in (PLAIN | configs).items()]
            topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "configs": entries}
            self.look(CREATE_TOPICS, 5, {"topics": [topic], "timeout_ms": 10_000})
            self._wait_until_led(name, 1)
            self._helpers.add(name)
        return name

    def _probe(self) -> str:
        return self._helper("probe", {})

    def _wait_for_retention(self) -> None:
        """Until it has passed over all logs: records that are due have gone.

        Kafka looks at one log after the other, so that a second time is needed, and the cleaner's thread looks at those
        that are compacted, too.
        """
        canaries = [
            self._helper(f"canary-{number}", {"cleanup.policy": policy, "retention.ms": "1"})
            for number, policy in enumerate(("delete", "compact,delete"))
        ]
        for _ in range(2 if isinstance(self._broker, KafkaBroker) else 1):
            for name in canaries:
                self._append(name, 0, KEYED)
            eventually(lambda: all(map(self._is_empty, canaries)), what="retention")

    def _is_empty(self, name: str) -> bool:
        return self._offset(name, 0, -2) == self._offset(name, 0, -1)

    def _offset(self, name: str, partition: int, timestamp: int) -> int:
        wanted = {"name": name, "partitions": [{"partition_index": partition, "timestamp": timestamp}]}
        answer = self.look(LIST_OFFSETS, 7, {"replica_id": -1, "topics": [wanted]})
        return int(answer["topics"][0]["partitions"][0]["offset"])

    # What may differ

    def comparable(self, value: Any, name: str = "") -> Any:
        if name == "partition_responses":
            value = [p if p["error_code"] not in REFUSED else p | NO_FAULT for p in value]
        return super().comparable(value, name)

    def _own(self, step: Step, message: Message, comparable: Any) -> Any:
        comparable = super()._own(step, message, comparable)
        if step.key != DESCRIBE_LOG_DIRS or not isinstance(comparable, dict):
            return comparable
        # Which partition goes where when a topic is made is chance.
        found = []
        for result in comparable["results"]:
            for topic in result["topics"]:
                for partition in topic["partitions"]:
                    if f"{topic['name']}-{partition['partition_index']}" in self._moved:
                        partition["partition_size"] = "not compared"
                    found.append((topic["name"], sorted(partition.items(), key=str)))
        return {**comparable, "results": [sorted(found, key=str), len(comparable["results"])]}

    def logs_differ(self, ours: Path, theirs: Path) -> list[str]:
        if ours.name not in self._moved:
            patterns = ["*.log", "leader-epoch-checkpoint"]
            if ours.name not in self._cleaned and not self._is_recovered:
                patterns.append("*.index")
            return differing_files(ours, theirs, patterns)
        topic, _, partition = ours.name.rpartition("-")
        start = self._offset(topic, int(partition), -2)
        a, b = (_contents_from(folder, start) for folder in (ours, theirs))
        found = [f"{ours.name}{p}: headrace {x!r}, Kafka {y!r}" for p, x, y in _differences(a, b)]
        return found + differing_files(ours, theirs, ["leader-epoch-checkpoint"])

    def clean_up(self) -> None:
        resources = [
            {"resource_type": BROKER, "resource_name": name, "configs": []} for name in ("", BROKER_ID)
        ]
        for resource in resources:
            self.look(ALTER_CONFIGS, 2, {"resources": [resource]})
        self._wait_until_configured()
        self.delete_topics([*self.names, *self._helpers])


def _contents_from(folder: Path, start: int) -> Sequence[Any]:
    """The batches of all segments that end at or after an offset."""
    batches = [b for file in sorted(folder.glob("*.log")) for b in comparable_records(file.read_bytes())]
    return [b for b in batches if b[0]["base_offset"] + b[0]["last_offset_delta"] >= start]
