"""What a throttled reassignment sets, and that all of it goes again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace.cli.cluster_admin import ClusterLook, PartitionView
from headrace.cli.throttle import FOLLOWERS, LEADERS, RATES, remove_throttle, throttle


class Configured:
    """A cluster that only keeps configurations, as `ClusterAdmin` sets them."""

    def __init__(self) -> None:
        self.topics: dict[str, dict[str, str]] = {"other": {"retention.ms": "5"}}
        self.brokers: dict[int, dict[str, str]] = {}

    def alter_topics(self, topics: Mapping[str, Mapping[str, str | None]]) -> None:
        for name, configs in topics.items():
            _change(self.topics.setdefault(name, {}), configs)

    def alter_broker(self, broker_id: int, configs: Mapping[str, str | None]) -> None:
        _change(self.brokers.setdefault(broker_id, {}), configs)

    def topic_configs(self, topics: Iterable[str], names: Sequence[str]) -> dict[str, dict[str, str]]:
        found = {t: {n: v for n, v in self.topics.get(t, {}).items() if n in names and v} for t in topics}
        return {topic: configs for topic, configs in found.items() if configs}


def _change(stored: dict[str, str], configs: Mapping[str, str | None]) -> None:
    for name, value in configs.items():
        stored.pop(name, None)
        if value is not None:
            stored[name] = value


def look(**partitions: tuple[int, ...]) -> ClusterLook:
    """A cluster of brokers 1 to 4 with one partition 0 of each of these topics."""
    return ClusterLook(
        racks=dict.fromkeys(range(1, 5)),
        controller=1,
        addresses={},
        partitions={
            (topic, 0): PartitionView(leader=r[0], replicas=r, isr=r) for topic, r in partitions.items()
        },
        unknown=(),
    )


def test_who_sends_and_who_copies_is_throttled_and_nobody_else() -> None:
    admin: Any = Configured()
    throttle(admin, look(t=(1, 2), u=(1,)), {("t", 0): (2, 3), ("u", 0): (3, 9)}, 500)
    assert admin.topics["t"] == {LEADERS: "0:1,0:2", FOLLOWERS: "0:3"}
    assert admin.topics["u"] == {LEADERS: "0:1", FOLLOWERS: "0:3,0:9"}
    assert admin.brokers == {b: dict.fromkeys(RATES, "500") for b in (1, 2, 3)}


def test_a_move_that_is_throttled_already_stays_so_beside_another_one() -> None:
    admin: Any = Configured()
    throttle(admin, look(t=(1, 2)), {("t", 0): (2, 3)}, 500)
    # Meanwhile the partition has all replicas, of before and to come.
    throttle(admin, look(t=(1, 2, 3)), {("t", 0): (2, 3)}, 800)
    assert admin.topics["t"] == {LEADERS: "0:1,0:2,0:3", FOLLOWERS: "0:3"}
    assert admin.brokers == {b: dict.fromkeys(RATES, "800") for b in (1, 2, 3)}


def test_all_of_it_goes_again_and_nothing_else() -> None:
    admin: Any = Configured()
    cluster = look(t=(1, 2), other=(1,))
    throttle(admin, cluster, {("t", 0): (2, 3)}, 500)
    assert remove_throttle(admin, cluster) == ["t"]
    assert admin.topics == {"t": {}, "other": {"retention.ms": "5"}}
    assert not any(admin.brokers.values())


def test_a_cluster_without_a_throttle_is_left_alone() -> None:
    admin: Any = Configured()
    assert remove_throttle(admin, look(t=(1, 2))) == []
    assert admin.brokers == {}
