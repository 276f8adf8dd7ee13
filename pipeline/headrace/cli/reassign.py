"""`headrace topics reassign`: plan, start, show and cancel moves of partitions to other brokers (KIP-455, KIP-73)."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any, Final

import click
from rich.console import Console

from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.errors import KafkaError
from headrace.cli.cluster_admin import ClusterAdmin, ClusterLook, Move, ZooKeeperSilentError
from headrace.cli.reassignment_plan import Key, PlanError, Replicas, plan
from headrace.cli.shared import bootstrap_option, json_option, no_such_topic, print_rows
from headrace.cli.throttle import remove_throttle, throttle

POLL_SECONDS: Final = 1.0


@click.group(
    "reassign",
    epilog="Example: headrace topics reassign start pageviews --brokers 1,2,4 --bootstrap 127.0.0.1:9092",
)
def reassign() -> None:
    """Move partitions to other brokers: plan, start, show, cancel."""


def _broker_ids(_: click.Context, __: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    if value is None:
        return None
    try:
        ids = tuple(int(part) for part in value.split(","))
    except ValueError:
        raise click.UsageError(f"--brokers {value}: write broker ids as 1,2,3.") from None
    if len(set(ids)) != len(ids):
        raise click.UsageError(f"--brokers {value}: name each broker once.")
    return ids


brokers_option = click.option(
    "--brokers",
    callback=_broker_ids,
    metavar="ID,...",
    help="Brokers that shall hold the partitions; all that are alive by default.",
)
factor_option = click.option(
    "--replication-factor",
    "factor",
    type=click.IntRange(min=1, max=32767),
    help="Replicas of each partition; as many as now by default.",
)


@reassign.command(
    "plan",
    epilog="Example: headrace topics reassign plan pageviews --brokers 1,2,4 --json --bootstrap 127.0.0.1:9092",
)
@click.argument("topics", nargs=-1, required=True)
@brokers_option
@factor_option
@bootstrap_option
@json_option
def plan_moves(
    topics: tuple[str, ...],
    brokers: tuple[int, ...] | None,
    factor: int | None,
    bootstrap: Bootstrap,
    as_json: bool,
) -> None:
    """Print which partitions of TOPICS would move, and change nothing.

    The brokers get equal shares, in different racks where there are some, with as few moves as that takes. What --json
    prints is a plan for `start --plan`, and for kafka-reassign-partitions.
    """
    with ClusterAdmin(bootstrap) as admin:
        cluster = admin.cluster(topics)
        targets = _planned(cluster, brokers, factor)
    if as_json:
        listed = [{"topic": t, "partition": p, "replicas": list(r)} for (t, p), r in sorted(targets.items())]
        click.echo(json.dumps({"version": 1, "partitions": listed}))
    elif targets:
        print_rows([_row(key, cluster.partitions[key].replicas, r) for key, r in sorted(targets.items())])
    else:
        click.echo("nothing has to move")


@reassign.command(
    epilog="Example: headrace topics reassign start pageviews --brokers 1,2,4 --throttle 50000000 --wait "
    "--bootstrap 127.0.0.1:9092"
)
@click.argument("topics", nargs=-1)
@click.option(
    "--plan", "plan_file", type=click.File(), metavar="FILE", help="A plan as JSON; - is standard input."
)
@brokers_option
@factor_option
@click.option(
    "--throttle",
    "rate",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="The most that a broker copies in a second, and sends; `show` removes the throttle when all is done.",
)
@click.option("--wait", is_flag=True, help="Wait until the last partition has moved.")
@bootstrap_option
@json_option
def start(
    topics: tuple[str, ...],
    plan_file: IO[str] | None,
    brokers: tuple[int, ...] | None,
    factor: int | None,
    rate: int | None,
    wait: bool,
    bootstrap: Bootstrap,
    as_json: bool,
) -> None:
    """Move the partitions of TOPICS, or those of a plan, to other brokers."""
    if bool(topics) == (plan_file is not None):
        raise click.UsageError("name topics, or a plan with --plan FILE.")
    wished = None if plan_file is None else read_plan(plan_file)
    with ClusterAdmin(bootstrap) as admin:
        cluster = admin.cluster(topics or sorted({topic for topic, _ in wished or {}}))
        targets = _planned(cluster, brokers, factor) if wished is None else wished
        moving = {
            key: tuple(r for r in move.replicas if r not in move.removing)
            for key, move in admin.moves().items()
            if key not in targets and (key in wished if wished is not None else key[0] in topics)
        }
        if rate is not None and (targets or moving):
            throttle(admin, cluster, {**moving, **targets}, rate)
        refused = admin.reassign(targets) if targets else {}
        begun = moving | {key: r for key, r in targets.items() if key not in refused}
        if wait and begun:
            _await(admin, begun)
        # The throttle of whatever else is moving stays.
        if (wait if begun else rate is not None) and not admin.moves():
            remove_throttle(admin, admin.cluster() if wait else cluster)
    _report("moved" if wait else "moving", cluster, begun, refused, as_json=as_json)


@reassign.command(epilog="Example: headrace topics reassign show --bootstrap 127.0.0.1:9092 --json")
@bootstrap_option
@json_option
def show(bootstrap: Bootstrap, as_json: bool) -> None:
    """Print the partitions that are moving; when there are none any more, remove the throttle."""
    unthrottled: list[str] = []
    failure: ZooKeeperSilentError | None = None
    with ClusterAdmin(bootstrap) as admin:
        moves = admin.moves()
        cluster = admin.cluster(sorted({topic for topic, _ in moves}) or None)
        try:
            unthrottled = [] if moves else remove_throttle(admin, cluster)
        except ZooKeeperSilentError as error:
            failure = error
    rows = [_progress(key, move, cluster) for key, move in sorted(moves.items())]
    if as_json:
        click.echo(json.dumps({"moving": rows, "throttle_removed": unthrottled}))
    elif rows:
        print_rows(rows)
    else:
        click.echo("nothing is moving")
    if unthrottled and not as_json:
        click.echo(f"the throttle is removed: {', '.join(unthrottled)}")
    if failure is not None:
        raise failure


@reassign.command(epilog="Example: headrace topics reassign cancel pageviews --bootstrap 127.0.0.1:9092")
@click.argument("topics", nargs=-1)
@bootstrap_option
@json_option
def cancel(topics: tuple[str, ...], bootstrap: Bootstrap, as_json: bool) -> None:
    """Leave the partitions of TOPICS where they were, or all that are moving."""
    with ClusterAdmin(bootstrap) as admin:
        moves = {key: move for key, move in admin.moves().items() if not topics or key[0] in topics}
        cluster = admin.cluster(sorted({topic for topic, _ in moves}))
        refused = admin.reassign(dict.fromkeys(moves)) if moves else {}
        if not admin.moves():
            remove_throttle(admin, admin.cluster())
    back = {
        key: tuple(r for r in move.replicas if r not in move.adding)
        for key, move in moves.items()
        if key not in refused
    }
    _report("cancelled", cluster, back, refused, as_json=as_json)


def read_plan(file: IO[str]) -> dict[Key, Replicas]:
    """The replicas by partition of a plan in the form of kafka-reassign-partitions; whatever else it is, is wrong use."""
    try:
        found = json.load(file)
    except json.JSONDecodeError as error:
        raise _no_plan(f"it is no JSON (line {error.lineno}, column {error.colno}: {error.msg})") from None
    except UnicodeDecodeError:
        raise _no_plan("it is no text in UTF-8") from None
    listed = found.get("partitions") if isinstance(found, dict) else None
    if not isinstance(listed, list):
        raise _no_plan("it has no list of partitions")
    targets: dict[Key, Replicas] = {}
    for number, entry in enumerate(listed, 1):
        match entry:
            case {"topic": str(topic), "partition": int(partition), "replicas": [*replicas]} if all(
                isinstance(replica, int) for replica in replicas
            ):
                if (topic, partition) in targets:
                    raise click.UsageError(f"--plan: {topic}-{partition} is named twice.")
                targets[topic, partition] = tuple(replicas)
            case _:
                raise _no_plan(f"of its partitions number {number} has no topic, partition and replicas")
    return targets


def _no_plan(reason: str) -> click.UsageError:
    return click.UsageError(
        f"--plan: {reason}; write it as "
        '{"version":1,"partitions":[{"topic":"pageviews","partition":0,"replicas":[1,2]}]}.'
    )


def _planned(cluster: ClusterLook, brokers: Sequence[int] | None, factor: int | None) -> dict[Key, Replicas]:
    """The replicas of the partitions that have to move."""
    if cluster.unknown:
        raise no_such_topic(cluster.unknown[0])
    dead = sorted(set(brokers or ()) - cluster.racks.keys())
    if dead:
        raise click.ClickException(
            f"broker {dead[0]} is not alive; name some of {', '.join(map(str, sorted(cluster.racks)))}."
        )
    racks = {b: rack for b, rack in cluster.racks.items() if brokers is None or b in brokers}
    present = {key: partition.replicas for key, partition in cluster.partitions.items()}
    try:
        targets = plan(present, racks, factor)
    except PlanError as error:
        raise click.ClickException(f"{error}.") from None
    return {key: replicas for key, replicas in targets.items() if replicas != present[key]}


def _await(admin: ClusterAdmin, wanted: Iterable[Key]) -> None:
    """Return once none of these partitions is moving any more, and tell a person how many still are."""
    keys = set(wanted)
    console = Console(stderr=True)
    with console.status("") as status:
        while left := keys & admin.moves().keys():
            topics = Counter(topic for topic, _ in left)
            what = ", ".join(f"{topic} {count}" for topic, count in sorted(topics.items()))
            status.update(f"{len(keys) - len(left)} of {len(keys)} partitions have moved; left: {what}")
            time.sleep(POLL_SECONDS)


def _report(
    verb: str,
    cluster: ClusterLook,
    done: Mapping[Key, Replicas],
    refused: Mapping[Key, KafkaError],
    *,
    as_json: bool,
) -> None:
    """What was begun or ended, and what was refused: then the command failed."""
    rows = [_row(key, _replicas_now(cluster, key), replicas) for key, replicas in sorted(done.items())]
    failures = [
        {"topic": t, "partition": p, "error": str(error)} for (t, p), error in sorted(refused.items())
    ]
    if as_json:
        click.echo(json.dumps({verb: rows, "refused": failures}))
    elif rows:
        click.echo(f"{verb} {len(rows)} partitions")
        print_rows(rows)
    elif not failures:
        click.echo("nothing has to move" if verb != "cancelled" else "nothing is moving")
    if failures:
        first = failures[0]
        raise click.ClickException(
            f"{len(failures)} partitions were refused, as {first['topic']}-{first['partition']}: {first['error']}"
        )


def _replicas_now(cluster: ClusterLook, key: Key) -> Replicas:
    found = cluster.partitions.get(key)
    return () if found is None else found.replicas


def _row(key: Key, before: Sequence[int], after: Sequence[int]) -> dict[str, Any]:
    return {"topic": key[0], "partition": key[1], "from": list(before), "to": list(after)}


def _progress(key: Key, move: Move, cluster: ClusterLook) -> dict[str, Any]:
    partition = cluster.partitions.get(key)
    in_sync = () if partition is None else partition.isr
    return {
        **_row(
            key,
            [r for r in move.replicas if r not in move.adding],
            [r for r in move.replicas if r not in move.removing],
        ),
        "waits for": [r for r in move.replicas if r not in move.removing and r not in in_sync],
    }
