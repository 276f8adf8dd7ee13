"""Random sessions with events: the steps of `random_sessions`, and what they do to the brokers themselves between them.

Nothing is drawn whose outcome depends on when a background thread comes by; see `random_event_runs` for how the rest waits.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from random_configs import BAD_VALUES, LONG_MAX
from random_event_runs import BROKER, BROKER_ID, DIRECTORIES
from random_records import random_records, sound_batches
from random_sessions import ALTER_CONFIGS, Generator
from random_steps import Clean, Event, Fill, LogDir, Move, Name, Restart, Retire, Roll, Step
from sessions import DESCRIBE_CONFIGS, FETCH, INCREMENTAL_ALTER_CONFIGS, Message

# Each of these takes a second or more.
EVENTS_MAX, RESTARTS_MAX = 5, 2
RESTART_SHARE = 0.07
FIRST_PRODUCER_ID = 9000
HOUR_MS = 3_600_000
BROKER_VALUES: dict[str, tuple[str, ...]] = {
    "log.segment.bytes": ("300", "1000", "100000000"),
    "log.index.interval.bytes": ("0", "4096"),
    "log.index.size.max.bytes": ("100", "10485760"),
    "message.max.bytes": ("300", "1000", "100000"),
    "compression.type": ("producer", "uncompressed", "gzip", "zstd"),
    "log.message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "log.message.timestamp.before.max.ms": ("1000000", LONG_MAX),
    "log.message.timestamp.after.max.ms": ("1000000", LONG_MAX),
    "log.message.downconversion.enable": ("true", "false"),
    "log.cleanup.policy": ("delete", "compact", "compact,delete"),
    "log.retention.ms": ("-1",),
    "log.retention.bytes": ("-1",),
    "log.roll.ms": ("100000", LONG_MAX),
    "log.roll.jitter.ms": ("0",),
    "log.flush.interval.messages": ("1", "100"),
    "log.flush.interval.ms": ("1000",),
    "log.segment.delete.delay.ms": ("60000",),
    "log.preallocate": ("false",),
    "min.insync.replicas": ("1", "2"),
    "unclean.leader.election.enable": ("true", "false"),
    "log.cleaner.delete.retention.ms": ("0", "86400000"),
    "log.cleaner.min.cleanable.ratio": ("0.1", "1"),
    "log.cleaner.max.compaction.lag.ms": (LONG_MAX,),
    "log.cleaner.min.compaction.lag.ms": (LONG_MAX,),
    "log.cleaner.threads": ("1", "2", "5"),
    "log.cleaner.backoff.ms": ("100", "200"),
    "log.cleaner.io.max.bytes.per.second": ("1000000",),
    "log.cleaner.dedupe.buffer.size": ("8000000", "4000000"),
    "max.connections": ("1000",),
    "max.connections.per.ip": ("1000",),
    "producer.id.expiration.ms": ("86400000", "100000000000"),
}
# A value of these that is bad for a key of its own would be good enough to start a background thread.
GUARDED = (
    "retention",
    "compaction.lag",
    "max.connections",
    "backoff",
    "io.max",
    "dedupe",
    "threads",
    "expiration",
)


class EventGenerator(Generator):
    """Draws steps and events, with `restarts` one or two of them, too."""

    def __init__(self, rng: Random, now_ms: int, *, restarts: bool) -> None:
        super().__init__(rng, now_ms)
        # Producers that were silent for too long are forgotten by and by.
        if self._style.has_producers or self._chance(0.4):
            self._style = self._style._replace(base_ms=now_ms - HOUR_MS // 4)
        self._restarts = [Restart(is_killed=self._chance(0.5)) for _ in range(self._one(1, RESTARTS_MAX))]
        if not restarts:
            self._restarts = []
        # Where a log starts is forgotten by a kill, unless it was written down in time.
        self._keeps_starts = not any(restart.is_killed for restart in self._restarts)
        self._events_left = EVENTS_MAX
        self._fills = 0
        self._moved: set[Name] = set()

    def turn(self) -> list[Any]:
        if self._restarts and self._chance(RESTART_SHARE):
            return [self._restarts.pop()]
        return super().turn()

    def closing(self) -> list[Any]:
        return self._restarts

    def _actions(self) -> list[tuple[Callable[[], Any], int]]:
        steps = [
            (draw, weight if self._keeps_starts or draw != self._delete_records else 0)
            for draw, weight in super()._actions()
        ]
        return [
            *steps,
            (self._roll, 6),
            (self._clean, 8),
            (self._retire, 6),
            (self._move, 3),
            (self._alter_broker, 5),
            (self._describe_broker, 4),
        ]

    def _version(self, key: int) -> int:
        # For older clients Kafka converts what follows a cleaned batch without records twice, a listed deviation.
        return max(4, super()._version(key)) if key == FETCH else super()._version(key)

    def _value(self, key: str) -> str | None:
        if any(part in key for part in GUARDED):
            return LONG_MAX if "compaction.lag" in key else self._one("-1", LONG_MAX)
        if key == "cleanup.policy":
            return str(self._one("delete", "compact", "compact,delete"))
        return super()._value(key)

    # Events

    def _costly(self, event: Event) -> Step | Event:
        self._events_left -= 1
        return event if self._events_left >= 0 else self._produce()

    def _known_name(self) -> Name:
        """Mostly the first, so that events meet."""
        return Name(self._one(self._names[0], self._names[0], *self._names))

    def _delete_records(self) -> Any:
        self._events_left -= 1
        return super()._delete_records() if self._events_left >= 0 else self._produce()

    def _roll(self) -> Event:
        return Roll(self._known_name(), self._one(0, 0, 0, 1))

    def _filled(self, event: Clean | Retire) -> Any:
        """The event, mostly with something to do."""
        if event.topic in self._moved or self._events_left <= 0:
            return self._produce()
        self._events_left -= 1
        self._fills += 1
        partition, producer_id = self._one(0, 0, 0, 1), FIRST_PRODUCER_ID + self._fills
        groups = [
            sound_batches(self._rng, self._style, producer_id + 100 * number, self._one(1, 3, 6))
            for number in range(self._one(0, 1, 2, 3))
        ]
        return [Fill(event.topic, partition, groups), event] if groups else event

    def _clean(self) -> Any:
        configs = {
            "cleanup.policy": self._one("compact", "compact,delete"),
            "delete.retention.ms": self._one("0", "86400000"),
        }
        return self._filled(Clean(self._known_name(), configs))

    def _retire(self) -> Any:
        bounds = {"retention.ms": self._one("1", str(HOUR_MS))}
        if not self._style.packs and self._chance(0.6):
            bounds = {"retention.bytes": self._one("0", "1", "500", "1000", "3000")}
        configs = {"cleanup.policy": self._one("delete", "delete", "compact,delete"), **bounds}
        return self._filled(Retire(self._known_name(), configs))

    def _move(self) -> Step | Event:
        name, partition = self._known_name(), self._one(0, 0, 0, 1, 9)
        directory = LogDir(self._one(*DIRECTORIES, *DIRECTORIES, *DIRECTORIES, "nowhere"))
        records = random_records(self._rng, self._style, self._sequences, (name, partition), 8)
        if self._events_left > 0:
            self._moved.add(name)
        return self._costly(Move(name, partition, directory, records))

    # The broker's configuration

    def _broker_value(self, key: str) -> str | None:
        if not any(part in key for part in GUARDED) and self._chance(0.08):
            bad: str | None = self._one(None, *BAD_VALUES)
            return bad
        values = BROKER_VALUES[key]
        if key == "log.message.timestamp.type" and not self._style.append_time:
            values = values[:1]
        if key == "compression.type" and not self._style.packs:
            values = values[:2]
        if key == "log.segment.bytes" and (self._style.packs or self._style.has_producers):
            values = values[2:]
        if key.startswith(("log.roll", "log.index.size")) and self._style.has_producers:
            values = values[-1:]
        return str(self._rng.choice(values))

    def _broker_name(self) -> str:
        return str(self._rng.choices(("", BROKER_ID, "2", "x"), (20, 20, 1, 1))[0])

    def _alter_broker(self) -> Step:
        is_incremental = self._chance(0.7)
        configs = []
        for key in self._rng.sample(tuple(BROKER_VALUES), self._one(1, 1, 2, 3)):
            config: Message = {"name": key, "value": self._broker_value(key)}
            if is_incremental:
                config["config_operation"] = self._rng.choices((0, 1), (3, 1))[0]
            configs.append(config)
        resource = {"resource_type": BROKER, "resource_name": self._broker_name(), "configs": configs}
        api = INCREMENTAL_ALTER_CONFIGS if is_incremental else ALTER_CONFIGS
        return self._step(api, {"resources": [resource], "validate_only": self._chance(0.15)})

    def _describe_broker(self) -> Step:
        keys = self._rng.sample(tuple(BROKER_VALUES), 4)
        name = self._broker_name()
        resource = {"resource_type": BROKER, "resource_name": name, "configuration_keys": keys}
        message = {
            "resources": [resource],
            "include_synonyms": self._chance(0.7),
            "include_documentation": False,
        }
        return self._step(DESCRIBE_CONFIGS, message)
