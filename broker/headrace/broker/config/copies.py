"""The topic configurations that Apache Kafka has not: which clusters a mirror's copy came through, or are merged into a topic,
and which copy a topic is that has not a copy's name.

The first lies among a topic's overrides in `/config/topics/<t>`, so that it begins and ends with the topic and every broker
learns of it with the rest: absent for a topic of this cluster, the clusters' ids for a copy (the first is where the data
was published, the last the one that it is copied from), and empty for a copy that was promoted to a topic of this
cluster. A topic that sources share has the second: it is this cluster's own, and no such topic is brought back to one of
those clusters. The third counts beside the first alone. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from headrace.broker.config.inert import InertConfig
from headrace.broker.config.keys import Key
from headrace.broker.errors import PolicyViolationError

MIRROR_CLUSTERS = "headrace.mirror.clusters"
MERGED_CLUSTERS = "headrace.mirror.merged"
MIRROR_REMOTE = "headrace.mirror.remote.topic"
_CLUSTERS = re.compile(r"|[^\s,]{1,249}(,[^\s,]{1,249})*")

_REMOTE = re.compile(r"|[A-Za-z0-9][A-Za-z0-9-]*\.[A-Za-z0-9._-]{1,249}")

OWN_TOPIC_CONFIGS = {
    MIRROR_CLUSTERS: InertConfig(
        Key(
            type="LIST",
            doc="The clusters that this copy came through, its origin first; empty: a copy that was promoted.",
        ),
        "",
        _CLUSTERS,
        "the ids of clusters, separated by commas, or nothing",
    ),
    MERGED_CLUSTERS: InertConfig(
        Key(type="LIST", doc="The clusters whose messages a mirror brings into this topic."),
        "",
        _CLUSTERS,
        "the ids of clusters, separated by commas, or nothing",
    ),
    MIRROR_REMOTE: InertConfig(
        Key(
            type="STRING",
            doc="What this copy would be called by itself, <source>.<topic>; empty: what the topic is called.",
        ),
        "",
        _REMOTE,
        "the name of a source in mirror.sources, a dot and the name of a topic of it, or nothing",
    ),
}


def is_mirror_copy(overrides: Mapping[str, str]) -> bool:
    """Whether a topic with these overrides is a copy, which nobody but the mirror writes to."""
    return bool(overrides.get(MIRROR_CLUSTERS))


def remote_topic(topic: str, overrides: Mapping[str, str]) -> str:
    """`<source>.<topic>` of what a topic with these overrides would be the copy of."""
    return overrides.get(MIRROR_REMOTE) or topic


def refusal(topic: str) -> PolicyViolationError:
    """What a client hears that would change the messages of a copy.

    POLICY_VIOLATION: librdkafka, the Java clients and kafka-python fail the message at once and pass this sentence on.
    """
    return PolicyViolationError(
        f"{topic} is a mirror's copy, which only the mirror writes to: publish to the source's topic, or end the copy "
        f"with `headrace mirror promote {topic}`"
    )
