"""What the copies of a cluster are called: `<source>.<topic>`, the copy's remote name, unless a topic's configuration says
that it is the copy of that name (`headrace.mirror.remote.topic`), as after a fail-over that was reversed. Pure.

Invariant: a remote name is one topic's at most. Of several that claim it, it is the first one's in order; the others, and one
that is called so, are copies of nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.broker.config.copies import MIRROR_REMOTE


@dataclass(frozen=True, slots=True)
class CopyNames:
    """`named` is topic → remote name, of those that are configured with one."""

    named: Mapping[str, str] = field(default_factory=dict)
    _topics: dict[str, str] = field(init=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        for topic, remote in sorted(self.named.items()):
            self._topics.setdefault(remote, topic)

    def remote_of(self, topic: str) -> str:
        """`<source>.<topic>`, were the topic of this cluster a copy."""
        return self.named.get(topic, topic)

    def topic_of(self, remote: str) -> str:
        """What the copy is called in this cluster."""
        return self._topics.get(remote, remote)

    def is_named(self, remote: str) -> bool:
        """Whether a topic is configured to be that copy."""
        return remote in self._topics

    def source_of(self, topic: str) -> str:
        """The datacenter that a copy is of."""
        return self.remote_of(topic).partition(".")[0]

    def original_of(self, topic: str) -> str:
        """What the topic that a copy is of is called at its source."""
        return self.remote_of(topic).partition(".")[2]


def named_of(configs: Mapping[str, Mapping[str, str]]) -> CopyNames:
    """By the topics' configurations."""
    return CopyNames(
        {topic: found[MIRROR_REMOTE] for topic, found in configs.items() if found.get(MIRROR_REMOTE)}
    )
