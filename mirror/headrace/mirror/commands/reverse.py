"""`headrace mirror reverse`: after a fail-over, topics become copies of what were their copies."""

from __future__ import annotations

import click

from headrace.broker.client.bootstrap import Bootstrap
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.commands.options import bootstrap_option, dry_run_option, run
from headrace.mirror.verbs import restoration, reversal
from headrace.mirror.verbs.reversal import Reversal


@click.command(epilog="Example: headrace mirror reverse offline pageviews --yes --bootstrap 127.0.1.1:9092")
@click.argument("source")
@click.argument("topics", nargs=-1, metavar="[TOPIC...]")
@click.option("--yes", is_flag=True, help="Do it: what the topics have alone is gone then.")
@click.option(
    "--timeout", default=60.0, type=click.FloatRange(min=0), help="Seconds to wait for.", show_default=True
)
@bootstrap_option
@dry_run_option
def reverse(
    source: str, topics: tuple[str, ...], yes: bool, timeout: float, bootstrap: Bootstrap, dry_run: bool
) -> None:
    """Copy back after a fail-over: make topics here copies of their copies at SOURCE that were promoted there.

    \b
    --bootstrap names the cluster that was given up and is back; SOURCE is the one that took over, in its mirror.sources.
    Without --yes it says what would be cut, and does nothing; without a TOPIC it is about all that were promoted there,
    but those that cannot be copied back: they are named, and it exits 1.
    `headrace mirror promote` is the way back, once producers have moved.
    """
    found = run(
        bootstrap, lambda client: _reverse(client, source, topics, timeout, is_meant=yes and not dry_run)
    )
    for unfit in found.unfit:
        click.echo(f"{unfit.topic} is left out: {unfit.reason}.", err=True)
    if found.unfit:
        raise click.exceptions.Exit(1)


async def _reverse(
    client: ClusterClient, source: str, topics: tuple[str, ...], timeout_seconds: float, *, is_meant: bool
) -> Reversal:
    """What came of it, which is said; raises ClickException."""
    found = await reversal.plan(client, source, topics)
    plan, missing = found.plan, found.missing
    for line in (*plan.cuts, *plan.readers):
        click.echo(f"{line}.")
    wanted = [*plan.marks, *plan.begun]
    if is_meant:
        await reversal.create(client, missing)
        await restoration.order(client, plan)
        if wanted:
            await restoration.until_done(client, wanted, timeout_seconds)
    done = f"is copied from {source} now" if is_meant else f"would be copied from {source}, with --yes"
    said = [
        *(f"{topic} is a copy already." for topic in plan.done),
        *(f"{topic} is not here: it {'is' if is_meant else 'would be'} made anew." for topic in missing),
        *(f"{topic} {done}." for topic in (*wanted, *missing)),
    ]
    if not said and not found.unfit:
        said = [f"{source} has no topic that was promoted from a copy of one of this cluster's."]
    for line in said:
        click.echo(line)
    return found
