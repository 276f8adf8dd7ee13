"""Negative latencies by pairs of hosts."""

from __future__ import annotations

import numpy as np

from headrace.audit.clocks import HOSTS_MAX, NOBODY, PAIRS_MAX, Clocks, Hosts, Skew, Skews

PAIR = Clocks("dc-east", "live_to_offline", "web-1", "broker-1")


def test_one_pair_of_hosts_adds_up_and_keeps_the_largest_difference() -> None:
    skews = Skews()
    skews.observe(PAIR, np.array([5, 7]), np.array([True, False]))
    skews.observe(PAIR, np.array([6]), np.array([False]))
    assert skews.found == {PAIR: Skew(count=3, largest_ms=7, certain=1)}
    assert Skews.from_json(skews.as_json()) == skews


def test_hosts_beyond_the_bound_have_no_name_of_their_own() -> None:
    skews = Skews()
    for number in range(PAIRS_MAX + 5):
        skews.observe(PAIR._replace(begin=f"web-{number}"), np.array([1]), np.array([True]))
    assert len(skews.found) == PAIRS_MAX + 1
    assert skews.found[PAIR._replace(begin=NOBODY, end=NOBODY)].count == 5


def test_hosts_have_one_number_each_and_number_0_is_nobody() -> None:
    hosts = Hosts()
    assert [hosts.number(name) for name in ("a", "b", "a", NOBODY)] == [1, 2, 1, 0]
    assert hosts.names == [NOBODY, "a", "b"]


def test_a_million_names_are_no_million_hosts() -> None:
    hosts = Hosts()
    numbers = [hosts.number(f"web-{number}") for number in range(HOSTS_MAX + 3)]
    assert numbers[-4:] == [HOSTS_MAX, 0, 0, 0]
    assert hosts.number("web-0") == 1
    assert len(hosts.names) == HOSTS_MAX + 1
