"""Which topics are copied: clusters that mirror each other in any way come to an end, and each topic gets everywhere."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from functools import partial

import pytest

from headrace.mirror import lineage
from headrace.mirror.lineage import (
    Clusters,
    Standing,
    last_clusters,
    mark,
    refusal,
    refusal_of_source,
    standing,
)
from headrace.mirror.memory import own_topics

ROUNDS_MAX = 30
SOURCES = {"A": "dc-a", "B": "dc-b", "C": "dc-c", "D": "dc-d"}
Topics = dict[str, dict[str, Clusters]]


def settled(
    edges: Iterable[tuple[str, str]], own: Mapping[str, Iterable[str]], unmarking: Iterable[str] = ()
) -> Topics:
    """Cluster → topic → clusters that it came through, when every mirror has nothing more to create.

    `edges` are (source, target); who is `unmarking` tells nobody which of its topics are copies, and refuses none.
    """
    topics: Topics = {cluster: dict.fromkeys(own.get(cluster, ()), ()) for cluster in SOURCES}
    for _ in range(ROUNDS_MAX):
        count = sum(map(len, topics.values()))
        for source, target in edges:
            for name, clusters in list(topics[source].items()):
                told = () if source in unmarking else clusters
                reason = refusal(SOURCES[source], name, told, target, topics[target].__contains__)
                if reason is None or target in unmarking:
                    copied = mark(told, source)
                    topics[target].setdefault(f"{SOURCES[source]}.{name}", lineage.clusters_of(copied))
        if sum(map(len, topics.values())) == count:
            return topics
    raise AssertionError("topics are created without end")


def test_two_clusters_hold_each_others_topics_once() -> None:
    topics = settled([("A", "B"), ("B", "A")], {"A": ["orders", "events"], "B": ["invoices", "events"]})
    assert set(topics["A"]) == {"orders", "events", "dc-b.invoices", "dc-b.events"}
    assert set(topics["B"]) == {"invoices", "events", "dc-a.orders", "dc-a.events"}


def test_a_ring_of_clusters_ends_where_it_began() -> None:
    topics = settled([("A", "B"), ("B", "C"), ("C", "A")], {"A": ["orders"]})
    assert set(topics["A"]) == {"orders"}
    assert set(topics["B"]) == {"dc-a.orders"}
    assert topics["C"] == {"dc-b.dc-a.orders": ("A", "B")}


def test_a_chain_of_mirrors_is_copied_to_its_end() -> None:
    topics = settled([("A", "B"), ("B", "C"), ("C", "D")], {"A": ["orders", "headrace.counts"]})
    assert set(topics["D"]) == {"dc-c.dc-b.dc-a.orders", "dc-c.dc-b.dc-a.headrace.counts"}


@pytest.mark.parametrize("seed", range(40))
def test_any_graph_of_mirrors_settles_and_no_copy_returns(seed: int) -> None:
    chance = random.Random(seed)
    pairs = [(source, target) for source in SOURCES for target in SOURCES if source != target]
    edges = chance.sample(pairs, chance.randint(1, len(pairs)))
    topics = settled(edges, {cluster: ["t"] for cluster in SOURCES})
    for cluster, held in topics.items():
        for clusters in held.values():
            assert cluster not in clusters
            assert len(set(clusters)) == len(clusters)
        for source, target in edges:
            if target == cluster:
                assert f"{SOURCES[source]}.t" in held


@pytest.mark.parametrize("unmarking", ["A", "B"])
def test_a_cluster_that_marks_no_copies_does_not_make_it_endless(unmarking: str) -> None:
    topics = settled([("A", "B"), ("B", "A")], {"A": ["orders"], "B": ["invoices"]}, [unmarking])
    assert max(name.count("dc-") for held in topics.values() for name in held) <= 3
    assert "dc-b.invoices" in topics["A"]
    assert "dc-a.orders" in topics["B"]


@pytest.mark.parametrize(
    ("answered", "known", "is_refused"),
    [
        ("OWN", (), True),
        ("EAST", (), False),
        ("EAST", ("EAST",), False),
        ("WEST", ("EAST",), True),
        ("WEST", ("EAST", "WEST"), False),
        ("WEST", ("unknown",), False),
        ("", ("EAST",), False),
    ],
)
def test_a_source_that_is_this_cluster_or_another_than_before_is_refused(
    answered: str, known: tuple[str, ...], is_refused: bool
) -> None:
    reason = refusal_of_source(answered, "OWN", known)
    assert (reason is not None) is is_refused
    if known and reason:
        assert reason.startswith(
            "it answers as the cluster WEST, and its copies here are of the cluster EAST: "
        )


def test_a_copy_is_of_the_last_cluster_that_it_came_through() -> None:
    marks = [{"headrace.mirror.clusters": text} for text in ("EAST", "NORTH,WEST", "")]
    assert last_clusters([*marks, {}]) == {"EAST", "WEST"}


@pytest.mark.parametrize(
    "name", ["__consumer_offsets", "headrace.mirror", "headrace.arrivals", "headrace.findings"]
)
def test_what_belongs_to_brokers_is_never_copied(name: str) -> None:
    nowhere = partial(refusal, "dc-b", own_cluster="A", is_here=lambda topic: False)
    assert nowhere(topic=name, clusters=()) is not None
    assert nowhere(topic=f"dc-c.{name}", clusters=("C",)) is not None
    assert nowhere(topic=f"dc-c.{name}", clusters=()) is None, "a name alone proves nothing"


@pytest.mark.parametrize("name", ["headrace.monitoring", "headrace.counts", "_schemas", "dc-a.orders"])
def test_what_is_for_all_clusters_is_copied(name: str) -> None:
    assert refusal("dc-b", name, (), "A", lambda topic: False) is None


def test_every_topic_of_the_journal_is_internal() -> None:
    constants = {
        value for name, value in vars(own_topics).items() if name.isupper() and isinstance(value, str)
    }
    own = {value for value in constants if value.startswith("headrace.")}
    assert own >= {"headrace.arrivals", "headrace.findings", "headrace.mirror"}
    assert all(lineage.is_internal(name) for name in own)


def test_a_cluster_is_no_source_of_itself() -> None:
    assert "cluster id A" in (lineage.refusal_of_source("A", "A") or "")
    assert lineage.refusal_of_source("B", "A") is None
    assert lineage.refusal_of_source("", "") is None


@pytest.mark.parametrize(
    ("configs", "is_remembered", "found"),
    [
        ({"headrace.mirror.clusters": "A"}, False, Standing.COPY),
        ({"headrace.mirror.clusters": "A,B"}, True, Standing.COPY),
        ({"headrace.mirror.clusters": ""}, True, Standing.FORMER),
        ({"retention.ms": "1"}, True, Standing.UNMARKED),
        ({}, False, Standing.FOREIGN),
    ],
)
def test_what_a_topic_with_a_copys_name_is(
    configs: dict[str, str], is_remembered: bool, found: Standing
) -> None:
    assert standing(configs, is_remembered=is_remembered) is found
