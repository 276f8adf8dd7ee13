"""Waiting for a TLS socket that holds what came: it is ready at once."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path

import pytest
import tls_kit

from headrace.broker.tls.contexts import client_context, server_context
from headrace.broker.zk.secured import TlsHandler


def contexts(
    folder: Path, trusted: tls_kit.Identity, signer: tls_kit.Identity
) -> tuple[ssl.SSLContext, TlsHandler]:
    server = server_context(tls_kit.pem_settings(folder / "server", tls_kit.signed(signer)))
    settings = tls_kit.pem_settings(folder / "client", tls_kit.signed(trusted), [trusted.certificate])
    return server, TlsHandler(client_context(settings))


def test_what_is_decrypted_already_is_not_waited_for(tmp_path: Path) -> None:
    authority = tls_kit.authority()
    server, handler = contexts(tmp_path, authority, authority)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with server.wrap_socket(listener.accept()[0], server_side=True) as connection:
                connection.sendall(b"two packets in one record")
                connection.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        with handler.create_connection(listener.getsockname(), 5, "127.0.0.1") as sock:
            assert sock.recv(4) == b"two "
            assert handler.select([sock], [], [], 5)[0] == [sock]
            assert sock.recv(100) == b"packets in one record"
            assert handler.select([sock], [], [], 0.01)[0] == []
        thread.join()


def test_why_tls_was_not_agreed_on_is_kept_for_the_sentence(tmp_path: Path) -> None:
    server, handler = contexts(tmp_path, tls_kit.authority(), tls_kit.authority("other"))
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                server.wrap_socket(listener.accept()[0], server_side=True)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(ssl.SSLError):
            handler.create_connection(listener.getsockname(), 5, "127.0.0.1")
        thread.join()
    assert "certificate" in handler.failure
