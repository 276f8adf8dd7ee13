"""`headrace broker`: one broker from a `server.properties` file."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import click

from headrace.broker import structured_log
from headrace.broker.config import foreign
from headrace.broker.config.broker import BrokerConfig, unknown_key_sentence
from headrace.broker.config.keys import ConfigurationError
from headrace.broker.config.properties import parse_properties
from headrace.broker.config.providers import resolved
from headrace.broker.errors import KafkaError
from headrace.broker.server.embedding import check_embedded
from headrace.broker.server.peers.inter_broker import security_between_brokers
from headrace.broker.structured_log import get_logger

logger = get_logger(__name__)
USAGE_ERROR = 2
PROPERTIES_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def checked(properties: Mapping[str, str]) -> tuple[BrokerConfig, list[str]]:
    """The configuration that a broker can start with, the parts inside it included, and the keys that nobody knows.

    Raises ConfigurationError.
    """
    config, unknown_keys = BrokerConfig.from_properties(properties)
    if not config.zookeeper.zookeeper_connect:
        raise ConfigurationError("zookeeper.connect", "", "HOST:PORT,HOST:PORT/chroot of the ensemble")
    security_between_brokers(config)
    check_embedded(config.properties)
    return config, unknown_keys


def problem(properties: Mapping[str, str]) -> str | None:
    """A sentence about the first value that no broker takes or, without one, about a key that nobody knows."""
    try:
        config, unknown_keys = checked(properties)
        _check_certificates(config)
        _check_log_ins(config)
        _check_zookeeper(config)
    except ConfigurationError as error:
        return str(error)
    return unknown_key_sentence(unknown_keys[0]) if unknown_keys else None


def read_properties(path: Path) -> dict[str, str]:
    """What a file says, and the files that it refers to. Raises ConfigurationError, UnicodeDecodeError and OSError."""
    return resolved(
        parse_properties(path.read_text(encoding="utf-8")), lambda other: Path(other).read_text("utf-8")
    )


def _check_certificates(config: BrokerConfig) -> None:
    """Raises ConfigurationError for listeners that could not serve TLS with their keys and certificates."""
    if any(listener.is_tls for listener in config.listeners):
        # Its libraries are only needed then.
        from headrace.broker.server.sockets.tls_listeners import TlsListeners

        TlsListeners(config)


def _check_log_ins(config: BrokerConfig) -> None:
    """Raises ConfigurationError for listeners where nobody could log in."""
    if any(listener.is_sasl for listener in config.listeners):
        from headrace.broker.server.access.log_ins import LogIns

        LogIns(config, lambda *_: None, lambda *_: None)


def _check_zookeeper(config: BrokerConfig) -> None:
    """Raises ConfigurationError for stores and a JAAS file that no broker could show ZooKeeper."""
    from headrace.broker.zk.access import ZooKeeperAccess

    ZooKeeperAccess.of(config.properties, os.environ).context()


def load_config(path: Path) -> BrokerConfig:
    """The configuration of a file; warns of keys without effect. Raises what `read_properties` does."""
    config, unknown_keys = checked(read_properties(path))
    for reason, keys in foreign.without_effect(config.properties).items():
        logger.warning("configuration without effect", keys=",".join(keys), reason=reason)
    for key in unknown_keys:
        logger.warning("unknown configuration key", key=key)
    return config


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config",
    "path",
    type=PROPERTIES_FILE,
    help="A server.properties file with Apache Kafka's keys.",
)
@click.option(
    "--check",
    "checked_path",
    type=PROPERTIES_FILE,
    help="Only say whether a broker starts with this file and knows all of it: nothing and exit code 0, or 2 and what to change.",
)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
def broker(path: Path | None, checked_path: Path | None, log_level: str) -> None:
    """Run one broker in the foreground; prints `ready HOST:PORT` once it serves.

    \b
    Examples: headrace broker --config server.properties
              headrace broker --check server.properties
    """
    structured_log.configure(log_level)
    if path is not None and checked_path is None:
        _run(path)
    elif checked_path is not None and path is None:
        _check(checked_path)
    else:
        raise click.UsageError("Give either --config FILE, to run a broker, or --check FILE.")


def _check(path: Path) -> None:
    try:
        found = problem(read_properties(path))
    except (ConfigurationError, UnicodeDecodeError, OSError) as error:
        found = str(error)
    if found is not None:
        click.echo(f"Error: {path}: {found}", err=True)
        sys.exit(USAGE_ERROR)


def _run(path: Path) -> None:
    try:
        config = load_config(path)
        # The server's libraries are only needed once the configuration is known to be right.
        from headrace.broker.server import main
        from headrace.broker.zk.paths import MalformedZnodeError
        from headrace.broker.zk.znodes import ZooKeeperError
    except (ConfigurationError, UnicodeDecodeError, OSError) as error:
        _give_up(f"{path}: {error}", USAGE_ERROR)
    try:
        main.run(config, lambda address: print(f"ready {address}", flush=True))
    except ConfigurationError as error:
        _give_up(f"{path}: {error}", USAGE_ERROR)
    except (ZooKeeperError, MalformedZnodeError, KafkaError) as error:
        _give_up(str(error), 1)


def _give_up(message: str, code: int) -> NoReturn:
    """End with a line for the log and, last, the sentence that a person at a terminal looks for."""
    logger.error("cannot go on", reason=message, exit_code=code)
    click.echo(f"Error: {message}", err=True)
    sys.exit(code)


if __name__ == "__main__":
    broker()
