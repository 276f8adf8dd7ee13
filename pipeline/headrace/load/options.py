"""Command-line options that the warehouse's commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def _properties(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    split = [value.partition("=") for value in values]
    wrong = [key for key, equals, _ in split if not equals or not key]
    if wrong:
        raise click.BadParameter(f"{wrong[0]!r} is no KEY=VALUE, for instance type=glue.")
    return {key: value for key, _, value in split}


def warehouse_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--warehouse` and `--catalog-property`, passed as `warehouse` and `catalog_properties`."""
    where = click.option(
        "--warehouse",
        envvar="HEADRACE_WAREHOUSE",
        default="warehouse",
        show_default=True,
        help="The warehouse's folder, with a SQLite catalog in it; or the location for another catalog.",
    )
    properties = click.option(
        "--catalog-property",
        "catalog_properties",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_properties,
        help="A property of another Iceberg catalog or its store, by pyiceberg's names (type=glue, s3.endpoint=…); repeat.",
    )
    return where(properties(command))
