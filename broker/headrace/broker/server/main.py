"""The process of one broker: runs it until a signal tells it to stop, or until it cannot go on."""

from __future__ import annotations

import asyncio
import gc
import resource
from collections.abc import Callable

import uvloop

from headrace.broker.addresses import address_text
from headrace.broker.config.broker import BrokerConfig
from headrace.broker.server.broker import Broker
from headrace.broker.server.surroundings import Surroundings
from headrace.broker.stop_signals import stop_signals
from headrace.broker.structured_log import get_logger

logger = get_logger(__name__)
# Under load thousands of replies wait at a time, and a look at all young objects finds hardly one to drop: by default there is
# one each 700, a tenth of all time.
YOUNG_OBJECTS = 10_000


def run(config: BrokerConfig, announce: Callable[[str], None]) -> None:
    """Run a broker until SIGTERM, SIGINT or SIGHUP; `announce("HOST:PORT")` is called once it serves.

    Raises ConfigurationError for what only the host tells, ZooKeeperError or StorageError when it cannot start,
    StorageError also when every disk has failed.
    """
    _allow_open_files()
    uvloop.run(_serve(config, announce))


def _allow_open_files() -> None:
    """Each partition holds three files open and each connection one: take all that the system grants."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(config: BrokerConfig, announce: Callable[[str], None]) -> None:
    loop, starter = asyncio.get_running_loop(), asyncio.current_task()
    stopping = asyncio.Event()
    broker = Broker(config, stopping.set, Surroundings())

    def stop() -> None:
        stopping.set()
        if not broker.is_serving and starter is not None:
            starter.cancel()

    for number in stop_signals():
        loop.add_signal_handler(number, stop)
    try:
        await broker.start()
        # What a start builds stays: the collector need not walk it while clients wait.
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS)
        listener = broker.config.advertised_listeners[0]
        address = address_text(listener.host, listener.port)
        logger.info("serving", broker=broker.cluster.membership.broker_id, listener=address)
        announce(address)
        await stopping.wait()
        if broker.failure is not None:
            raise broker.failure
    except asyncio.CancelledError:
        if not stopping.is_set():
            raise
    finally:
        logger.info("stopping", broker=broker.cluster.membership.broker_id)
        await broker.stop()
