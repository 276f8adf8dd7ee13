"""Topic configurations that are kept, checked and described as Apache Kafka's, and change nothing about a log.

The replicas under a throttle, which concern those that bring them; the message format, which 3.9 itself passes over; and
the older name of two timestamp bounds, which sets those (`config.topics.TOPIC_ALIASES`). Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.broker.config.keys import LONG_MAX, ConfigurationError, Key

_REPLICAS = re.compile(r"|\*|\s*\d+:\d+\s*(,\s*\d+:\d+\s*)*")
_VERSION = re.compile(
    r"(0\.8\.[0-2]|0\.9\.0|0\.10\.[0-2]|0\.11\.0|1\.[01]|2\.[0-8]|3\.[0-9]|4\.0)(\.\d+)*(-IV\d+)?"
)


@dataclass(frozen=True, slots=True)
class InertConfig:
    """A topic configuration without effect on logs: `pattern` is what its text must match, `wanted` says so to a person."""

    key: Key
    default: str
    pattern: re.Pattern[str]
    wanted: str

    def check(self, name: str, text: str) -> None:
        """Raises ConfigurationError for a value that Kafka refuses, too."""
        self.key.parse(name, text)
        if not self.pattern.fullmatch(text.strip()):
            raise ConfigurationError(name, text, self.wanted)


def _throttled(whose: str) -> InertConfig:
    key = Key(
        type="LIST",
        doc=f"The {whose} replicas whose replication is throttled: partition:broker, or * for all.",
    )
    return InertConfig(key, "", _REPLICAS, "*, or a comma-separated list of partition:broker")


INERT_TOPIC_CONFIGS = {
    "leader.replication.throttled.replicas": _throttled("leading"),
    "follower.replication.throttled.replicas": _throttled("following"),
    "message.format.version": InertConfig(
        Key(
            type="STRING",
            doc="Passed over: new batches have format 2.",
            synonyms=("log.message.format.version",),
        ),
        "3.0-IV1",
        _VERSION,
        "a version of Apache Kafka",
    ),
    "message.timestamp.difference.max.ms": InertConfig(
        Key(
            type="LONG",
            doc="An older name of message.timestamp.before.max.ms and message.timestamp.after.max.ms together.",
            low=0,
            high=LONG_MAX,
            synonyms=("log.message.timestamp.difference.max.ms",),
        ),
        str(LONG_MAX),
        re.compile(r".*"),
        "a whole number",
    ),
}
