"""`headrace mirror topics`: chooses, while the brokers run, which of the topics that are configured are copied."""

from __future__ import annotations

import re
from collections.abc import Collection

import click

from headrace.mirror import lineage, ordering, orders
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.options import PatternType, bootstrap_option, dry_run_option, run
from headrace.mirror.overview import source_of
from headrace.mirror.states import States
from headrace.mirror.told import folded, newest, source_client, topic_of

Choice = re.Pattern[str] | None


@click.command(epilog="Example: headrace mirror topics dc-east '(?!debug[.]).*' --bootstrap 127.0.3.1:9092")
@click.argument("source")
@click.argument("choice", type=PatternType(), required=False, metavar="[REGEX]")
@bootstrap_option
@dry_run_option
def topics(source: str, choice: Choice, bootstrap: str, dry_run: bool) -> None:
    """Copy only those topics of a source whose whole name matches, from now on; without REGEX all that are configured.

    \b
    `mirror.SOURCE.topics` has to allow them, too. Copies of the others stay as they are,
    and go on where they were when they are chosen again.
    """
    for line in run(bootstrap, lambda client: _choose(client, source, choice, dry_run=dry_run)):
        click.echo(line)


def left_out(known: States, names: Collection[str]) -> frozenset[str]:
    """Those of these topics that would be copied to, had others not been chosen."""
    return frozenset(
        name for name in names if not _is_chosen(name, source_of(name), known.choice_of(source_of(name)))
    )


def _is_chosen(copy: str, source: str, choice: Choice) -> bool:
    return orders.chooses(choice, copy.removeprefix(f"{source}."))


async def _choose(client: ClusterClient, source: str, choice: Choice, *, dry_run: bool) -> list[str]:
    """What to say; raises ClickException."""
    async with source_client(client, source) as there:
        names = {topic for topic, _ in there.leaders if not lineage.is_internal(topic)}
    known = await folded(client)
    copies = {topic_of(place) for place in newest(known, client)}
    if not dry_run:
        await ordering.choose(client, source, None if choice is None else choice.pattern)
    return _told(source, names, copies, known.choice_of(source), choice, dry_run=dry_run)


def _told(
    source: str,
    names: Collection[str],
    copies: Collection[str],
    before: Choice,
    after: Choice,
    *,
    dry_run: bool,
) -> list[str]:
    own = sorted(copy for copy in copies if source_of(copy) == source)
    verb = "would be" if dry_run else "is"
    said = []
    for copy in own:
        was, will = (_is_chosen(copy, source, choice) for choice in (before, after))
        if was and not will:
            said.append(f"{copy} {verb} left out; it stays what it is.")
        elif will and not was:
            said.append(f"{copy} {verb} copied to again, from where it is on.")
    count = sum(orders.chooses(after, name) for name in names)
    return [*said, f"{count} of {len(names)} topics of {source} {'would be' if dry_run else 'are'} chosen."]
