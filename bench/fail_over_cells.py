"""Three brokers of which one goes away: how long its partitions have no leader, and what others feel meanwhile.

Every run has a cluster of its own. Invariant: what a run counts from is the end of the broker's session in ZooKeeper, seen by
a session of the benchmark's own, or, where the broker is asked to stop, the signal.
"""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from collections.abc import Iterator, Sequence

import click
import psutil
from kazoo.client import KazooClient

from bench import contest
from bench.bystander import Bystander, bystander
from bench.leaders import Leaders
from bench.machine import cpu_seconds
from bench.peers import Peer
from bench.runs import HEADRACE, RawRun, Workshop

KILLED = "a broker is killed that leads 1,000 partitions"
STOPPED = "a broker is stopped that leads 1,000 partitions"
CONTROLLER_KILLED = "the controller of 5,000 partitions is killed"
PARTITIONS = {KILLED: 1_000, STOPPED: 1_000, CONTROLLER_KILLED: 5_000}
RIVALLED = (KILLED, STOPPED)
"""Those that Apache Kafka has, too."""
TOPIC = "many"
BROKERS = (1, 2, 3)
SETTINGS = {"zookeeper.session.timeout.ms": "6000", "auto.leader.rebalance.enable": "false"}
SETTLE_SECONDS = 2.0
MEANWHILE_SECONDS_MIN = 2.0
SESSION_END_SECONDS_MAX = 30
SECONDS_EACH = {HEADRACE: 20.0, contest.KAFKA: 45.0}

name = "fail-over"
title = "Fail-over"
note = (
    "three brokers, every partition on all of them; seconds from the end of the broker's session in ZooKeeper until somebody "
    "answers for every partition or, where it is stopped, for how long nobody answered for the partition that was away longest; "
    "a bystander publishes 1,000 messages/s with acks=all to partitions of the brokers that stay, the new controller among "
    "them, and its p99 is of those that were due meanwhile, in two seconds at least"
)
cells = tuple(PARTITIONS)


def expected(cell: str, workshop: Workshop) -> tuple[int, float]:
    """Runs of the cell and about how long they take, both clusters together."""
    kinds = _kinds(cell, workshop)
    return len(kinds), sum(SECONDS_EACH[kind] for _, kind in kinds)


def measure(wanted: tuple[str, ...], workshop: Workshop) -> Iterator[RawRun]:
    """Run the wanted cells, each run with a cluster of its own."""
    with contest.zookeeper(workshop.data / "zookeeper") as ensemble:
        for cell in wanted:
            for number, kind in _kinds(cell, workshop):
                yield _measure(cell, number, kind, ensemble, workshop)


def _kinds(cell: str, workshop: Workshop) -> list[tuple[int, str]]:
    """The rounds: Apache Kafka, which takes long to start and to make topics, has one, and none of 5,000 partitions."""
    rounds = [(number, HEADRACE) for number in range(workshop.effort.rounds)]
    if workshop.kafka_jars is None or cell not in RIVALLED:
        return rounds
    return [*rounds[:1], (0, contest.KAFKA), *rounds[1:]]


def _measure(cell: str, number: int, kind: str, ensemble: str, workshop: Workshop) -> RawRun:
    with (
        workshop.folder("run") as data,
        contest.cluster(kind, workshop.kafka_jars, data / "brokers", ensemble, 3, SETTINGS) as peer,
        contest.zookeeper_session(peer) as zookeeper,
    ):
        controller = int(json.loads(zookeeper.get("/controller")[0])["brokerid"])
        leaving = controller if cell == CONTROLLER_KILLED else next(b for b in BROKERS if b != controller)
        staying = tuple(b for b in BROKERS if b != leaving)
        peer.create_topic(TOPIC, PARTITIONS[cell], _replicas(cell, leaving, staying))
        with contextlib.closing(Leaders(TOPIC, PARTITIONS[cell], peer.addresses)) as leaders:
            leaders.until_led()
        time.sleep(SETTLE_SECONDS)
        memory_mib = peer.memory_mib
        survivors = [peer.processes[b - 1] for b in staying]
        before = sum(map(cpu_seconds, survivors))
        with bystander(peer, (staying[0], staying[1]), workshop) as ended:
            began, seconds = _fail_over(cell, leaving, peer, zookeeper)
            meanwhile = began, max(time.monotonic(), began + MEANWHILE_SECONDS_MIN)
            time.sleep(max(0.0, meanwhile[1] - time.monotonic()))
            cpu = sum(map(cpu_seconds, survivors)) - before
        run = _run(cell, kind, number, seconds, cpu, memory_mib, ended[0], meanwhile)
        # Nobody needs their data any more, nor an end in order.
        for process in peer.processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return run


def _run(
    cell: str,
    kind: str,
    number: int,
    seconds: float,
    cpu: float,
    memory_mib: int,
    felt: Bystander,
    meanwhile: tuple[float, float],
) -> RawRun:
    return RawRun(
        cell=cell,
        peer=kind,
        round=number,
        messages=0,
        bytes=0,
        seconds=round(seconds, 3),
        cpu_seconds=round(cpu, 4),
        memory_mib=memory_mib,
        settings={"partitions": PARTITIONS[cell], "replicas": 3},
        figures={"p99_ms": felt.p99_ms(*meanwhile)},
    )


def _replicas(cell: str, leaving: int, staying: Sequence[int]) -> list[Sequence[int]] | None:
    """The broker leads all, and the others are to share what it leads; the controller leads its third."""
    if cell == CONTROLLER_KILLED:
        return None
    orders = ((leaving, *staying), (leaving, *reversed(staying)))
    return [orders[number % 2] for number in range(PARTITIONS[cell])]


def _fail_over(cell: str, leaving: int, peer: Peer, zookeeper: KazooClient) -> tuple[float, float]:
    """When the fail-over began, and how many seconds partitions had no leader."""
    process = peer.processes[leaving - 1]
    if cell == STOPPED:
        with contextlib.closing(Leaders(TOPIC, PARTITIONS[cell], peer.addresses)) as leaders:
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            return began, leaders.longest_away()
    addresses = [a for number, a in enumerate(peer.addresses, start=1) if number != leaving]
    with contextlib.closing(Leaders(TOPIC, PARTITIONS[cell], addresses)) as leaders:
        ended = _session_end(zookeeper, leaving)
        process.kill()
        if not ended.wait(SESSION_END_SECONDS_MAX):
            raise click.ClickException(f"the session of broker {leaving} did not end")
        began = time.monotonic()
        return began, leaders.until_led() - began


def _session_end(zookeeper: KazooClient, broker_id: int) -> threading.Event:
    """Set when the broker's registration is gone."""
    gone = threading.Event()
    if zookeeper.exists(f"/brokers/ids/{broker_id}", watch=lambda _: gone.set()) is None:
        gone.set()
    return gone
