"""`headrace audit accept` and `headrace audit reopen`: say of findings that they are known and why, or take that back."""

from __future__ import annotations

import click

from headrace.audit.acceptance_log import AcceptanceLog, NotKeptError
from headrace.audit.acceptances import Acceptance, to_accept, to_reopen
from headrace.audit.commands.watch import OpenAuditor, read_all, reader_options
from headrace.audit.period import ALWAYS
from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.moment import now_ms

by_option = click.option("--by", required=True, metavar="NAME", help="Who says so.")
reason_option = click.option("--reason", required=True, metavar="TEXT", help="Why.")


@click.command()
@click.argument("ids", metavar="FINDING…", nargs=-1, required=True)
@reason_option
@by_option
@reader_options
def accept(
    opened: OpenAuditor, silent_after_seconds: float, ids: tuple[str, ...], reason: str, by: str
) -> None:
    """Accept findings, by the ids that a report shows: they stay in its totals, and alert nobody any more.

    Example: headrace audit accept 0f3a5c77d2e1 --reason "disk lost, ticket 4711" --by ada --bootstrap 127.0.3.1:9092
    """
    auditor = opened()
    read_all(auditor)
    auditor.read_settled(ALWAYS)
    outcome = auditor.judged(now_ms(), silent_after_seconds)
    try:
        items = to_accept(ids, outcome.findings, auditor.ledger.acceptances, by, reason, now_ms())
    except ValueError as error:
        raise click.ClickException(f"{error}.") from error
    _keep(auditor.bootstrap, items)
    click.echo(f"accepted {', '.join(ids)}")


@click.command()
@click.argument("ids", metavar="FINDING…", nargs=-1, required=True)
@reason_option
@by_option
@reader_options
def reopen(
    opened: OpenAuditor, silent_after_seconds: float, ids: tuple[str, ...], reason: str, by: str
) -> None:
    """Open accepted findings again.

    Example: headrace audit reopen 0f3a5c77d2e1 --reason "it goes on" --by ada --bootstrap 127.0.3.1:9092
    """
    auditor = opened()
    read_all(auditor)
    try:
        items = to_reopen(ids, auditor.ledger.acceptances, by, reason, now_ms())
    except ValueError as error:
        raise click.ClickException(f"{error}.") from error
    _keep(auditor.bootstrap, items)
    click.echo(f"open again: {', '.join(ids)}")


def _keep(bootstrap: Bootstrap, items: list[Acceptance]) -> None:
    try:
        AcceptanceLog(bootstrap).append(items)
    except NotKeptError as error:
        raise click.ClickException(f"{error}; say it again.") from error
