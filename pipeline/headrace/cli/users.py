"""`headrace users`: who may log in by SCRAM, and with which password (KIP-554).

By the Kafka protocol alone, so it serves Apache Kafka's brokers, too. A password is asked for, or read from standard input: on a
command line the list of processes would show it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from headrace.broker.auth.sasl.credentials import ITERATIONS_MAX, ITERATIONS_MIN
from headrace.broker.client.bootstrap import Bootstrap
from headrace.cli.cluster_admin import ClusterAdmin
from headrace.cli.shared import bootstrap_option, json_option, print_rows, say
from headrace.cli.user_admin import CODES, UserAdmin

mechanism_option = click.option(
    "--mechanism",
    "mechanisms",
    multiple=True,
    type=click.Choice(list(CODES)),
    help="Only for this mechanism; may be given for each.  [default: both]",
)
iterations_option = click.option(
    "--iterations",
    type=click.IntRange(ITERATIONS_MIN, ITERATIONS_MAX),
    default=ITERATIONS_MIN,
    show_default=True,
    help="How much a guess at the password costs, and each log-in.",
)


@click.group(epilog="Example: headrace users add alice --bootstrap 127.0.0.1:9092")
def users() -> None:
    """List users that log in by SCRAM, add and remove them and change their passwords."""


@contextmanager
def _asking(bootstrap: Bootstrap) -> Iterator[UserAdmin]:
    with ClusterAdmin(bootstrap, "headrace-users") as cluster:
        yield UserAdmin(cluster)


@users.command("list", epilog="Example: headrace users list --bootstrap 127.0.0.1:9092 --json")
@bootstrap_option
@json_option
def list_users(bootstrap: Bootstrap, as_json: bool) -> None:
    """Print all users that have a password, with their mechanisms and iterations."""
    with _asking(bootstrap) as admin:
        found = admin.mechanisms()
    rows = [
        {"user": user, "mechanism": mechanism, "iterations": iterations}
        for user, by_mechanism in sorted(found.items())
        for mechanism, iterations in by_mechanism.items()
    ]
    if rows and not as_json:
        print_rows(rows)
    else:
        say({"users": rows}, "No user has a password for SCRAM.", as_json=as_json)


@users.command(epilog="Example: headrace users add alice --bootstrap 127.0.0.1:9092 < password.txt")
@click.argument("user")
@mechanism_option
@iterations_option
@bootstrap_option
@json_option
def add(user: str, mechanisms: tuple[str, ...], iterations: int, bootstrap: Bootstrap, as_json: bool) -> None:
    """Give a user its first password."""
    _check_name(user)
    with _asking(bootstrap) as admin:
        if admin.mechanisms(user):
            raise click.ClickException(
                f"User {user} has a password: `headrace users password {user}` changes it."
            )
        wanted = mechanisms or tuple(CODES)
        admin.set_password(user, _password(user), wanted, iterations)
    say({"user": user, "mechanisms": list(wanted)}, f"User {user} may log in.", as_json=as_json)


@users.command(epilog="Example: headrace users password alice --bootstrap 127.0.0.1:9092 < password.txt")
@click.argument("user")
@mechanism_option
@iterations_option
@bootstrap_option
@json_option
def password(
    user: str, mechanisms: tuple[str, ...], iterations: int, bootstrap: Bootstrap, as_json: bool
) -> None:
    """Change a user's password, for the mechanisms that it has one for."""
    _check_name(user)
    with _asking(bootstrap) as admin:
        wanted = mechanisms or tuple(_known(admin, user))
        admin.set_password(user, _password(user), wanted, iterations)
    sentence = f"User {user} logs in with the new password from now on."
    say({"user": user, "mechanisms": list(wanted)}, sentence, as_json=as_json)


@users.command(epilog="Example: headrace users remove alice --bootstrap 127.0.0.1:9092")
@click.argument("user")
@mechanism_option
@bootstrap_option
@json_option
def remove(user: str, mechanisms: tuple[str, ...], bootstrap: Bootstrap, as_json: bool) -> None:
    """Take a user's passwords away; connections that are logged in stay until their session is over."""
    with _asking(bootstrap) as admin:
        wanted = mechanisms or tuple(_known(admin, user))
        admin.remove(user, wanted)
    say(
        {"user": user, "mechanisms": list(wanted)},
        f"User {user} has no password any more for {', '.join(wanted)}.",
        as_json=as_json,
    )


def _check_name(user: str) -> None:
    if not re.fullmatch(r"[\x01-\x7f]+", user):
        raise click.UsageError(
            f"User {user!r} could not log in: in SCRAM brokers, Apache Kafka's too, read names of ASCII characters alone; "
            "choose such a name."
        )


def _known(admin: UserAdmin, user: str) -> dict[str, int]:
    found = admin.mechanisms(user).get(user)
    if not found:
        raise click.ClickException(f"There is no user {user!r}: `headrace users list` shows those there are.")
    return found


def _password(user: str) -> str:
    """Asked for where somebody sits, else the first line of standard input."""
    if sys.stdin.isatty():
        typed: str = click.prompt(f"Password of {user}", hide_input=True, confirmation_prompt=True)
        return typed
    return sys.stdin.readline().rstrip("\r\n")
