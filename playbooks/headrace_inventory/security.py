"""What `headrace_security` makes of brokers and of the services that ask them: properties, log-ins, and what is wrong with them.

`tls` encrypts and shows clients whom they speak to; `tls_sasl` also asks them who they are, and what they may do. The services
of the kit log in as the first of `headrace_logins_secret` and may do everything; the others of it are let in as well, so that a
password can be changed in three roll-outs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from headrace_inventory.addresses import Groups, HostVars, service_name

PLAINTEXT, TLS, TLS_SASL = "plaintext", "tls", "tls_sasl"
PROTOCOLS = {PLAINTEXT: "PLAINTEXT", TLS: "SSL", TLS_SASL: "SASL_SSL"}
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
FILE_PROVIDER = "org.apache.kafka.common.config.provider.FileConfigProvider"
PASSWORD_LENGTH_MIN = 12
USERNAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# A quoted text of a JAAS line, and one line of a file.
UNQUOTABLE = re.compile(r'["\\\x00-\x1f\x7f]')
Login = Mapping[str, Any]


def client_properties(
    security: str, trusted: str, logins: Iterable[Login], sources: Iterable[str] = ()
) -> dict[str, str]:
    """What a client that asks brokers and registry is told, all of it in one file. `trusted` are certificates in PEM.

    Who asks about copies also asks their `sources`, under the names that the mirror has for that.
    """
    logins = list(logins)
    own = _client_properties(security, trusted, logins)
    of_sources = {f"mirror.{source}.{key}": value for source in sources for key, value in own.items()}
    return own | of_sources | _registry_client(security, trusted, logins)


def _registry_client(security: str, trusted: str, logins: list[Login]) -> dict[str, str]:
    if security == PLAINTEXT:
        return {}
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": trusted.strip()}
    properties = {f"schema.registry.{key}": value for key, value in trust.items()}
    if security == TLS_SASL and logins:
        login = f"{logins[0]['username']}:{logins[0]['password']}"
        properties["schema.registry.basic.auth.user.info"] = login
    return properties


def registry_users(opened: Iterable[str], logins: Iterable[Login]) -> str:
    """The file of the users whom a registry lets in over TLS; empty where that is everybody.

    Those who only speak TLS have no password: while they may still ask, nobody needs one.
    """
    ways = list(opened)
    if TLS in ways or TLS_SASL not in ways:
        return ""
    return "".join(
        f"{line}\n" for line in sorted({_hashed(each["username"], each["password"]) for each in logins})
    )


@cache
def _hashed(username: str, password: str) -> str:
    """A line of the file. The salt is of the name, so that the file does not change with each roll-out."""
    from headrace.registry.passwords import SALT_SIZE, HashedPassword

    salt = hashlib.sha256(f"headrace registry {username}".encode()).digest()[:SALT_SIZE]
    return f"{username}:{HashedPassword.of(password, salt).text()}"


def _client_properties(security: str, trusted: str, logins: Iterable[Login]) -> dict[str, str]:
    properties = {"security.protocol": PROTOCOLS[security]}
    if security != PLAINTEXT:
        properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": trusted.strip()}
    if security == TLS_SASL:
        properties |= {"sasl.mechanism": "PLAIN", "sasl.jaas.config": client_jaas(logins)}
    return properties


def broker_properties(
    opened: list[str], spoken: str, address: str, ports: list[int], folder: str
) -> dict[str, str]:
    """What server.properties says of the listeners that are open; `folder` is where the broker's files are."""
    listeners = ",".join(
        f"{PROTOCOLS[each]}://{address}:{port}" for each, port in zip(opened, ports, strict=True)
    )
    properties = {"listeners": listeners, "advertised.listeners": listeners}
    if opened == [PLAINTEXT]:
        return properties
    properties |= {
        "security.inter.broker.protocol": PROTOCOLS[spoken],
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": f"{folder}/keystore.secret",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": f"{folder}/ca.pem",
    }
    if TLS_SASL in opened:
        properties |= _sasl_properties(opened, f"{folder}/broker.secret")
    return properties


def _sasl_properties(opened: list[str], secrets: str) -> dict[str, str]:
    """Who has an account of the broker's comes in by SCRAM, the kit's own services by PLAIN, which needs no ZooKeeper."""
    listener = f"listener.name.{PROTOCOLS[TLS_SASL].lower()}"
    alone = opened == [TLS_SASL]
    return {
        "config.providers": "file",
        "config.providers.file.class": FILE_PROVIDER,
        "config.providers.file.param.allowed.paths": secrets,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        f"{listener}.plain.sasl.jaas.config": f"${{file:{secrets}:plain}}",
        f"{listener}.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        "authorizer.class.name": AUTHORIZER,
        "super.users": f"${{file:{secrets}:super.users}}" + ("" if alone else ";User:ANONYMOUS"),
        # Until the other way in is closed, nobody has to have been given rights yet.
        "allow.everyone.if.no.acl.found": "false" if alone else "true",
    }


def broker_secrets(opened: list[str], logins: Iterable[Login]) -> dict[str, str]:
    """What server.properties takes from a file that nobody else reads."""
    if TLS_SASL not in opened:
        return {}
    logins = list(logins)
    accounts = "".join(f' user_{each["username"]}="{each["password"]}"' for each in logins)
    return {
        "plain": f"{client_jaas(logins).removesuffix(';')}{accounts};",
        "client": client_jaas(logins),
        "super.users": ";".join(f"User:{each['username']}" for each in logins),
    }


def client_jaas(logins: Iterable[Login]) -> str:
    """The line with which one logs in as the first of these."""
    first = next(iter(logins), {})
    return f'{PLAIN_MODULE} required username="{first.get("username", "")}" password="{first.get("password", "")}";'


def client_arguments(variables: Mapping[str, Any], kind: str) -> list[str]:
    """What a command that asks brokers is told on a host, by the file of the service of that kind there."""
    if variables["headrace_security_spoken"] == PLAINTEXT:
        return []
    service = service_name(variables, kind)
    return ["--command-config", f"{variables['headrace_config_dir']}/{service}/client.secret"]


def mirror_client(spoken: str, folder: str) -> dict[str, str]:
    """What the embedded consumers of a broker say to their sources, without the prefix of a source."""
    properties = {} if spoken == PLAINTEXT else {"security.protocol": PROTOCOLS[spoken]}
    if spoken != PLAINTEXT:
        properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": f"{folder}/ca.pem"}
    if spoken == TLS_SASL:
        properties |= {
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f"${{file:{folder}/broker.secret:client}}",
        }
    return properties


def logins(groups: Groups, hostvars: HostVars) -> list[str]:
    """What is wrong with the log-ins, without a word of them."""
    problems: dict[str, None] = {}
    for host in groups["broker"]:
        if TLS_SASL in hostvars[host].get("headrace_security_open", []):
            given = hostvars[host].get("headrace_logins_secret") or []
            problems |= dict.fromkeys(_login_problems(given))
    return list(problems)


def _login_problems(given: Any) -> Iterable[str]:
    if not given:
        yield (
            "headrace_security is tls_sasl and there is no headrace_logins_secret: give it one {username: …, password: …}, "
            "in a file that ansible-vault encrypts."
        )
    for place, each in enumerate(given, 1):
        username, password = str(each.get("username", "")), str(each.get("password", ""))
        if USERNAME.fullmatch(username) is None:
            yield f"Username {place} of headrace_logins_secret is not allowed: give letters, digits, dots and hyphens."
        if len(password) < PASSWORD_LENGTH_MIN or UNQUOTABLE.search(password):
            yield (
                f"Password {place} of headrace_logins_secret is not allowed: give {PASSWORD_LENGTH_MIN} characters or more, "
                "without quotes, backslashes and control characters."
            )
