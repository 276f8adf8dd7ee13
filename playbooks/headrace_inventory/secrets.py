"""Keys, passwords and tokens that stand where everybody sees them: they belong in a variable that ends in `_secret`.

Looked at before any other check says anything, since those quote values; no sentence here does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from headrace_inventory.addresses import Groups, HostVars
from headrace_inventory.names import and_others

CATALOG = "put it into headrace_catalog_secret, in a file that ansible-vault encrypts"
MEMBER = (
    "put it into mirror_member_secret, by the whole name of its line, in a file that ansible-vault encrypts"
)
ZOOKEEPER = "name a file of the host's that holds it, as ssl.keyStore.passwordPath does, or take it out"
# Variables that take keys of any name, or addresses, each with where its secrets belong.
OPEN = {
    "audit_further_warehouses": "put it into audit_further_secret, in a file that ansible-vault encrypts",
    "broker_properties": "name a file of the host's that holds it, as ${file:PATH:KEY} does, or take it out",
    "headrace_catalog_properties": CATALOG,
    "headrace_warehouse": CATALOG,
    "load_environment": CATALOG,
    "mirror_member_properties": MEMBER,
    "mirror_member_sources": MEMBER,
    "zookeeper_java_options": ZOOKEEPER,
    "zookeeper_properties": ZOOKEEPER,
}
KEY = re.compile(
    r"secret|passw(or)?d|passphrase|token|credential|(access|account|api|private|sas)[._-]?key|connection[._-]?string"
)
# Says where something is, or how long it holds.
NO_SECRET = re.compile(r"(file|path|dir|location|uri|url|type|class|enabled|provider|_ms|[.-]ms)$")
ADDRESS = re.compile(r"\w://[^/\s@]*:[^/\s@]+@")
# In a line of a log-in module (JAAS), its own or those that it lets in.
LOGIN = re.compile(r"""\b(password|user_[^\s=]+)\s*=\s*["'](?!\$\{file:)[^"']""")
# What stands in another file (KIP-297).
ELSEWHERE = re.compile(r"\$\{file:[^}:]+:[^}:]+\}")
JAVA_OPTION = re.compile(r"-D([^=\s]+)=(.+)", re.DOTALL)


def secrets_in_the_open(groups: Groups, hostvars: HostVars) -> list[str]:
    """One sentence for each key that looks like a secret's, and for each address with a password in it."""
    found: dict[str, list[str]] = {}
    for host in groups["all"]:
        for variable, advice in OPEN.items():
            for what in looks_secret(hostvars[host].get(variable)):
                found.setdefault(
                    f"in {variable} {what}, which everybody may read there: {advice}.", []
                ).append(host)
    return [f"Host {hosts[0]}{and_others(hosts)} has {rest}" for rest, hosts in found.items()]


def looks_secret(value: Any) -> Iterator[str]:
    """What in a variable's value looks like a secret, by the names of its keys alone."""
    for key, text in pairs(value):
        if text and is_key(key) and ELSEWHERE.fullmatch(text) is None:
            yield f"the key {key}"
        elif ADDRESS.search(text):
            yield f"an address with a password{f' at {key}' if key else ''}"
        elif LOGIN.search(text):
            yield f"a log-in with a password at {key}"


def is_key(name: str) -> bool:
    lower = name.lower()
    return KEY.search(lower) is not None and NO_SECRET.search(lower) is None


def pairs(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            if isinstance(each, Mapping):
                yield from pairs(each)
            else:
                yield str(key), "" if each is None else str(each)
    elif isinstance(value, list):
        for each in value:
            if isinstance(each, Mapping):
                yield from pairs(each)
                continue
            option = JAVA_OPTION.fullmatch(str(each))
            yield (option[1], option[2]) if option else ("", str(each))
    else:
        yield "", "" if value is None else str(value)
