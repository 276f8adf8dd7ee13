"""Random sessions of consumer groups, performed on both brokers at once.

`HEADRACE_GROUP_SEEDS=1000-1200 pytest …` tries those seeds instead of the few that are always tried; a failure
prints the seed and its steps up to the first difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from group_run import Difference, GroupRun, first_difference
from pairs import running_pair
from random_groups import TOPICS, described, script
from random_scripts import seeds
from sessions import Pair, Session, create_topic
from zookeeper_process import ZooKeeperProcess

SETTINGS = {
    # One thread of each kind: Kafka handles requests in the order in which they come, as headrace does.
    "num.io.threads": "1",
    "num.network.threads": "1",
    "group.min.session.timeout.ms": "300",
    "group.initial.rebalance.delay.ms": "150",
    "group.max.size": "3",
}
SEEDS = (1, 2, 4, 1033, 1077, 20017)
AT_ONCE_COUNT = 6
ATTEMPTS_COUNT_MAX = 3


@pytest.fixture(scope="module")
def ticking_pair(
    kafka_jars: Path, zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    """A pair with small bounds and short time-outs, whose topics are there."""
    with running_pair(kafka_jars, zookeeper, tmp_path_factory.mktemp("ticking"), SETTINGS) as both:
        both.wait_for_coordinator()
        for address in (both.kafka.address, both.headrace.addresses[0]):
            session = Session(address)
            for name, count in TOPICS.items():
                create_topic(session, name, partitions=count)
            session.close()
        yield both


def difference(pair: Pair, seed: int) -> Difference | None:
    """What parts the brokers each time that they perform the script; a slow machine parts them once."""
    found = None
    for attempt in range(ATTEMPTS_COUNT_MAX):
        run, steps = f"g{seed}-{attempt}", script(seed)
        with ThreadPoolExecutor(2) as threads:
            addresses = (pair.headrace.addresses[0], pair.kafka.address)
            performed = [threads.submit(GroupRun(address, run).perform, steps) for address in addresses]
        found = first_difference(performed[0].result(), performed[1].result())
        if found is None or found.by_chance:
            return found
    return found


@pytest.mark.acceptance
def test_both_brokers_answer_random_sessions_alike(ticking_pair: Pair) -> None:
    wanted = seeds(SEEDS, "HEADRACE_GROUP_SEEDS")
    with ThreadPoolExecutor(AT_ONCE_COUNT) as threads:
        found = dict(
            zip(wanted, threads.map(lambda seed: difference(ticking_pair, seed), wanted), strict=True)
        )
    failures = {seed: each for seed, each in found.items() if each is not None and not each.by_chance}
    chances = [seed for seed, each in found.items() if each is not None and each.by_chance]
    print(f"{len(wanted)} seeds, {len(chances)} up to an election that chance decides: {chances}")
    texts = [
        f"seed {seed} differs in step {each.step}:\n"
        + "\n".join(described(script(seed), each.step))
        + f"\n{each.what}"
        for seed, each in failures.items()
    ]
    assert not failures, "\n\n".join(texts)
