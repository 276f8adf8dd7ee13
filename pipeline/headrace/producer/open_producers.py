"""The producers that are open in this process: closed when it exits, begun anew in a process that is forked off it.

Both hooks are the interpreter's, which also runs them for forks of C code that keep to its rules (as uWSGI's).
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import time
import weakref
from multiprocessing import parent_process, util
from typing import Any, Final, Protocol

_log = logging.getLogger("headrace.producer")

EXIT_SECONDS_MAX: Final = 20.0
"""How long an exit waits for all producers that were left open; less than the 30 s that supervisors give to a stop."""


class OpenProducer(Protocol):
    """What is asked of a producer when its process exits or was forked."""

    def close(self, *, seconds_max: float) -> object: ...

    def begin_anew(self) -> None: ...


_open: dict[int, OpenProducer] = {}
_all: weakref.WeakSet[OpenProducer] = weakref.WeakSet()
_is_used = False
"""Whether a producer was ever opened, in this process or in one that it was forked off."""


def note_open(producer: OpenProducer) -> None:
    """Hold a producer until it is noted as closed."""
    global _is_used
    _is_used = True
    _open[id(producer)] = producer
    _all.add(producer)
    # A child of multiprocessing forgets the hooks of its parent, and ends without running its own.
    atexit.unregister(_close_all)
    atexit.register(_close_all)
    if parent_process() is not None:
        util.Finalize(None, _close_all, exitpriority=0)


def note_closed(producer: OpenProducer) -> None:
    _open.pop(id(producer), None)


def keep_for_good(value: Any) -> None:
    """Never run a value's destructor in this process."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


def _close_all() -> None:
    deadline = time.monotonic() + EXIT_SECONDS_MAX
    while _open:
        producer = next(iter(_open.values()))
        left = max(0.0, deadline - time.monotonic())
        try:
            producer.close(seconds_max=left / len(_open))
        except Exception:
            _log.exception("a producer could not be closed at exit")
        note_closed(producer)


def _begin_anew() -> None:
    for producer in list(_all):
        producer.begin_anew()
    if _is_used:
        _end_without_clean_up()


def _end_without_clean_up() -> None:
    """Let this process end, after the interpreter's own hooks and C's open files, as those of multiprocessing do.

    The clean-up of the client's OpenSSL would wait for good for a lock that one of the client's threads, of which a
    child has none, held at the fork.
    """
    c_library = ctypes.CDLL(None)
    if hasattr(c_library, "on_exit"):
        # What was registered last is called first, and `_exit` is given the status.
        c_library.on_exit(c_library._exit, None)
        c_library.on_exit(c_library.fcloseall, None)


os.register_at_fork(after_in_child=_begin_anew)
