"""`--registry` of the commands that ask one; what the file of `--command-config` says about registries holds for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from headrace.broker.client.bootstrap_option import CONFIG_OPTION, given_properties
from headrace.broker.config.keys import ConfigurationError
from headrace.events.registry_address import RegistryAddress

Command = Callable[..., Any]


class Registries(click.ParamType[RegistryAddress]):
    """URL[,URL]…, with what the command's properties file says about them."""

    name = "URL,…"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> RegistryAddress:
        if isinstance(value, RegistryAddress):
            return value
        try:
            address = RegistryAddress.of(str(value), given_properties(ctx))
            address.check()
        except ConfigurationError as error:
            self.fail(f"{CONFIG_OPTION}: {error}", param, ctx)
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)
        return address


def registry_option(help: str, *, required: bool = True) -> Callable[[Command], Command]:
    """Add `--registry`, handed over as a `RegistryAddress`; goes with `bootstrap_option` or its `config_option_of`."""
    return click.option("--registry", type=Registries(), required=required, help=help)
