"""`headrace mirror topics`: chooses, while the brokers run, which of the topics that are configured are copied."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import click

from headrace.broker.client.bootstrap import Bootstrap
from headrace.mirror import lineage
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.commands.options import PatternType, bootstrap_option, dry_run_option, run
from headrace.mirror.memory import orders
from headrace.mirror.memory.state import topic_of
from headrace.mirror.memory.states import States
from headrace.mirror.names import CopyNames
from headrace.mirror.told import folded, names_of, newest, source_client
from headrace.mirror.verbs import ordering

Choice = re.Pattern[str] | None


@click.command(epilog="Example: headrace mirror topics dc-east '(?!debug[.]).*' --bootstrap 127.0.3.1:9092")
@click.argument("source")
@click.argument("choice", type=PatternType(), required=False, metavar="[REGEX]")
@bootstrap_option
@dry_run_option
def topics(source: str, choice: Choice, bootstrap: Bootstrap, dry_run: bool) -> None:
    """Copy only those topics of a source whose whole name matches, from now on; without REGEX all that are configured.

    \b
    `mirror.SOURCE.topics` has to allow them, too. Copies of the others stay as they are,
    and go on where they were when they are chosen again.
    """
    for line in run(bootstrap, lambda client: _choose(client, source, choice, dry_run=dry_run)):
        click.echo(line)


def left_out(known: States, topics: Collection[str], names: CopyNames) -> frozenset[str]:
    """Those of these topics that would be copied to, had others not been chosen."""
    return frozenset(
        topic
        for topic in topics
        if not orders.chooses(known.choice_of(names.source_of(topic)), names.original_of(topic))
    )


async def _choose(client: ClusterClient, source: str, choice: Choice, *, dry_run: bool) -> list[str]:
    """What to say; raises ClickException."""
    async with source_client(client, source) as there:
        topics = {topic for topic, _ in there.leaders if not lineage.is_internal(topic)}
    known, names = await folded(client), await names_of(client)
    copies = {topic_of(place) for place in newest(known, client)}
    own = {copy: names.original_of(copy) for copy in sorted(copies) if names.source_of(copy) == source}
    if not dry_run:
        await ordering.choose(client, source, None if choice is None else choice.pattern)
    return _told(source, topics, own, known.choice_of(source), choice, dry_run=dry_run)


def _told(
    source: str,
    topics: Collection[str],
    copies: Mapping[str, str],
    before: Choice,
    after: Choice,
    *,
    dry_run: bool,
) -> list[str]:
    """`copies` are the source's topics by their copies."""
    verb = "would be" if dry_run else "is"
    said = []
    for copy, topic in copies.items():
        was, will = (orders.chooses(choice, topic) for choice in (before, after))
        if was and not will:
            said.append(f"{copy} {verb} left out; it stays what it is.")
        elif will and not was:
            said.append(f"{copy} {verb} copied to again, from where it is on.")
    count = sum(orders.chooses(after, topic) for topic in topics)
    return [*said, f"{count} of {len(topics)} topics of {source} {'would be' if dry_run else 'are'} chosen."]
