"""Warehouses beside the first one: what an inventory says of them, and what loads and the auditor make of it.

Owns the variables `audit_further_warehouses` and `audit_further_secret`, both by the warehouse's name. Their rules are those of
headrace.audit.further.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from headrace_inventory.addresses import Groups, HostVars
from headrace_inventory.properties import properties_text

WAREHOUSES = "audit_further_warehouses"
SECRET = "audit_further_secret"
NAME = re.compile(r"[a-z][a-z0-9_-]{0,30}")
WAREHOUSES_MAX = 8
KEYS = {"location": str, "catalog_properties": Mapping, "topics": list}


def further_arguments(
    variables: Mapping[str, Any], sources: list[str], folder: str, secret_folder: str
) -> list[str]:
    """What names them to `headrace audit`; `sources` are the live datacenters whose topics are copied.

    The files of their catalogs are in one folder, those with keys in the other.
    """
    arguments: list[str] = []
    secrets = further_secrets(variables)
    for name, warehouse in sorted(_warehouses(variables).items()):
        arguments += ["--further-warehouse", f"{name}={warehouse['location']}"]
        paths = [_path(folder, name)] if warehouse.get("catalog_properties") else []
        paths += [f"{secret_folder}/{_secret(name)}"] if _secret(name) in secrets else []
        for path in paths:
            arguments += ["--further-catalog", f"{name}={path}"]
        if warehouse.get("topics"):
            copies = [f"{source}.{topic}" for source in sources for topic in warehouse["topics"]]
            arguments += ["--further-topics", f"{name}={','.join(copies)}"]
    return arguments


def further_files(variables: Mapping[str, Any], folder: str) -> list[dict[str, str]]:
    """The files of their catalogs' properties, as a service's files."""
    return [
        {"path": _path(folder, name), "content": properties_text(warehouse["catalog_properties"])}
        for name, warehouse in sorted(_warehouses(variables).items())
        if warehouse.get("catalog_properties")
    ]


def further_secrets(variables: Mapping[str, Any]) -> dict[str, str]:
    """The files of those properties that are keys, as a service's secrets."""
    secrets = variables.get(SECRET) or {}
    return {_secret(name): properties_text(found) for name, found in sorted(secrets.items()) if found}


def further_folders(variables: Mapping[str, Any]) -> list[str]:
    """The folders of the host's in which the auditor opens a catalog."""
    return [
        warehouse["location"]
        for _, warehouse in sorted(_warehouses(variables).items())
        if "://" not in warehouse["location"]
    ]


def further_warehouses(groups: Groups, hostvars: HostVars) -> list[str]:
    """What is wrong with them, without a word of what is secret; told once where hosts say the same."""
    problems: dict[str, str] = {}
    for host in groups["audit"]:
        if host in groups["offline"]:
            for problem in _problems(hostvars[host]):
                problems.setdefault(problem, host)
    return [f"Host {host} has {problem}" for problem, host in problems.items()]


def loads(groups: Groups, hostvars: HostVars) -> list[str]:
    """Loads that would bring a topic into one warehouse, each of them all of it."""
    problems = []
    first: dict[tuple[str, str, str], str] = {}
    for host in groups["load"]:
        variables = hostvars[host]
        location, catalog = variables["headrace_warehouse"], variables.get("headrace_catalog_properties")
        for topic in variables.get("headrace_loaded_topics") or []:
            other = first.setdefault((location, str(catalog or {}), topic), host)
            if other != host:
                problems.append(
                    f"Hosts {other} and {host} both load the topic {topic} into {location}: give one "
                    "of them another headrace_warehouse or other headrace_loaded_topics, or take it out of the group load."
                )
    return problems


def _warehouses(variables: Mapping[str, Any]) -> Mapping[str, Any]:
    return variables.get(WAREHOUSES) or {}


def _path(folder: str, name: str) -> str:
    return f"{folder}/catalog-{name}.properties"


def _secret(name: str) -> str:
    return f"catalog-{name}.secret"


def _problems(variables: Mapping[str, Any]) -> Iterator[str]:
    warehouses = _warehouses(variables)
    if len(warehouses) > WAREHOUSES_MAX:
        yield f"{len(warehouses)} warehouses in {WAREHOUSES}: name at most {WAREHOUSES_MAX}."
    for name, warehouse in warehouses.items():
        if NAME.fullmatch(str(name)) is None:
            yield (
                f"in {WAREHOUSES} the name {str(name)!r}: take up to 31 lower-case letters, digits, _ and -, a letter first."
            )
            continue
        yield from (f"in {WAREHOUSES} for {name} {problem}" for problem in _problems_of(warehouse, variables))
    secrets = variables.get(SECRET) or {}
    unknown = sorted(str(name) for name in secrets if name not in warehouses)
    if unknown:
        yield f"in {SECRET} the name {unknown[0]}, which {WAREHOUSES} does not have: name the warehouse there, too."
    if not all(isinstance(found, Mapping) for found in secrets.values()):
        yield f"in {SECRET} something that is no dictionary: give each warehouse its catalog's properties."


def _problems_of(warehouse: Any, variables: Mapping[str, Any]) -> Iterator[str]:
    if not isinstance(warehouse, Mapping) or not warehouse.get("location"):
        yield "no location: say where its tables are, as headrace_warehouse does of the first ones."
        return
    unknown = [str(key) for key in warehouse if key not in KEYS]
    if unknown:
        yield f"the key {unknown[0]}, which nothing reads: it may have {', '.join(KEYS)}."
    wrong = [key for key, kind in KEYS.items() if key in warehouse and not isinstance(warehouse[key], kind)]
    if wrong:
        yield f"a {wrong[0]} of the wrong kind: location is a text, catalog_properties a dictionary, topics a list."
        return
    if re.search(r"[\s'\"]", warehouse["location"]):
        yield f"the location {warehouse['location']!r}: one with blanks or quotes cannot be rolled out, so use another."
    if warehouse["location"] == variables.get("headrace_warehouse") and not warehouse.get(
        "catalog_properties"
    ):
        yield "the location of headrace_warehouse, which is counted already: take it out."
    missing = [
        topic for topic in warehouse.get("topics", []) if topic not in variables["headrace_loaded_topics"]
    ]
    if missing:
        yield f"the topic {missing[0]}, whose events nobody counts: name it in headrace_loaded_topics, too."
