"""`headrace broker`: one broker from a `server.properties` file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

import click

from headrace.broker import config_foreign, structured_log
from headrace.broker.config import BrokerConfig, ConfigurationError, parse_properties
from headrace.broker.errors import KafkaError
from headrace.broker.structured_log import get_logger

log = get_logger(__name__)
USAGE_ERROR = 2


def load_config(path: Path) -> BrokerConfig:
    """The configuration of a file, with warnings for keys without effect. Raises ConfigurationError."""
    config, unknown_keys = BrokerConfig.from_properties(parse_properties(path.read_text(encoding="utf-8")))
    for reason, keys in config_foreign.without_effect(config.properties).items():
        log.warning("configuration without effect", keys=",".join(keys), reason=reason)
    for key in unknown_keys:
        log.warning("unknown configuration key", key=key)
    if not config.zookeeper.zookeeper_connect:
        raise ConfigurationError("zookeeper.connect", "", "HOST:PORT,HOST:PORT/chroot of the ensemble")
    return config


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config",
    "path",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A server.properties file with Apache Kafka's keys.",
)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
def broker(path: Path, log_level: str) -> None:
    """Run one broker in the foreground; prints `ready HOST:PORT` once it serves.

    Example: headrace broker --config server.properties
    """
    structured_log.configure(log_level)
    try:
        config = load_config(path)
        # The server's libraries are only needed once the configuration is known to be right.
        from headrace.broker.server import main
        from headrace.broker.zk.client import ZooKeeperError
        from headrace.broker.zk.paths import MalformedZnodeError
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
    log.error("cannot go on", reason=message, exit_code=code)
    click.echo(f"Error: {message}", err=True)
    sys.exit(code)


if __name__ == "__main__":
    broker()
