"""How a command is let in by the sources of a mirror, where it asks them itself.

Reports and states say where a source is and hold no secret: what it wants of a client is in the command's own properties file,
under the names that the mirror has, `mirror.<datacenter>.security.protocol` and so on.
"""

from __future__ import annotations

import click

from headrace.broker.client.bootstrap_option import CONFIG_OPTION, given_properties
from headrace.broker.client.security import ClientSecurity
from headrace.broker.config.keys import ConfigurationError
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.config import PREFIX, parse_addresses


def client_of(source: str, bootstrap: str) -> ClusterClient:
    """A client of a source; raises ClickException for settings that cannot be."""
    try:
        security = ClientSecurity.of(
            given_properties(click.get_current_context(silent=True)), f"{PREFIX}{source}."
        )
    except ConfigurationError as error:
        raise click.ClickException(f"{CONFIG_OPTION}: {error}") from None
    return ClusterClient(parse_addresses("bootstrap", bootstrap), security=security)
