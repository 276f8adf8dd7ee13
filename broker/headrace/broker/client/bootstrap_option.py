"""`--bootstrap` and `--command-config` of every command that asks brokers: together they say which, and how to be let in.

The file is read before the addresses are, whatever their order, so that a command is handed one `Bootstrap`. What is wrong
with either is wrong use of the command, in one sentence that has no secret in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.client.entrance import NOT_LET_IN, check_entrance
from headrace.broker.client.security import ClientSecurity
from headrace.broker.client.settings_file import client_settings
from headrace.broker.config.keys import ConfigurationError

CONFIG_OPTION = "--command-config"
Command = Callable[..., Any]


class Servers(click.ParamType[Bootstrap]):
    """HOST:PORT[,HOST:PORT]…, with the security that the file of `config_option` names."""

    name = "HOST:PORT,…"

    def __init__(self, config_option: str) -> None:
        self._config_option = config_option

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Bootstrap:
        if isinstance(value, Bootstrap):
            return value
        try:
            security = ClientSecurity.of(given_properties(ctx, self._config_option))
            bootstrap = Bootstrap(str(value), security)
            bootstrap.check()
        except ConfigurationError as error:
            raise click.BadParameter(str(error), ctx=ctx, param_hint=f"'{self._config_option}'") from None
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return bootstrap


def bootstrap_option(
    help: str, *, option: str = "--bootstrap", config_option: str = CONFIG_OPTION, required: bool = True
) -> Callable[[Command], Command]:
    """Add both options; the command is handed a `Bootstrap` under the first one's name, or None where it is not required."""
    where = click.option(option, type=Servers(config_option), required=required, help=help)
    how = config_option_of(option, config_option)
    return lambda command: where(how(command))


def config_option_of(option: str, config_option: str = CONFIG_OPTION) -> Callable[[Command], Command]:
    """Add the file alone, of a command whose `option` takes its properties."""
    return click.option(
        config_option,
        metavar="FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        is_eager=True,
        expose_value=False,
        callback=_keep_properties,
        help=f"Properties for {option}, as Kafka's clients have them: security.protocol, ssl.… and sasl.….",
    )


def require_entrance(bootstrap: Bootstrap) -> None:
    """End the command with one sentence where brokers do not let it in."""
    try:
        check_entrance(bootstrap)
    except NOT_LET_IN as error:
        raise click.ClickException(f"{error}.") from error


def given_properties(context: click.Context | None, config_option: str = CONFIG_OPTION) -> Mapping[str, str]:
    """What the command's properties file says, all of it; nothing where none was given."""
    found: Mapping[str, str] = {} if context is None else context.meta.get(_place(config_option), {})
    return found


def _keep_properties(context: click.Context, parameter: click.Parameter, path: Path | None) -> None:
    if path is None:
        return
    try:
        context.meta[_place(parameter.opts[0])] = client_settings(path)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _place(option: str) -> str:
    return f"{__name__}{option}"
