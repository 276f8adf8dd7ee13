"""What every command of the mirror says of a cluster that does not answer."""

from __future__ import annotations

import click
import pytest

from headrace.broker.client.bootstrap import Bootstrap
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.commands.options import run


async def nothing(client: ClusterClient) -> None:
    pass


async def unanswered(client: ClusterClient) -> None:
    raise TimeoutError


def test_who_waits_in_vain_is_sent_to_the_brokers_and_their_zookeeper(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ClusterClient, "refresh", nothing)
    with pytest.raises(
        click.ClickException, match=r"\(no answer in time\): .*its brokers and their ZooKeeper run"
    ):
        run(Bootstrap("127.0.0.1:9092"), unanswered)
