"""`headrace cluster`: how a cluster is, and whether a broker of it may stop, for people, plays and Fabric alike.

By the Kafka protocol alone, so it tells the same of Apache Kafka's brokers.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import click
from rich.console import Console

from headrace.broker.client.bootstrap import Bootstrap
from headrace.cli import cluster_status
from headrace.cli.broker_look import look_at
from headrace.cli.cluster_admin import ClusterAdmin, ZooKeeperSilentError
from headrace.cli.cluster_status import ZOOKEEPER_SILENT, ClusterState, name_of, stopping
from headrace.cli.shared import bootstrap_option, json_option, print_rows

MIN_ISR = "min.insync.replicas"


@click.group(epilog="Example: headrace cluster status --bootstrap 127.0.1.1:9092")
def cluster() -> None:
    """Show how a cluster is, and whether one of its brokers may stop."""


@cluster.command(epilog="Example: headrace cluster status --bootstrap 127.0.1.1:9092 --json")
@click.option(
    "--drained",
    type=click.IntRange(min=0),
    metavar="BROKER",
    multiple=True,
    help="A broker that is stopped on purpose: it and its replicas are not missed. Once for each.",
)
@bootstrap_option
@json_option
def status(drained: tuple[int, ...], bootstrap: Bootstrap, as_json: bool) -> None:
    """Print the brokers and what is not well with them and with the partitions; exit 1 while something is not.

    \b
    Well is a cluster with a controller, whose brokers answer and have all their
    directories, and whose partitions have a leader and all replicas in sync.
    """
    state = replace(look(bootstrap), drained=frozenset(drained))
    found = cluster_status.as_json(state)
    if as_json:
        click.echo(json.dumps(found))
    else:
        _print(found)
    if not found["well"]:
        raise click.exceptions.Exit(1)


@cluster.command("may-stop", epilog="Example: headrace cluster may-stop 2 --bootstrap 127.0.1.1:9092")
@click.argument("broker_id", type=click.IntRange(min=0), metavar="BROKER")
@click.option(
    "--allow-unavailable",
    is_flag=True,
    help="Pass over topics that have too few replicas for min.insync.replicas to hold without any one of them.",
)
@bootstrap_option
@json_option
def may_stop(broker_id: int, allow_unavailable: bool, bootstrap: Bootstrap, as_json: bool) -> None:
    """Tell whether BROKER may stop now: none of its partitions falls below min.insync.replicas; exit 1 if one does.

    A broker that has replicas and is not alive holds nobody up; exit 1 also for an id that is no broker's.
    """
    state = look(bootstrap)
    if state.min_isr is None:
        raise click.ClickException(
            f"broker {broker_id} may not stop now: {ZOOKEEPER_SILENT}; see that it runs, then ask again."
        )
    if not state.knows(broker_id):
        alive = ", ".join(map(str, sorted(state.look.addresses)))
        raise click.ClickException(
            f"there is no broker {broker_id}, and no partition has a replica there: alive are {alive}."
        )
    found = stopping(state, broker_id)
    may = not found.hindered and (allow_unavailable or not found.never)
    if as_json:
        hindered, never = (
            {name_of(key): left for key, left in each.items()} for each in (found.hindered, found.never)
        )
        click.echo(json.dumps({"may_stop": may, "hindered": hindered, "never": never}))
    else:
        click.echo(f"Broker {broker_id} may stop." if may else f"Broker {broker_id} may not stop now.")
        for sentence in _reasons(found):
            click.echo(sentence)
    if not may:
        raise click.exceptions.Exit(1)


def look(bootstrap: Bootstrap) -> ClusterState:
    """Ask a cluster for all that its state is told from."""
    with ClusterAdmin(bootstrap) as admin:
        seen = admin.cluster()
        min_isr = _min_isr(admin, sorted({topic for topic, _ in seen.partitions}))
        # A topic that was deleted between the two questions has no configuration, and is no more of the cluster.
        seen = seen if min_isr is None else seen.of_topics(min_isr)
        # A controller that waits for ZooKeeper answers nobody, and moves nothing.
        is_asked = min_isr is not None and seen.controller in seen.addresses
        moves = admin.moves() if is_asked else {}
    return ClusterState(
        look=seen,
        brokers=look_at(seen.addresses, bootstrap.security),
        moves=moves,
        min_isr=min_isr,
    )


def _min_isr(admin: ClusterAdmin, topics: list[str]) -> dict[str, int] | None:
    """`min.insync.replicas` by topic, of those that are still there; None where ZooKeeper does not tell the brokers."""
    try:
        configs = admin.topic_configs(topics, [MIN_ISR])
    except ZooKeeperSilentError:
        return None
    return {topic: int(config[MIN_ISR]) for topic, config in configs.items()}


def _print(found: dict[str, Any]) -> None:
    rows = [_row(broker, found["controller"]) for broker in found["brokers"]]
    print_rows(rows)
    console = Console(highlight=False, soft_wrap=True)
    at_min_isr = "unknown" if found["at_min_isr"] is None else len(found["at_min_isr"])
    console.print(f"{found['partitions']} partitions, {at_min_isr} at min.insync.replicas.")
    if found["reassigning"]:
        console.print(f"{len(found['reassigning'])} partitions are moving: headrace topics reassign show.")
    if found["waiting_for_drained"]:
        drained = ", ".join(map(str, found["drained"]))
        console.print(f"{len(found['waiting_for_drained'])} partitions wait for drained brokers ({drained}).")
    for problem in found["problems"]:
        console.print(problem, style="bold red", markup=False)
    if found["well"]:
        console.print("All is well.")


def _row(broker: dict[str, Any], controller: int) -> dict[str, Any]:
    return {
        "broker": broker["broker"],
        "address": broker["address"],
        "rack": broker["rack"] or "",
        "runs": _release(broker) if broker["answers"] else "does not answer",
        "leads": broker["leads"],
        "": "controller" if broker["broker"] == controller else "",
    }


def _release(broker: dict[str, Any]) -> str:
    return " ".join((broker["engine"], broker["version"] or f"(protocol {broker['protocol']})"))


def _reasons(found: cluster_status.Stopping) -> list[str]:
    sentences = []
    if found.hindered:
        sentences.append(
            f"Without it these fall below min.insync.replicas: {cluster_status.named(list(found.hindered))}. "
            "Wait until their other replicas are in sync."
        )
    if found.never:
        sentences.append(
            f"These have too few replicas to do without any one of them: {cluster_status.named(list(found.never))}. "
            "Give them more replicas (headrace topics reassign), or allow it with --allow-unavailable."
        )
    return sentences
