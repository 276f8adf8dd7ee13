"""What the verbs of `headrace mirror` share: options, and how one runs against the offline cluster."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from headrace.broker.client import bootstrap_option as options
from headrace.broker.client.asynchronous import FAILURES
from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.errors import KafkaError, reason_of
from headrace.mirror.cluster_client import ClusterClient

Answer = TypeVar("Answer")

bootstrap_option = options.bootstrap_option("Brokers of the cluster that holds the copies.")

dry_run_option = click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")


class PatternType(click.ParamType[re.Pattern[str]]):
    """A regular expression."""

    name = "REGEX"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> re.Pattern[str]:
        try:
            return re.compile(value)
        except re.error as error:
            self.fail(f"{value!r} is no regular expression: {error}", param, ctx)


groups_option = click.option(
    "--groups",
    "pattern",
    type=PatternType(),
    default=".*",
    metavar="REGEX",
    help="Groups of the source, by their whole name.",
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def run(bootstrap: Bootstrap, work: Callable[[ClusterClient], Awaitable[Answer]]) -> Answer:
    """Do this with the offline cluster; raises ClickException where the cluster does not answer."""

    async def with_client() -> Answer:
        async with ClusterClient(bootstrap.addresses, security=bootstrap.security) as client:
            return await work(client)

    try:
        return asyncio.run(with_client())
    except (*FAILURES, KafkaError) as error:
        raise click.ClickException(
            f"the cluster at {bootstrap} does not answer ({reason_of(error)}): "
            "check --bootstrap, and that its brokers and their ZooKeeper run"
        ) from error
