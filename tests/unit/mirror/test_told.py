"""What commands read of a cluster's mirror: what was promoted there, and whether a source has copies."""

from __future__ import annotations

import asyncio
from typing import Any, cast
from uuid import UUID

import click
import pytest
from one_topic_cluster import Cluster

from headrace.broker.config.copies import MIRROR_CLUSTERS
from headrace.broker.wire.batches import Record
from headrace.mirror.memory.orders import PROMOTED, Promoted, encode_promoted, key_of
from headrace.mirror.memory.reports import Report, SourceReport
from headrace.mirror.told import copied_source_client, folded, promoted_of

T, WAS = "dc-east.t", Promoted("EAST", UUID(int=3))


def promoted(cluster: Cluster) -> dict[str, Promoted]:
    async def work() -> dict[str, Promoted]:
        client = cast("Any", cluster)
        return await promoted_of(client, await folded(client))

    return asyncio.run(work())


def test_a_topic_was_promoted_until_it_is_a_copy_again_or_deleted() -> None:
    cluster = Cluster("HERE", T, UUID(int=9), [])
    cluster.configs = {MIRROR_CLUSTERS: ""}
    assert promoted(cluster) == {}, "nobody has written down what it was"
    cluster.records = {key_of(T, PROMOTED): encode_promoted(WAS), key_of("u", PROMOTED): encode_promoted(WAS)}
    assert promoted(cluster) == {T: WAS}
    cluster.configs = {MIRROR_CLUSTERS: "EAST"}
    assert promoted(cluster) == {}


class Reporting(Cluster):
    """Whose broker brings dc-east into aggregates."""

    async def read(self, topic: str) -> dict[int, list[Record]]:
        source = SourceReport(
            name="dc-east", bootstrap="127.0.0.1:1", answered_ms=1, problem="", is_aggregate=True
        )
        report = Report(broker=1, at_ms=1, sources=(source,))
        self.records = {b"1": report.encode()}
        return await super().read(topic)


def test_a_source_of_aggregates_has_no_copies_to_speak_of() -> None:
    async def work() -> None:
        client = cast("Any", Reporting("HERE", T, UUID(int=9), []))
        async with copied_source_client(client, "dc-east"):
            raise AssertionError("it was not refused")

    with pytest.raises(click.ClickException, match="dc-east is brought into aggregates, and has no copies"):
        asyncio.run(work())
