"""The throttle of a reassignment (KIP-73): which replicas it slows down, by topic, and to what rate, by broker.

Leaders are throttled for the replicas that send, followers for those that are new, so that those in sync are not slowed down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.cli.cluster_admin import ClusterAdmin, ClusterLook
from headrace.cli.reassignment_plan import Key, Replicas

LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")


def throttled_replicas(
    cluster: ClusterLook, targets: Mapping[Key, Replicas]
) -> dict[str, dict[str, str | None]]:
    """What the configurations of the topics that move have to say."""
    sending: dict[str, list[str]] = {}
    copying: dict[str, list[str]] = {}
    for (topic, partition), target in sorted(targets.items()):
        found = cluster.partitions.get((topic, partition))
        present: Sequence[int] = () if found is None else found.replicas
        sending.setdefault(topic, []).extend(f"{partition}:{r}" for r in present)
        copying.setdefault(topic, []).extend(f"{partition}:{r}" for r in target if r not in present)
    return {t: {LEADERS: ",".join(sending[t]), FOLLOWERS: ",".join(copying[t])} for t in sending}


def throttle(admin: ClusterAdmin, cluster: ClusterLook, targets: Mapping[Key, Replicas], rate: int) -> None:
    """Have no broker send or copy more than `rate` bytes a second for these moves; who is throttled already stays so."""
    wanted = throttled_replicas(cluster, targets)
    for topic, there in admin.topic_configs(sorted(wanted), (LEADERS, FOLLOWERS)).items():
        for name, replicas in there.items():
            listed = [*filter(None, str(wanted[topic][name] or "").split(",")), *replicas.split(",")]
            wanted[topic][name] = ",".join(dict.fromkeys(listed))
    present = {r for key in targets if (p := cluster.partitions.get(key)) is not None for r in p.replicas}
    concerned = present | {r for replicas in targets.values() for r in replicas}
    admin.alter_topics(wanted)
    for broker in sorted(concerned & cluster.racks.keys()):
        admin.alter_broker(broker, dict.fromkeys(RATES, str(rate)))


def remove_throttle(admin: ClusterAdmin, cluster: ClusterLook) -> list[str]:
    """Remove the throttle of these topics and of all brokers that are alive; answers the topics that had one."""
    names = sorted({topic for topic, _ in cluster.partitions})
    throttled = sorted(admin.topic_configs(names, (LEADERS, FOLLOWERS)))
    if throttled:
        for broker in sorted(cluster.racks):
            admin.alter_broker(broker, dict.fromkeys(RATES))
        admin.alter_topics({topic: dict.fromkeys((LEADERS, FOLLOWERS)) for topic in throttled})
    return throttled
