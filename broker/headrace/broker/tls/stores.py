"""Key and trust stores as Kafka's settings name them: PEM, PKCS12 or JKS, in a file or given inline, to keys and certificates.

A store that cannot be used raises ConfigurationError with the setting at fault and what to give; no error holds a secret. As in
Java, a file said to be JKS or PKCS12 may be either, a key's password is the store's unless it has its own, and a trust store may
come without a password. Reads files, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import pkcs12

from headrace.broker.config.keys import ConfigurationError
from headrace.broker.config.sections import Tls
from headrace.broker.tls import jks, pem

HIDDEN = "[hidden]"
STORE_SIZE_MAX = 16 << 20


@dataclass(frozen=True, slots=True)
class KeyStore:
    """A private key and its certificates, the key's own first."""

    key: PrivateKeyTypes = field(repr=False)
    chain: tuple[x509.Certificate, ...]

    @property
    def certificate(self) -> x509.Certificate:
        return self.chain[0]

    def key_pem(self) -> bytes:
        """The key without protection: for memory only."""
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )

    def chain_pem(self) -> bytes:
        return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in self.chain)


def key_store(settings: Tls) -> KeyStore | None:
    """The key that the settings name, or None where they name none. Raises ConfigurationError."""
    location = settings.ssl_keystore_location
    found = _inline_key_store(settings)
    if found is None and location is None:
        return None
    if found is None and location is not None:
        data = _read("ssl.keystore.location", location)
        if settings.ssl_keystore_type == "PEM":
            found = _pem_key_file(data, location, settings)
        elif settings.ssl_keystore_password is None:
            raise ConfigurationError("ssl.keystore.password", "", "the password of the key store")
        elif data.startswith(jks.MAGIC):
            found = _jks_key(data, location, settings)
        else:
            found = _pkcs12_key(data, location, settings)
    assert found is not None
    _check_pair(found, "ssl.keystore.location" if location else "ssl.keystore.certificate.chain", location)
    return found


def trust_store(settings: Tls) -> tuple[x509.Certificate, ...] | None:
    """The certificates that the settings trust, or None where they name no store. Raises ConfigurationError."""
    location, inline = settings.ssl_truststore_location, settings.ssl_truststore_certificates
    is_pem = settings.ssl_truststore_type == "PEM"
    if inline is not None:
        if not is_pem:
            raise ConfigurationError(
                "ssl.truststore.type", settings.ssl_truststore_type, "PEM with ssl.truststore.certificates"
            )
        if location is not None:
            raise ConfigurationError(
                "ssl.truststore.location", location, "no file with ssl.truststore.certificates"
            )
    if (location or inline) and is_pem and settings.ssl_truststore_password is not None:
        raise ConfigurationError("ssl.truststore.password", HIDDEN, "no password with PEM")
    if inline is not None:
        return _pem_certificates("ssl.truststore.certificates", HIDDEN, inline)
    if location is None:
        return None
    data = _read("ssl.truststore.location", location)
    if is_pem:
        return _pem_certificates("ssl.truststore.location", location, _text(data))
    found = _jks_trusted(data, location, settings) if data.startswith(jks.MAGIC) else None
    if found is None:
        found = _pkcs12_trusted(data, location, settings)
    if not found:
        raise ConfigurationError("ssl.truststore.location", location, "a store with a certificate")
    return found


def _inline_key_store(settings: Tls) -> KeyStore | None:
    key, chain = settings.ssl_keystore_key, settings.ssl_keystore_certificate_chain
    if key is None and chain is None:
        return None
    if key is None:
        raise ConfigurationError("ssl.keystore.key", "", "the key of ssl.keystore.certificate.chain")
    if settings.ssl_keystore_type != "PEM":
        raise ConfigurationError("ssl.keystore.type", settings.ssl_keystore_type, "PEM with ssl.keystore.key")
    if chain is None:
        raise ConfigurationError("ssl.keystore.certificate.chain", "", "the certificates of ssl.keystore.key")
    if settings.ssl_keystore_location is not None:
        raise ConfigurationError(
            "ssl.keystore.location", settings.ssl_keystore_location, "no file with ssl.keystore.key"
        )
    if settings.ssl_keystore_password is not None:
        raise ConfigurationError(
            "ssl.keystore.password", HIDDEN, "no password with PEM: ssl.key.password is the key's"
        )
    return KeyStore(
        _pem_key("ssl.keystore.key", HIDDEN, key, settings),
        _pem_certificates("ssl.keystore.certificate.chain", HIDDEN, chain),
    )


def _pem_key_file(data: bytes, location: str, settings: Tls) -> KeyStore:
    if settings.ssl_keystore_password is not None:
        raise ConfigurationError(
            "ssl.keystore.password", HIDDEN, "no password with PEM: ssl.key.password is the key's"
        )
    text = _text(data)
    return KeyStore(
        _pem_key("ssl.keystore.location", location, text, settings),
        _pem_certificates("ssl.keystore.location", location, text),
    )


def _pem_key(name: str, shown: str, text: str, settings: Tls) -> PrivateKeyTypes:
    block = pem.private_key(text)
    if block is None:
        raise ConfigurationError(name, shown, "PEM with a private key")
    password = settings.ssl_key_password
    try:
        return serialization.load_pem_private_key(block, None if password is None else password.encode())
    except TypeError:
        wanted = "no password: the key has none" if password else "the key's password"
        raise ConfigurationError("ssl.key.password", HIDDEN if password else "", wanted) from None
    except (ValueError, UnsupportedAlgorithm):
        if password is not None:
            raise ConfigurationError("ssl.key.password", HIDDEN, f"the password of {name}={shown}") from None
        raise ConfigurationError(name, shown, "a private key as PEM (PKCS #8)") from None


def _pem_certificates(name: str, shown: str, text: str) -> tuple[x509.Certificate, ...]:
    try:
        found = tuple(x509.load_pem_x509_certificate(block) for block in pem.certificates(text))
    except ValueError:
        found = ()
    if not found:
        raise ConfigurationError(name, shown, "PEM with certificates")
    return found


def _jks_key(data: bytes, location: str, settings: Tls) -> KeyStore:
    name, password = "ssl.keystore.password", settings.ssl_keystore_password
    assert password is not None
    try:
        keys = [each for each in jks.entries(data, password) if each.protected_key is not None]
        if len(keys) != 1:
            raise ConfigurationError("ssl.keystore.location", location, "a store with one key")
        name = "ssl.key.password"
        assert keys[0].protected_key is not None
        der = jks.private_key(keys[0].protected_key, settings.ssl_key_password or password)
        return KeyStore(
            serialization.load_der_private_key(der, None),
            tuple(x509.load_der_x509_certificate(each) for each in keys[0].chain),
        )
    except jks.JksError as error:
        raise ConfigurationError(name, HIDDEN, f"{error}, {location}") from None
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigurationError("ssl.keystore.location", location, "a whole JKS store") from None


def _jks_trusted(data: bytes, location: str, settings: Tls) -> tuple[x509.Certificate, ...]:
    try:
        found = jks.entries(data, settings.ssl_truststore_password)
        return tuple(x509.load_der_x509_certificate(each.chain[0]) for each in found if each.chain)
    except jks.JksError as error:
        raise ConfigurationError("ssl.truststore.password", HIDDEN, f"{error}, {location}") from None
    except ValueError:
        raise ConfigurationError("ssl.truststore.location", location, "a whole JKS store") from None


def _pkcs12_key(data: bytes, location: str, settings: Tls) -> KeyStore:
    found = _pkcs12("ssl.keystore", data, location, settings.ssl_keystore_password)
    if found.key is None or found.cert is None:
        raise ConfigurationError("ssl.keystore.location", location, "a store with a key and its certificate")
    others = [each.certificate for each in found.additional_certs]
    chain = [found.cert.certificate]
    while chain[-1].issuer != chain[-1].subject:
        issuer = next((each for each in others if each.subject == chain[-1].issuer), None)
        if issuer is None or issuer in chain:
            break
        chain.append(issuer)
    return KeyStore(found.key, tuple(chain))


def _pkcs12_trusted(data: bytes, location: str, settings: Tls) -> tuple[x509.Certificate, ...]:
    found = _pkcs12("ssl.truststore", data, location, settings.ssl_truststore_password)
    own = () if found.cert is None else (found.cert.certificate,)
    return own + tuple(each.certificate for each in found.additional_certs)


def _pkcs12(store: str, data: bytes, location: str, password: str | None) -> pkcs12.PKCS12KeyAndCertificates:
    try:
        return pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except (ValueError, UnsupportedAlgorithm):
        # It is a sequence of DER, whose outermost tag every other kind of file lacks.
        if data[:1] != b"\x30":
            wanted = "a store of its type (PEM files need the type PEM)"
            raise ConfigurationError(f"{store}.location", location, wanted) from None
        shown = "" if password is None else HIDDEN
        raise ConfigurationError(f"{store}.password", shown, f"the password of {location}") from None


def _check_pair(found: KeyStore, name: str, location: str | None) -> None:
    encode: Callable[..., bytes] = lambda key: key.public_bytes(  # noqa: E731
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    if encode(found.key.public_key()) != encode(found.certificate.public_key()):
        raise ConfigurationError(name, location or HIDDEN, "the key's own certificate first")


def _read(name: str, location: str) -> bytes:
    try:
        with Path(location).open("rb") as file:
            data = file.read(STORE_SIZE_MAX + 1)
    except OSError as error:
        reason = error.strerror or "it cannot be read"
        raise ConfigurationError(name, location, f"a file that can be read ({reason})") from None
    if len(data) > STORE_SIZE_MAX:
        raise ConfigurationError(name, location, f"a file of at most {STORE_SIZE_MAX} bytes")
    return data


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
