"""What the warehouse's commands share about their options."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from headrace.broker.config.keys import ConfigurationError
from headrace.broker.config.properties import parse_properties

listener_option: Final = click.option(
    "--metrics-listener",
    metavar="HOST:PORT",
    help="Serve Prometheus metrics (/metrics) and the probes /live and /ready there.",
)


def _properties(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    split = [value.partition("=") for value in values]
    wrong = [key for key, equals, _ in split if not equals or not key]
    if wrong:
        raise click.BadParameter(f"{wrong[0]!r} is no KEY=VALUE, for instance type=glue.")
    return {key: value for key, _, value in split}


def _properties_of_files(
    context: click.Context, parameter: click.Parameter, paths: tuple[Path, ...]
) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in paths:
        found |= properties_of_file(path)
    return found


def properties_of_file(path: Path, option: str | None = None) -> dict[str, str]:
    """Return a catalog's properties.

    Raises:
        BadParameter: the file cannot be read; names the option, where it is told.
    """
    try:
        return parse_properties(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ConfigurationError) as error:
        # Only the error's kind: what a line of the file says may be a key.
        reason = error.strerror if isinstance(error, OSError) else "it is no properties file in UTF-8"
        raise click.BadParameter(f"{path} cannot be read: {reason}.", param_hint=option) from None


def warehouse_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--warehouse`, and `--catalog-property` with its files, all passed as `catalog_properties`; the option overrides."""
    where = click.option(
        "--warehouse",
        envvar="HEADRACE_WAREHOUSE",
        default="warehouse",
        show_default=True,
        help="The warehouse's folder, with a SQLite catalog in it; or the location for another catalog.",
    )
    file = click.option(
        "--catalog-properties",
        "file_properties",
        multiple=True,
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        callback=_properties_of_files,
        help="A file of such properties, a line each: of keys, since all users of a machine see its commands' options; repeat.",
    )
    properties = click.option(
        "--catalog-property",
        "catalog_properties",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_properties,
        help="A property of another Iceberg catalog or its store, by pyiceberg's names (type=glue, s3.endpoint=…); repeat.",
    )

    @functools.wraps(command)
    def merged(
        *arguments: Any,
        file_properties: dict[str, str],
        catalog_properties: dict[str, str],
        **options: Any,
    ) -> Any:
        return command(*arguments, catalog_properties=file_properties | catalog_properties, **options)

    return where(properties(file(merged)))


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
