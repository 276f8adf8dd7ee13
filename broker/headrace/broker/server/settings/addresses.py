"""What only the host tells of a configuration: the ports that were bound, the broker's own name, its directories, and what
names of hosts stand for.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from headrace.broker.auth.hosts import host_text
from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.keys import ConfigurationError
from headrace.broker.config.properties import parse_properties
from headrace.broker.log.checkpoints import META_PROPERTIES_FILE
from headrace.broker.log.files import Files
from headrace.broker.replication.model import Endpoint


def with_ports(config: BrokerConfig, sockets: list[socket.socket]) -> BrokerConfig:
    """The configuration with what the system chose in place of port 0 and of empty advertised hosts."""
    bound = {
        listener.name: replace(listener, port=sock.getsockname()[1])
        for listener, sock in zip(config.listeners, sockets, strict=True)
    }
    advertised = tuple(
        replace(
            listener,
            host=listener.host or socket.getfqdn(),
            port=listener.port or bound[listener.name].port,
        )
        for listener in config.advertised_listeners
    )
    return replace(config, listeners=tuple(bound.values()), advertised_listeners=advertised)


def endpoints(config: BrokerConfig) -> list[Endpoint]:
    """What this broker registers under."""
    return [
        Endpoint(
            listener=listener.name,
            security_protocol=listener.security_protocol,
            host=listener.host,
            port=listener.port,
        )
        for listener in config.advertised_listeners
    ]


def numeric(host: str) -> str | None:
    """An address as those of clients are written; None for a name, which has to be resolved."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return None
    return host_text(str(found[0][4][0]))


async def resolve(host: str) -> str | None:
    """The address that is meant, of IPv4 where there is one; None where nobody knows that name."""
    found = numeric(host)
    if found is not None:
        return found
    try:
        names = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    # As Java chooses among several.
    first = next((each for each in names if each[0] == socket.AF_INET), names[0])
    return host_text(str(first[4][0]))


def data_directories(config: BrokerConfig) -> list[str]:
    """Absolute paths of log.dirs. Raises ConfigurationError when two of them are one directory."""
    directories = [os.path.abspath(directory) for directory in config.log_dirs]
    if len({os.path.realpath(directory) for directory in directories}) < len(directories):
        raise ConfigurationError("log.dirs", ",".join(config.log_dirs), "each directory once")
    return directories


def stored_broker_id(files: Files, directories: Sequence[str]) -> int | None:
    """The broker id that an earlier start wrote to a data directory."""
    for directory in directories:
        with suppress(OSError, ValueError, KeyError):
            text = files.read(os.path.join(directory, META_PROPERTIES_FILE)).decode()
            return int(parse_properties(text)["broker.id"])
    return None
