"""Which topics of a source are copied, and whether a topic of this cluster is their copy. Pure.

A copy carries the ids of the clusters that it came through (`headrace.mirror.clusters`): a name alone proves nothing, since
anybody may call a topic `dc-east.orders`, and two clusters may call a third by different names. So a mirror of mirrors ends
wherever a copy would return to a cluster that it has been in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import StrEnum

from headrace.broker.config.copies import MERGED_CLUSTERS, MIRROR_CLUSTERS
from headrace.mirror.memory.own_topics import OWN_TOPICS

INTERNAL_PREFIX = "__"
INTERNAL = frozenset(OWN_TOPICS)
"""What a mirror writes of its own cluster."""
UNKNOWN_CLUSTER = "unknown"
"""Stands for a source that does not tell its id (Kafka before 0.10.1)."""
Clusters = tuple[str, ...]


def clusters_of(configs: Mapping[str, str]) -> Clusters:
    """The clusters that a topic came through; none for a topic of the cluster that holds it."""
    return tuple(cluster for cluster in configs.get(MIRROR_CLUSTERS, "").split(",") if cluster)


def merged_of(configs: Mapping[str, str]) -> frozenset[str]:
    """The clusters whose messages are brought into a topic that sources share."""
    return frozenset(cluster for cluster in configs.get(MERGED_CLUSTERS, "").split(",") if cluster)


def merged(
    configs: Mapping[str, str], source_cluster: str, source_configs: Mapping[str, str]
) -> dict[str, str]:
    """The configuration of such a topic once that source's is brought into it as well; a source without an id has no part."""
    return with_merged(configs, source_configs, {MERGED_CLUSTERS: source_cluster})


def with_merged(*parts: Mapping[str, str]) -> dict[str, str]:
    """The configuration of a topic that has the messages of all that each of these names."""
    clusters = frozenset[str]().union(*map(merged_of, parts))
    return {MERGED_CLUSTERS: ",".join(sorted(clusters))}


def mark(clusters: Clusters, source_cluster: str) -> dict[str, str]:
    """The configuration that makes a topic the copy of one that came through `clusters`, and is copied from that source."""
    return {MIRROR_CLUSTERS: ",".join((*clusters, source_cluster or UNKNOWN_CLUSTER))}


def is_internal(topic: str, clusters: Clusters = ()) -> bool:
    """Whether a topic, or what it is a copy of, belongs to the brokers of the cluster that it began in."""
    for _ in clusters:
        topic = topic.partition(".")[2]
    return topic.startswith(INTERNAL_PREFIX) or topic in INTERNAL


def refusal_of_source(
    source_cluster: str, own_cluster: str, known: Collection[str] = frozenset()
) -> str | None:
    """Why nothing of a source can be copied, None when it can; `known` are the clusters that its copies here came from last."""
    if source_cluster and source_cluster == own_cluster:
        return f"it is this cluster itself (cluster id {own_cluster}): give the addresses of another one"
    others = sorted(set(known) - {UNKNOWN_CLUSTER})
    if source_cluster and others and source_cluster not in others:
        return (
            f"it answers as the cluster {source_cluster}, and its copies here are of the cluster {others[0]}: give the "
            "addresses of that one, or delete these copies first"
        )
    return None


def last_clusters(configs: Iterable[Mapping[str, str]]) -> frozenset[str]:
    """The clusters that copies with these configurations are copied from."""
    return frozenset(clusters[-1] for found in configs if (clusters := clusters_of(found)))


def refusal(
    source: str, topic: str, clusters: Clusters, own_cluster: str, is_here: Callable[[str], bool]
) -> str | None:
    """Why a topic of a source is not copied, None when it is; `clusters` are those that it came through.

    `is_here(name)` tells of this cluster's topics. By the name alone is known what a cluster made that marks no copies:
    `<its name for this cluster>.<source>.orders` is the copy of the copy of its own topic `orders`.
    """
    if is_internal(topic, clusters):
        return "it belongs to the brokers of the cluster that it began in"
    if own_cluster in clusters:
        return f"it is a copy that came from this cluster (cluster id {own_cluster})"
    original = topic.partition(".")[2]
    if not clusters and original.startswith(f"{source}.") and is_here(original):
        return f"by its name it is a copy of {original}, which is a copy of that source's here"
    return None


class Standing(StrEnum):
    """What a topic of this cluster that has a copy's name is."""

    COPY = "copy"
    FORMER = "former"  # was promoted
    UNMARKED = "unmarked"  # was copied to before copies were marked: it has to be
    FOREIGN = "foreign"  # somebody else made it


def standing(configs: Mapping[str, str], *, is_remembered: bool) -> Standing:
    """What a topic is by its configuration; `is_remembered`: the mirror has noted down where its copy came from."""
    if MIRROR_CLUSTERS in configs:
        return Standing.COPY if clusters_of(configs) else Standing.FORMER
    return Standing.UNMARKED if is_remembered else Standing.FOREIGN
