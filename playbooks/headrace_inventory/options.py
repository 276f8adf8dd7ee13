"""Variables against the specs that state them: what is not set and must be, and values of another kind than is allowed.

Told before roles look at their own specs: Ansible prints the whole of one, for each host.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.parsing.vault import VaultHelper
from jinja2 import Undefined, UndefinedError

from headrace_inventory.addresses import (
    IDENTITIES,
    NUMBERS,
    Groups,
    HostVars,
    argument_spec,
    service_hosts,
    specs,
)

PLAYBOOKS = Path(__file__).resolve().parents[1]
ROLES = PLAYBOOKS / "roles"
HOSTS_NAMED_MAX = 4
VALUE_LENGTH_MAX = 80
# Where a variable is best set; all others are of the whole inventory.
PLACES = {
    "headrace_address": "beside the host, in the inventory's hosts.yml",
    "headrace_datacenter": "in the vars of its datacenter's group, in the inventory's hosts.yml",
    **dict.fromkeys(NUMBERS.values(), "beside the host, in the inventory's hosts.yml"),
}
PLACE = "in the inventory's group_vars/all.yml"
KINDS = {
    "bool": "true or false",
    "dict": "a dictionary",
    "float": "a number",
    "int": "a whole number",
    "list": "a list",
    "path": "a path",
    "str": "a text",
}
# As Ansible reads them from -e NAME=VALUE, where everything is a text.
TRUTHS = ("true", "false", "yes", "no", "on", "off", "y", "n", "t", "f", "1", "0")


class Defined(Mapping[str, Any]):
    """A host's variables, each read once; one that names another which is not set is not set either."""

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self._variables = variables
        self._read: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._read:
            self._read[name] = self._variables[name]
        value = self._read[name]
        if isinstance(value, Undefined):
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)

    def is_locked(self, name: str) -> bool:
        """Whether it, or something in it, is encrypted with another password than was given."""
        self.get(name)
        return is_locked(self._read.get(name))

    def lacks(self, name: str) -> str:
        """What the variable says but for something that is not set, as `'other' is undefined`."""
        value = self._read.get(name)
        return str(value._undefined_message) if isinstance(value, Undefined) else ""


def is_locked(value: Any) -> bool:
    """Ansible has something undefined stand for a value that it cannot decrypt, and raises an error of one within another."""
    if isinstance(value, Undefined):
        return VaultHelper.get_ciphertext(value, with_tags=False) is not None
    try:
        inner = list(
            value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
        )
    except (AnsibleError, UndefinedError) as error:
        # What else is wrong with it is told by who reads it.
        return is_locked(getattr(error, "source", None))
    return any(map(is_locked, inner))


def defined(groups: Groups, hostvars: HostVars) -> dict[str, Defined]:
    return {host: Defined(hostvars[host]) for host in groups["all"]}


def locked_variables(groups: Groups, hostvars: Mapping[str, Defined]) -> list[str]:
    """One sentence for each variable of which nobody gave the vault's password."""
    found: dict[str, list[str]] = {}
    for host in groups["all"]:
        for name in sorted(known().keys() & set(hostvars[host])):
            if hostvars[host].is_locked(name):
                found.setdefault(name, []).append(host)
    return [
        f"{on(hosts)} {has(hosts)} a {name} that is encrypted with another password than was given, or none was: give it in a "
        "file that --vault-password-file or ANSIBLE_VAULT_PASSWORD_FILE names, or to --ask-vault-pass."
        for name, hosts in found.items()
    ]


def missing_variables(groups: Groups, hostvars: HostVars) -> list[str]:
    """One sentence for each variable that hosts of their groups must have and do not."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for host in service_hosts(groups):
        variables = hostvars[host]
        for name, option in required(groups, host).items():
            if variables.get(name) in (None, ""):
                lacks = variables.lacks(name) if isinstance(variables, Defined) else ""
                found.setdefault((name, option["description"], lacks), []).append(host)
    names = {name for name, _, _ in found}
    # What is put together from a variable that is told of itself comes with it.
    return [
        missing_sentence(name, description, lacks, hosts)
        for (name, description, lacks), hosts in found.items()
        if not any(f"'{other}'" in lacks for other in names)
    ]


def missing_sentence(name: str, description: str, lacks: str, hosts: list[str]) -> str:
    what = description[:1].lower() + description[1:].rstrip(".")
    if lacks:
        return (
            f"{on(hosts)} {has(hosts)} a {name} ({what}) of which {lacks}: set that {PLACE}, or say otherwise what "
            f"{name} is."
        )
    return f"{on(hosts)} {has(hosts)} no {name} ({what}): set it {PLACES.get(name, PLACE)}."


def required(groups: Groups, host: str) -> dict[str, dict[str, Any]]:
    """The options that a host needs, of its roles and of the one that runs every service."""
    own = argument_spec(groups, host, str(ROLES))
    service = specs(ROLES / "service" / "meta" / "argument_specs.yml")["main"]["options"]
    # The first description of a variable is told on all hosts.
    return {
        name: known()[name] if name not in IDENTITIES.values() else option
        for name, option in {**service, **own}.items()
        # A role gives its service whatever else that needs.
        if option.get("required") and not name.startswith("service_")
    }


@cache
def known() -> dict[str, dict[str, Any]]:
    """Every option that is stated anywhere, by its name, as it is stated first, or in full."""
    found: dict[str, dict[str, Any]] = {}
    for file in [
        *sorted(ROLES.glob("*/meta/argument_specs.yml")),
        Path(__file__).with_name("argument_specs.yml"),
    ]:
        for spec in specs(file).values():
            for name, option in spec.get("options", {}).items():
                # Two roles' specs may state a list, and one of them its entries as well.
                if name not in found or ("options" in option and "options" not in found[name]):
                    found[name] = option
    return found


def wrong_values(groups: Groups, hostvars: HostVars) -> list[str]:
    """One sentence for each value of another kind than its variable takes; numbers of servers have a check of their own."""
    found: dict[str, list[str]] = {}
    for host in groups["all"]:
        variables = hostvars[host]
        for name in sorted(known().keys() & set(variables) - set(IDENTITIES.values())):
            problem = value_problem(name, variables.get(name), known()[name])
            if problem:
                found.setdefault(problem, []).append(host)
    return [f"{on(hosts)} {has(hosts)} {problem}" for problem, hosts in found.items()]


def value_problem(name: str, value: Any, option: Mapping[str, Any]) -> str | None:
    if value is None:
        return f"an empty {name}: give it a value, or take it out."
    if is_kind(value, option["type"]) and value in option.get("choices", [value]):
        return next(elements_problems(name, value, option), None)
    return f"the {name}{shown(value, option)}: it must be {allowed_text(option)}."


def elements_problems(name: str, value: Any, option: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the entries of a list, and with what is said in each."""
    for number, each in enumerate(value if option["type"] == "list" and "elements" in option else (), 1):
        entry = f"in {name} entry {number}{shown(each, option)}"
        if not is_kind(each, option["elements"]):
            yield f"{entry}: it must be {KINDS[option['elements']]}."
        elif "options" in option:
            yield from (f"{entry}: {problem}" for problem in entry_problems(each, option["options"]))


def entry_problems(entry: Mapping[str, Any], options: Mapping[str, Any]) -> Iterator[str]:
    for key, inner in options.items():
        if key not in entry:
            if inner.get("required"):
                yield f"it must have {key}."
        elif not is_kind(entry[key], inner["type"]) or entry[key] not in inner.get("choices", [entry[key]]):
            yield f"its {key} must be {allowed_text(inner)}."
    unknown = [str(key) for key in entry if key not in options]
    if unknown:
        yield f"{unknown[0]} is none of {', '.join(options)}."


def is_kind(value: Any, kind: str) -> bool:
    if kind == "list":
        return isinstance(value, list)
    if kind == "dict":
        return isinstance(value, Mapping)
    if isinstance(value, list | Mapping):
        return False
    text = str(value).strip()
    if kind == "bool":
        return text.lower() in TRUTHS
    if kind == "int":
        return not isinstance(value, bool) and re.fullmatch(r"[+-]?\d+", text) is not None
    if kind == "float":
        return (
            not isinstance(value, bool)
            and re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", text, re.I) is not None
        )
    return True


def allowed_text(option: Mapping[str, Any]) -> str:
    return " or ".join(option["choices"]) if "choices" in option else KINDS[option["type"]]


def shown(value: Any, option: Mapping[str, Any]) -> str:
    """The value after a blank, unless nobody may see it."""
    if option.get("no_log"):
        return ""
    text = repr(value)
    return " " + (text if len(text) <= VALUE_LENGTH_MAX else f"{text[:VALUE_LENGTH_MAX]}…")


def on(hosts: Iterable[str]) -> str:
    names = list(hosts)
    if len(names) == 1:
        return f"Host {names[0]}"
    if len(names) > HOSTS_NAMED_MAX:
        return f"Host {names[0]} (with {len(names) - 1} others)"
    return f"Hosts {', '.join(names[:-1])} and {names[-1]}"


def has(hosts: list[str]) -> str:
    return "has" if len(hosts) == 1 or len(hosts) > HOSTS_NAMED_MAX else "have"
