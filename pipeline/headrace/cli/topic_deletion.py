"""Which topics are marked for deletion and still there, and what they wait for: partitions that move.

Told beside what a command is about: where the controller does not answer at once, or does not let ask, nothing is known.
"""

from __future__ import annotations

from typing import Final

import click

from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.wire.partitions import PartitionKey
from headrace.cli.cluster_admin import ClusterAdmin

ANSWER_SECONDS: Final = 2.0
MARKED: Final = "marked for deletion"


def doomed_topics(bootstrap: Bootstrap) -> set[str] | None:
    """Topics that go once their partitions have moved; None: nobody knows."""
    try:
        with _asking(bootstrap) as admin:
            moving = {topic for topic, _ in admin.moves()}
            return admin.doomed(sorted(moving)) if moving else set()
    except click.ClickException:
        return None


def moving_partitions(bootstrap: Bootstrap, topic: str) -> list[PartitionKey]:
    """The partitions of a topic that move, as far as somebody knows."""
    try:
        with _asking(bootstrap) as admin:
            return sorted(key for key in admin.moves() if key[0] == topic)
    except click.ClickException:
        return []


def is_marked(topic: str, doomed: set[str] | None) -> bool | None:
    """None: nobody knows."""
    return None if doomed is None else topic in doomed


def _asking(bootstrap: Bootstrap) -> ClusterAdmin:
    return ClusterAdmin(bootstrap, timeout_seconds=ANSWER_SECONDS, attempts_max=1)
