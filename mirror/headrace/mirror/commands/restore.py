"""`headrace mirror restore`: promoted topics become copies of their sources again, and lose what is their own."""

from __future__ import annotations

import click

from headrace.broker.client.bootstrap import Bootstrap
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.commands.options import bootstrap_option, dry_run_option, run
from headrace.mirror.verbs import restoration


@click.command(epilog="Example: headrace mirror restore dc-east.pageviews --yes --bootstrap 127.0.3.1:9092")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--yes", is_flag=True, help="Do it: what the topics have of their own is gone then.")
@click.option(
    "--timeout", default=60.0, type=click.FloatRange(min=0), help="Seconds to wait for.", show_default=True
)
@bootstrap_option
@dry_run_option
def restore(topics: tuple[str, ...], yes: bool, timeout: float, bootstrap: Bootstrap, dry_run: bool) -> None:
    """Make promoted topics copies of their sources again: cut what is their own, and copy on from there.

    \b
    Without --yes it says what would be cut, and does nothing. Stop those that write and read here first:
    what clients wrote after the promotion is lost, and its offsets are the source's messages then.
    """
    for line in run(
        bootstrap, lambda client: _restore(client, topics, timeout, is_meant=yes and not dry_run)
    ):
        click.echo(line)


async def _restore(
    client: ClusterClient, topics: tuple[str, ...], timeout_seconds: float, *, is_meant: bool
) -> list[str]:
    """What to say at the end; raises ClickException."""
    plan = await restoration.plan(client, topics)
    for line in (*plan.cuts, *plan.readers):
        click.echo(f"{line}.")
    wanted = [*plan.marks, *plan.begun]
    if is_meant:
        await restoration.order(client, plan)
        if wanted:
            await restoration.until_done(client, wanted, timeout_seconds)
    done = "is a copy again" if is_meant else "would be a copy again, with --yes"
    already = [f"{topic} is a copy: there is nothing to restore." for topic in plan.done]
    return [*already, *(f"{topic} {done}." for topic in wanted)]
