"""Users of an HTTP server and their hashed passwords: a file with a line for each, and the command that makes a line.

A line is `NAME:scrypt:N:R:P:SALT:HASH`, salt and hash in base64; `#` begins a comment. Scrypt (RFC 7914) is the standard
library's, with the cost that OWASP names for it. Invariant: how long a refusal takes does not tell whether there is such a
user. Pure, but for reading the file.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import sys
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click

COST, BLOCK_SIZE, PARALLELISM = 2**15, 8, 1
COST_MAX: Final = 2**18
BLOCK_SIZE_MAX: Final = 32
PARALLELISM_MAX: Final = 16
SALT_SIZE, HASH_SIZE = 16, 32
MEMORY_MAX: Final = 512 * 1024 * 1024
USERS_MAX: Final = 10_000
MEMBER_COUNT: Final = 7


@dataclass(frozen=True, slots=True)
class HashedPassword:
    """What scrypt makes of a password."""

    cost: int
    block_size: int
    parallelism: int
    salt: bytes = field(repr=False)
    hash: bytes = field(repr=False)

    @classmethod
    def of(cls, password: str, salt: bytes) -> HashedPassword:
        hashed = _scrypt(password, salt, COST, BLOCK_SIZE, PARALLELISM, HASH_SIZE)
        return cls(COST, BLOCK_SIZE, PARALLELISM, salt, hashed)

    def is_of(self, password: str) -> bool:
        """Takes about a tenth of a second."""
        size = len(self.hash)
        found = _scrypt(password, self.salt, self.cost, self.block_size, self.parallelism, size)
        return hmac.compare_digest(found, self.hash)

    def text(self) -> str:
        salt, hashed = b64encode(self.salt).decode(), b64encode(self.hash).decode()
        return f"scrypt:{self.cost}:{self.block_size}:{self.parallelism}:{salt}:{hashed}"


def _scrypt(password: str, salt: bytes, cost: int, block_size: int, parallelism: int, size: int) -> bytes:
    return hashlib.scrypt(
        password.encode(), salt=salt, n=cost, r=block_size, p=parallelism, maxmem=MEMORY_MAX, dklen=size
    )


class Users:
    """Who may come in."""

    def __init__(self, users: Mapping[str, HashedPassword]) -> None:
        self._users = users
        self._nobody = HashedPassword.of("", b"nobody has this one")

    def is_known(self, name: str, password: str) -> bool:
        """Whether it is this user's password; takes as long for a user that there is not."""
        found = self._users.get(name)
        return (found or self._nobody).is_of(password) and found is not None


def read_users(path: Path) -> Users:
    """Raises ValueError with a sentence that quotes nothing of the file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise ValueError(f"{path} cannot be read: {reason}") from None
    users: dict[str, HashedPassword] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, hashed = _parsed(line.strip(), f"{path}, line {number}")
        if name in users or len(users) >= USERS_MAX:
            raise ValueError(
                f"{path}, line {number} is one user too many: give each once, and {USERS_MAX} at most"
            )
        users[name] = hashed
    if not users:
        raise ValueError(f"{path} has no user: make a line with `headrace hash-password NAME`")
    return Users(users)


def _parsed(line: str, place: str) -> tuple[str, HashedPassword]:
    members = line.split(":")
    try:
        if len(members) != MEMBER_COUNT or members[1] != "scrypt" or not members[0]:
            raise ValueError
        cost, block_size, parallelism = map(int, members[2:5])
        salt, hashed = (b64decode(text, validate=True) for text in members[5:])
        within = (
            2 <= cost <= COST_MAX
            and 1 <= block_size <= BLOCK_SIZE_MAX
            and 1 <= parallelism <= PARALLELISM_MAX
        )
        if not within or cost & (cost - 1) or not hashed:
            raise ValueError
    except ValueError:
        raise ValueError(f"{place} is no user: make one with `headrace hash-password NAME`") from None
    return members[0], HashedPassword(cost, block_size, parallelism, salt, hashed)


@click.command("hash-password", epilog="Example: headrace hash-password ada >> users")
@click.argument("name")
@click.option(
    "--stdin",
    is_flag=True,
    help="Read the password from the first line of standard input, without asking for it.",
)
def hash_password(name: str, stdin: bool) -> None:
    """Print a line of a file for --users, of NAME and a password that is asked for and hashed."""
    if ":" in name or not name.strip() or name.startswith("#"):
        raise click.UsageError(f"{name!r} cannot be a name: give one without a colon that begins with no #.")
    if stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    else:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    if not password:
        raise click.UsageError("The password is empty.")
    click.echo(f"{name}:{HashedPassword.of(password, os.urandom(SALT_SIZE)).text()}")
