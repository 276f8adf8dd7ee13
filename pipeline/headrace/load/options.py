"""What the warehouse's commands share about their options."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
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


def make_folder(folder: Path, option: str) -> None:
    """Make a folder that files shall be written to, before any work is done for it.

    Raises:
        BadParameter: it cannot be made, or nothing can be written there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise click.BadParameter(
            f"{folder} cannot be made or written to: {error.strerror}.", param_hint=option
        ) from error
