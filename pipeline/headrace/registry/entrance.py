"""Who may ask an HTTP server of the pipeline: TLS with certificate files, and basic authentication (RFC 7617).

Shared by the registry and the audit's page. Invariants: a password is checked in a thread, one at a time, so that guesses
keep nobody waiting who was let in before; who was let in is remembered by a digest under a key of this process alone. A
renewed certificate is served from the next handshake on.
"""

from __future__ import annotations

import asyncio
import functools
import hmac
import secrets
import ssl
from base64 import b64decode
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from cryptography import x509
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from headrace.broker.structured_log import get_logger
from headrace.registry.passwords import Users, read_users

logger = get_logger(__name__)
REMEMBERED_MAX: Final = 1_000
CHECKS_WAITING_MAX: Final = 64
HEADER_SIZE_MAX: Final = 4_096
Command = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrance:
    """Files of a certificate and its key, and the users; None of each where it is not wanted."""

    certificate: Path | None = None
    key: Path | None = None
    users: Users | None = None

    @property
    def scheme(self) -> str:
        return "http" if self.certificate is None else "https"

    def context(self) -> ssl.SSLContext | None:
        """Of TLS 1.2 and 1.3; raises ClickException with a sentence."""
        if self.certificate is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.certificate, self.key, password=_no_password)
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
            raise click.ClickException(
                f"--tls-certificate {self.certificate} with its key cannot be used ({reason}): give PEM files of a pair."
            ) from None
        return context

    def expires_s(self) -> float | None:
        """When the certificate in the file expires, in seconds since 1970; None without TLS."""
        if self.certificate is None:
            return None
        own = x509.load_pem_x509_certificates(self.certificate.read_bytes())[0]
        return own.not_valid_after_utc.timestamp()

    def stamp(self) -> tuple[int, ...]:
        """Changes when the files do."""
        files = [path for path in (self.certificate, self.key) if path is not None]
        return tuple(path.stat().st_mtime_ns for path in files if path.exists())

    def guarded(self, app: ASGIApp, *, open_paths: Collection[str] = ()) -> ASGIApp:
        """The application, for users alone where there are any; everybody may ask for `open_paths`."""
        return app if self.users is None else BasicAuthentication(app, self.users, open_paths)


OPEN: Final = Entrance()


def _no_password() -> str:
    raise ValueError("the key is encrypted, and nobody is there to say its password")


class BasicAuthentication:
    """Lets through who shows the name and password of a user."""

    def __init__(self, app: ASGIApp, users: Users, open_paths: Collection[str]) -> None:
        self._app = app
        self._users = users
        self._open_paths = frozenset(open_paths)
        self._key = secrets.token_bytes(32)
        self._let_in: dict[bytes, None] = {}
        self._checking = asyncio.Lock()
        self._waiting = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._open_paths or await self._is_user(scope):
            await self._app(scope, receive, send)
            return
        refusal = Response(
            "Name and password of a user are needed.\n",
            status_code=401,
            headers={"WWW-Authenticate": 'Basic realm="headrace", charset="UTF-8"'},
        )
        await refusal(scope, receive, send)

    async def _is_user(self, scope: Scope) -> bool:
        shown = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        if not shown or len(shown) > HEADER_SIZE_MAX:
            return False
        digest = hmac.digest(self._key, shown, "sha256")
        if digest in self._let_in:
            return True
        pair = _pair(shown)
        if pair is None or self._waiting >= CHECKS_WAITING_MAX:
            return False
        self._waiting += 1
        try:
            async with self._checking:
                is_known = digest in self._let_in or await asyncio.to_thread(self._users.is_known, *pair)
        finally:
            self._waiting -= 1
        if is_known:
            if len(self._let_in) >= REMEMBERED_MAX:
                del self._let_in[next(iter(self._let_in))]
            self._let_in[digest] = None
        else:
            peer = (scope.get("client") or ("",))[0]
            logger.warning("log-in refused", peer=peer, path=scope["path"])
        return is_known


def _pair(shown: bytes) -> tuple[str, str] | None:
    kind, _, encoded = shown.partition(b" ")
    try:
        name, colon, password = b64decode(encoded.strip(), validate=True).decode().partition(":")
    except ValueError:
        return None
    return (name, password) if kind.lower() == b"basic" and colon else None


def entrance_options(command: Command) -> Command:
    """Add `--tls-certificate`, `--tls-key` and `--users`; the command is handed them as `entrance`."""
    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    certificate = click.option(
        "--tls-certificate",
        metavar="FILE",
        type=file,
        help="Serve HTTPS with this certificate and its chain, as PEM.",
    )
    key = click.option(
        "--tls-key", metavar="FILE", type=file, help="Its key, as PEM, where it is in a file of its own."
    )
    users = click.option(
        "--users",
        "users_file",
        metavar="FILE",
        type=file,
        help="Let in only these users: a file with a line of `headrace hash-password` for each.",
    )

    @functools.wraps(command)
    def with_entrance(
        *arguments: Any,
        tls_certificate: Path | None,
        tls_key: Path | None,
        users_file: Path | None,
        **options: Any,
    ) -> Any:
        if tls_key is not None and tls_certificate is None:
            raise click.UsageError("--tls-key is the key of --tls-certificate: name both, or neither.")
        try:
            found = None if users_file is None else read_users(users_file)
        except ValueError as error:
            raise click.UsageError(f"--users: {error}.") from None
        entrance = Entrance(certificate=tls_certificate, key=tls_key, users=found)
        return command(*arguments, entrance=entrance, **options)

    return certificate(key(users(with_entrance)))
