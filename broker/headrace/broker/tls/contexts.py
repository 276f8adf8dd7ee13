"""`ssl.SSLContext` for servers and clients from Kafka's `ssl.*` settings, given as a mapping of their names to texts.

Servers speak TLS 1.2 and 1.3 and never renegotiate. Keys reach OpenSSL through anonymous memory: no file holds one in clear.
Settings of a listener come without its prefix `listener.name.<name>.`; what is no `ssl.*` setting is passed over.
Raises ConfigurationError.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from headrace.broker.config.keys import ConfigurationError, parse_section
from headrace.broker.config.sections import Tls
from headrace.broker.tls import ciphers
from headrace.broker.tls.stores import KeyStore, key_store, trust_store

VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
# A handshake takes three, at most.
ROUNDS_COUNT = 10


def parsed(settings: Mapping[str, str]) -> Tls:
    """The typed `ssl.*` settings; raises ConfigurationError."""
    return Tls(**parse_section(Tls, settings))


def server_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    """What a listener serves TLS with. Raises ConfigurationError, for settings without a key store, too."""
    tls = parsed(settings)
    keys = key_store(tls)
    if keys is None:
        raise ConfigurationError(
            "ssl.keystore.location", "", "the file with the broker's key and certificate"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.verify_mode = VERIFY[tls.ssl_client_auth]
    _set_versions(context, tls)
    _load_keys(context, keys)
    if tls.ssl_client_auth != "none":
        _load_trusted(context, trust_store(tls), ssl.Purpose.CLIENT_AUTH)
    else:
        trust_store(tls)
    return context


def client_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    """What a client connects with: `wrap_socket(sock, server_hostname=HOST)`. Raises ConfigurationError."""
    tls = parsed(settings)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.check_hostname = tls.ssl_endpoint_identification_algorithm != ""
    _set_versions(context, tls)
    keys = key_store(tls)
    if keys is not None:
        _load_keys(context, keys)
    _load_trusted(context, trust_store(tls), ssl.Purpose.SERVER_AUTH)
    return context


def check_handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Whether the two of them would agree, tried in memory; raises ssl.SSLError. Names of hosts are not looked at."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client.check_hostname = False
    ends = [
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(ROUNDS_COUNT):
        ends = [end for end in ends if not _is_done(end)]
        if not ends:
            return
    raise ssl.SSLError("the handshake comes to no end")


def _is_done(end: ssl.SSLObject) -> bool:
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def _set_versions(context: ssl.SSLContext, tls: Tls) -> None:
    """The versions and cipher suites; a version none of whose suites is wanted is not spoken."""
    versions = set(tls.ssl_enabled_protocols)
    if suites := tls.ssl_cipher_suites:
        known = {name: ciphers.openssl_name(name) for name in suites if name not in ciphers.TLS_1_3}
        if unknown := [name for name, found in known.items() if found is None]:
            raise ConfigurationError("ssl.cipher.suites", ",".join(suites), f"suites without {unknown[0]}")
        _check_of_1_3(suites)
        versions -= set() if known else {"TLSv1.2"}
        versions -= set() if set(suites) & set(ciphers.TLS_1_3) else {"TLSv1.3"}
        if known:
            context.set_ciphers(":".join(found for found in known.values() if found))
    if not versions:
        wanted = "TLSv1.2 or TLSv1.3, with ssl.cipher.suites of it"
        raise ConfigurationError("ssl.enabled.protocols", ",".join(tls.ssl_enabled_protocols), wanted)
    context.minimum_version = min(VERSIONS[name] for name in versions)
    context.maximum_version = max(VERSIONS[name] for name in versions)


def _check_of_1_3(suites: tuple[str, ...]) -> None:
    """Python's ssl cannot leave out suites of TLS 1.3, but the one that OpenSSL takes first is taken if both ends have it."""
    if set(suites) & set(ciphers.TLS_1_3) and ciphers.TLS_1_3[0] not in suites:
        raise ConfigurationError(
            "ssl.cipher.suites",
            ",".join(suites),
            f"{ciphers.TLS_1_3[0]} among those of TLS 1.3, since it is the one that both ends take",
        )


def _load_keys(context: ssl.SSLContext, keys: KeyStore) -> None:
    """The standard library takes keys from files alone."""
    fd = os.memfd_create("headrace-key", os.MFD_CLOEXEC)
    try:
        os.write(fd, keys.key_pem() + keys.chain_pem())
        context.load_cert_chain(f"/proc/self/fd/{fd}")
    except ssl.SSLError as error:
        raise ConfigurationError(
            "ssl.keystore.location", "", f"a key and a certificate that OpenSSL takes ({error.reason})"
        ) from None
    finally:
        os.close(fd)


def _load_trusted(
    context: ssl.SSLContext, trusted: tuple[x509.Certificate, ...] | None, purpose: ssl.Purpose
) -> None:
    if trusted is None:
        context.load_default_certs(purpose)
        return
    context.load_verify_locations(cadata=b"".join(each.public_bytes(Encoding.DER) for each in trusted))
    # As in Java: whatever is in the store is trusted, be it no root.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
