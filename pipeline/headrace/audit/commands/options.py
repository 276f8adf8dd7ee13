"""What the commands of `headrace audit` share: options, the wish to stop."""

from __future__ import annotations

import signal
import threading
from typing import Final

from headrace.broker.client import bootstrap_option as options

RETRY_SECONDS: Final = 1.0


bootstrap_option: Final = options.bootstrap_option(
    "Brokers of the cluster: the counted one, or the offline one."
)


def stop_on_signals() -> threading.Event:
    """Let the round in progress finish, then end."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    return stop
