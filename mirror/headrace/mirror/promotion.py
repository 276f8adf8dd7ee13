"""Making a copy a topic of this cluster, which its clients write to: what a failover does (`headrace mirror promote`)."""

from __future__ import annotations

import click

from headrace.broker.config.copies import MIRROR_CLUSTERS
from headrace.broker.errors import KafkaError
from headrace.mirror import lineage
from headrace.mirror.cluster_client import ClusterClient


async def promote(client: ClusterClient, topics: tuple[str, ...]) -> None:
    """End these copies, all or, when one of them is none, none of them; raises ClickException."""
    for topic in topics:
        if not lineage.clusters_of(await _configs(client, topic)):
            raise click.ClickException(
                f"{topic} is no copy (it has no configuration {MIRROR_CLUSTERS}); nothing was promoted"
            )
    for topic in topics:
        try:
            await client.set_topic_config(topic, MIRROR_CLUSTERS, "")
        except KafkaError as error:
            raise click.ClickException(f"{topic} was not promoted: {error}; try again") from error


async def _configs(client: ClusterClient, topic: str) -> dict[str, str]:
    try:
        return await client.topic_configs(topic)
    except KafkaError as error:
        raise click.ClickException(f"{topic} cannot be promoted: {error}; nothing was promoted") from error
