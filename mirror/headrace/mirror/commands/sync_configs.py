"""`headrace mirror sync-configs`: has the copies of a source configured as its topics are, once, and says what that changes."""

from __future__ import annotations

import click

from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.config.copies import MIRROR_CLUSTERS
from headrace.broker.errors import KafkaError
from headrace.mirror import lineage
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.commands.options import bootstrap_option, dry_run_option, run
from headrace.mirror.sync import configs
from headrace.mirror.sync.configs import SYNCED_CONFIGS
from headrace.mirror.told import copied_source_client, names_of


@click.command(
    "sync-configs", epilog="Example: headrace mirror sync-configs dc-east --bootstrap 127.0.3.1:9092"
)
@click.argument("source")
@bootstrap_option
@dry_run_option
def sync_configs(source: str, bootstrap: Bootstrap, dry_run: bool) -> None:
    """Configure the copies as their topics at the source are, now: what a cleaner keeps, and what clients may write.

    \b
    Brokers do the same again and again, unless `mirror.SOURCE.sync.configs` is false.
    Retention, replicas and all else stay as they are here.
    """
    for line in run(bootstrap, lambda client: _sync(client, source, dry_run=dry_run)):
        click.echo(line)


async def _sync(client: ClusterClient, source: str, *, dry_run: bool) -> list[str]:
    """What to say: a line for each copy that is, or would be, changed; raises ClickException where one is refused."""
    names = await names_of(client)
    topics = sorted({topic for topic, _ in client.leaders if names.source_of(topic) == source})
    here = await client.configs_of(topics, (*SYNCED_CONFIGS, MIRROR_CLUSTERS))
    copies = {topic: names.original_of(topic) for topic in topics if lineage.clusters_of(here.get(topic, {}))}
    async with copied_source_client(client, source) as other:
        there = await other.configs_of(list(copies.values()), SYNCED_CONFIGS)
    said = []
    for name, original in copies.items():
        found = configs.changes(there.get(original, {}), here[name])
        if not found:
            continue
        if not dry_run:
            await _set(client, name, found)
        said.append(configs.told(name, found, here[name]))
    verb = "would be" if dry_run else "are"
    return [*said, f"{len(said)} of {len(copies)} copies {verb} changed."]


async def _set(client: ClusterClient, topic: str, values: dict[str, str]) -> None:
    try:
        await client.set_topic_configs(topic, values)
    except KafkaError as error:
        raise click.ClickException(f"{topic} cannot be configured as its source: {error}") from error
