"""The options of `headrace audit` that name further warehouses, and how they are read."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from headrace.audit import topic_names
from headrace.audit.further import FURTHER_MAX, NAME, Further
from headrace.load.options import properties_of_file


def further_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--further-warehouse` and what belongs to it, all passed as `further`, a tuple of `Further`."""
    where = click.option(
        "--further-warehouse",
        "further_locations",
        multiple=True,
        metavar="NAME=LOCATION",
        help="A further warehouse that is loaded from this cluster, by a name for reports and metrics: a tier of its own.",
    )
    catalog = click.option(
        "--further-catalog",
        "further_catalogs",
        multiple=True,
        metavar="NAME=FILE",
        help="A file of properties of a further warehouse's catalog, as in --catalog-properties.",
    )
    topics = click.option(
        "--further-topics",
        "further_topics",
        multiple=True,
        metavar="NAME=NAME|REGEX,…",
        help="Which of the offline cluster's topics are loaded into a further warehouse, as in --topics of `audit count`; all "
        "unless told.",
    )

    @functools.wraps(command)
    def named(
        *arguments: Any,
        further_locations: tuple[str, ...],
        further_catalogs: tuple[str, ...],
        further_topics: tuple[str, ...],
        **options: Any,
    ) -> Any:
        return command(
            *arguments, further=parse(further_locations, further_catalogs, further_topics), **options
        )

    return where(catalog(topics(named)))


def parse(
    locations: tuple[str, ...], catalogs: tuple[str, ...], topics: tuple[str, ...]
) -> tuple[Further, ...]:
    """Return the further warehouses that options name.

    Raises:
        BadParameter: a name is not one, comes twice or is nowhere given a location; a file or an expression cannot be read; there
            are more than `FURTHER_MAX`.
    """
    found: dict[str, str] = {}
    for name, location in _pairs("--further-warehouse", "LOCATION", locations):
        if NAME.fullmatch(name) is None:
            raise _wrong(
                "--further-warehouse",
                f"{name!r} is no name for a warehouse: take up to 31 lower-case letters, digits, _ and -, a letter first.",
            )
        if name in found:
            raise _wrong("--further-warehouse", f"{name} is there twice: each has a name of its own.")
        found[name] = location
    if len(found) > FURTHER_MAX:
        raise _wrong("--further-warehouse", f"more than {FURTHER_MAX} are too many for one audit.")
    properties: dict[str, dict[str, str]] = {name: {} for name in found}
    for name, path in _of_known("--further-catalog", "FILE", catalogs, found):
        properties[name] |= properties_of_file(Path(path), "--further-catalog")
    names: dict[str, list[str]] = {name: [] for name in found}
    for name, text in _of_known("--further-topics", "TOPICS", topics, found):
        names[name].append(text)
    return tuple(
        Further(
            name=name,
            location=location,
            properties=properties[name],
            topics=_topics(",".join(names[name])) if names[name] else None,
        )
        for name, location in found.items()
    )


def _pairs(option: str, what: str, values: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for value in values:
        name, equals, rest = value.partition("=")
        if not (name and equals and rest):
            raise _wrong(option, f"{value!r} is no NAME={what}.")
        yield name, rest


def _of_known(
    option: str, what: str, values: tuple[str, ...], known: dict[str, str]
) -> Iterator[tuple[str, str]]:
    for name, rest in _pairs(option, what, values):
        if name not in known:
            raise _wrong(option, f"there is no --further-warehouse {name}=….")
        yield name, rest


def _topics(text: str) -> topic_names.TopicNames:
    try:
        return topic_names.parse(text)
    except ValueError as error:
        raise _wrong("--further-topics", str(error)) from error


def _wrong(option: str, sentence: str) -> click.BadParameter:
    return click.BadParameter(sentence, param_hint=option)
