"""How this broker is let in by ZooKeeper, and whom it lets at its own znodes: TLS, SASL with a digest, and Kafka's ACLs.

TLS goes by Kafka's `zookeeper.ssl.…`. Who logs in is in a JAAS file, as for Kafka's own brokers: the one that
`headrace.zookeeper.jaas.file` names, or else `-Djava.security.auth.login.config=FILE` of the environment's KAFKA_OPTS, by its
section `Client`. With `zookeeper.set.acl` whoever is logged in owns what it writes, and all others may read what is not
sensitive (ZkData.defaultAcls). Knows nothing of sockets; no error has a secret.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, Id, Permissions

from headrace.broker.config.keys import ConfigurationError, parse_section
from headrace.broker.config.sections import TLS_VERSIONS, ZooKeeper

PREFIX: Final = "zookeeper."
JAAS_KEY: Final = "headrace.zookeeper.jaas.file"
JAVA_OPTION: Final = re.compile(r"-Djava\.security\.auth\.login\.config=(?:file:)?(\S+)")
DIGEST_MODULE: Final = "org.apache.zookeeper.server.auth.DigestLoginModule"
SECTION: Final = "Client"
SENSITIVE: Final = ("/config/users", "/config/brokers", "/delegation_token/tokens")
"""Below these nobody else may read, since there are passwords."""
OPEN_TO_ALL: Final = "/consumers"
"""Clients of old wrote there themselves."""
_PLAIN_NAME: Final = re.compile(r"[^/@]+")
"""Of others ZooKeeper takes a part alone."""
_TYPES: Final = {".jks": "JKS", ".p12": "PKCS12", ".pem": "PEM"}
_TOKEN: Final = re.compile(r'\s+|//[^\n]*|/\*.*?\*/|"((?:[^"\\\n]|\\.)*)"|([={};])|([^\s"={};]+)', re.DOTALL)


@dataclass(frozen=True, slots=True)
class ZooKeeperAccess:
    """`tls` are settings as a client of a broker has them, None for plain text; `user` and `password` are for SASL.

    Both are those of `jaas_file`.
    """

    tls: Mapping[str, str] | None = field(default=None, repr=False)
    user: str = ""
    password: str = field(default="", repr=False)
    sets_acls: bool = False
    jaas_file: str = ""

    @classmethod
    def of(cls, properties: Mapping[str, str], environment: Mapping[str, str]) -> ZooKeeperAccess:
        """Raises ConfigurationError."""
        settings = ZooKeeper(**parse_section(ZooKeeper, properties))
        tls = _tls_settings(settings) if settings.zookeeper_ssl_client_enable else None
        file = settings.headrace_zookeeper_jaas_file
        option = JAVA_OPTION.search(environment.get("KAFKA_OPTS", ""))
        if file is None and option is not None:
            file = option[1]
        user, password = (
            _login(file, is_meant=settings.headrace_zookeeper_jaas_file is not None) if file else ("", "")
        )
        is_known = bool(user) or (tls is not None and "ssl.keystore.location" in tls)
        if settings.zookeeper_set_acl and not is_known:
            allowed = f"false, or a section {SECTION} in {JAAS_KEY}, or zookeeper.ssl.client.enable with a key store"
            raise ConfigurationError("zookeeper.set.acl", "true", allowed)
        return cls(tls, user, password, settings.zookeeper_set_acl, file if user and file else "")

    def renewed(self) -> ZooKeeperAccess:
        """With the log-in that the JAAS file has now; raises ConfigurationError."""
        if not self.jaas_file:
            return self
        user, password = _login(self.jaas_file, is_meant=True)
        return replace(self, user=user, password=password)

    def context(self) -> ssl.SSLContext | None:
        """What to speak TLS with; raises ConfigurationError."""
        if self.tls is None:
            return None
        from headrace.broker.tls.contexts import client_context

        try:
            return client_context(self.tls)
        except ConfigurationError as error:
            raise ConfigurationError(PREFIX + error.key, error.value, error.allowed) from None

    def acl_of(self, path: str) -> list[ACL] | None:
        """Of a new znode; None where ZooKeeper's own default, everything for everybody, is meant."""
        if not self.sets_acls:
            return None
        if path == OPEN_TO_ALL:
            return list(OPEN_ACL_UNSAFE)
        owners = self._owners()
        return owners if path.startswith(SENSITIVE) else [*owners, *READ_ACL_UNSAFE]

    def _owners(self) -> list[ACL]:
        """Who writes it, by name where it has one: of `auth` ZooKeeper takes a super user's with an error in its log."""
        shows_certificate = self.tls is not None and "ssl.keystore.location" in self.tls
        if shows_certificate or not self.user or not _PLAIN_NAME.fullmatch(self.user):
            return list(CREATOR_ALL_ACL)
        return [ACL(Permissions.ALL, Id("sasl", self.user))]


OPEN: Final = ZooKeeperAccess()


def _tls_settings(settings: ZooKeeper) -> dict[str, str]:
    """Under the names that clients of brokers have."""
    protocols = settings.zookeeper_ssl_enabled_protocols or TLS_VERSIONS
    found = {
        "ssl.enabled.protocols": ",".join(protocols),
        "ssl.cipher.suites": ",".join(settings.zookeeper_ssl_cipher_suites or ()),
        "ssl.endpoint.identification.algorithm": settings.zookeeper_ssl_endpoint_identification_algorithm,
    }
    stores = (
        (
            "keystore",
            settings.zookeeper_ssl_keystore_location,
            settings.zookeeper_ssl_keystore_password,
            settings.zookeeper_ssl_keystore_type,
        ),
        (
            "truststore",
            settings.zookeeper_ssl_truststore_location,
            settings.zookeeper_ssl_truststore_password,
            settings.zookeeper_ssl_truststore_type,
        ),
    )
    for store, location, password, kind in stores:
        if location is None:
            continue
        kind = (kind or _TYPES.get(Path(location).suffix.lower(), "JKS")).upper()
        found |= {f"ssl.{store}.location": location, f"ssl.{store}.type": kind}
        if password is not None and kind == "PEM" and store == "keystore":
            # ZooKeeper has one password, which is the key's there.
            found["ssl.key.password"] = password
        elif password is not None and kind != "PEM":
            found[f"ssl.{store}.password"] = password
    return found


def _login(file: str, *, is_meant: bool) -> tuple[str, str]:
    """Name and password of the section; two empty texts where a file that others use, too, has no such section."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise ConfigurationError(JAAS_KEY, file, f"a file that can be read ({reason})") from None
    sections = _sections(text)
    if sections is None:
        raise ConfigurationError(
            JAAS_KEY, file, "a JAAS file, whose sections are NAME { MODULE required KEY=VALUE; };"
        )
    if SECTION not in sections and not is_meant:
        return "", ""
    module, *rest = sections.get(SECTION, [""])
    options = dict(zip(rest[1::3], rest[3::3], strict=False))
    if module != DIGEST_MODULE or not options.get("username") or not options.get("password"):
        allowed = f"a file with a section {SECTION} of {DIGEST_MODULE} with username and password"
        raise ConfigurationError(JAAS_KEY, file, allowed)
    return options["username"], options["password"]


def _sections(text: str) -> dict[str, list[str]] | None:
    """The tokens of each section's first module, in order; None for what is no JAAS file."""
    found: dict[str, list[str]] = {}
    tokens: list[str] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            return None
        position = match.end()
        quoted, sign, word = match.groups()
        if quoted is not None:
            tokens.append(re.sub(r"\\(.)", r"\1", quoted))
        elif sign or word:
            tokens.append(sign or word)
    while tokens:
        if tokens[1:2] != ["{"] or "}" not in tokens:
            return None
        end = tokens.index("}")
        body = tokens[2:end]
        found[tokens[0]] = body[: body.index(";")] if ";" in body else body
        tokens = tokens[end + 1 :]
        if tokens[:1] == [";"]:
            tokens = tokens[1:]
    return found
