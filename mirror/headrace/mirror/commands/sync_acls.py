"""`headrace mirror sync-acls`: lets those read copies who may read their topics at the source, once, and says what changes."""

from __future__ import annotations

import click

from headrace.broker.client.asynchronous import FAILURES
from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.errors import KafkaError, reason_of
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.commands.options import bootstrap_option, dry_run_option, run
from headrace.mirror.sync import acl_grants, acls
from headrace.mirror.told import copied_source_client


@click.command("sync-acls", epilog="Example: headrace mirror sync-acls dc-east --bootstrap 127.0.3.1:9092")
@click.argument("source")
@bootstrap_option
@dry_run_option
def sync_acls(source: str, bootstrap: Bootstrap, dry_run: bool) -> None:
    """Let those read and describe the copies who may their topics at the source, and nobody else by a copy's own list.

    \b
    What is denied there is denied here; nothing but reading is ever allowed.
    `mirror.SOURCE.sync.acls=true` has the brokers do the same again and again.
    """
    for line in run(bootstrap, lambda client: _sync(client, source, dry_run=dry_run)):
        click.echo(line)


async def _sync(client: ClusterClient, source: str, *, dry_run: bool) -> list[str]:
    async with copied_source_client(client, source) as there:
        try:
            found = await acl_grants.moves(client, there, source)
            if not dry_run:
                await acl_grants.bring(client, found)
        except (*FAILURES, KafkaError) as error:
            reason = reason_of(error)
            raise click.ClickException(f"access control lists are not brought: {reason}") from error
    changed = [acls.told(each) for each in found if each.added or each.removed]
    verb = "would be" if dry_run else "are"
    return [*changed, f"the lists of {len(changed)} of {len(found)} copies {verb} changed."]
