"""A program that has imported all that a broker imports, and forks itself for each broker: 0.05 seconds of CPU a start, not 0.6.

Owns its forks, which end when it does; it ends when the test's process, at the other end of its socket, ends. Invariant: one
thread, so that a fork is a whole process.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import runpy
import select
import signal
import socket
import sys

MESSAGE_BYTES_MAX = 1_000_000
DESCRIPTORS_A_REQUEST = 3
PR_SET_PDEATHSIG = 1
IMPORTED = (
    "uvloop",
    "headrace.broker.command",
    "headrace.broker.server.main",
    "headrace.broker.server.sockets.tls_listeners",
    "headrace.broker.server.access.log_ins",
    "headrace.broker.zk.access",
    "headrace.mirror.service",
)


def serve(control: socket.socket) -> None:
    """Fork for every request and tell of every end until nobody asks any more.

    A request is JSON with `module`, `arguments`, `folder` and `environment`, and three descriptors: standard output, standard
    error, and where the process id and later the exit code are told, as `subprocess` gives it, a line each.
    """
    wake_end, signal_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(signal_end)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    tellers: dict[int, int] = {}
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(wake_end, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poll.poll()}
        if wake_end in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake_end, 4096)
            tell_ends(tellers)
        if control.fileno() not in ready:
            continue
        message, descriptors, _, _ = socket.recv_fds(control, MESSAGE_BYTES_MAX, DESCRIPTORS_A_REQUEST)
        if not message:
            return
        *streams, teller = descriptors
        pid = os.fork()
        if pid == 0:
            run(json.loads(message), *streams)
        for stream in streams:
            os.close(stream)
        tellers[pid] = teller
        os.write(teller, b"%d\n" % pid)


def tell_ends(tellers: dict[int, int]) -> None:
    while tellers:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        teller = tellers.pop(pid)
        # Whoever asked may have gone.
        with contextlib.suppress(BrokenPipeError):
            os.write(teller, b"%d\n" % os.waitstatus_to_exitcode(status))
        os.close(teller)


def run(request: dict[str, object], stdout: int, stderr: int) -> None:
    """Be `python -m MODULE ARGUMENT…` from here on, and end as it ends."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    os.dup2(stdout, sys.stdout.fileno())
    os.dup2(stderr, sys.stderr.fileno())
    os.closerange(sys.stderr.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    os.chdir(str(request["folder"]))
    environment = request["environment"]
    assert isinstance(environment, dict)
    os.environ.clear()
    os.environ.update(environment)
    arguments = request["arguments"]
    assert isinstance(arguments, list)
    sys.argv = [str(request["module"]), *arguments]
    runpy.run_module(str(request["module"]), run_name="__main__", alter_sys=True)
    sys.exit()


def main() -> None:
    for name in IMPORTED:
        __import__(name)
    gc.collect()
    gc.freeze()
    # It ends with whom it serves; Ctrl-C is theirs to see.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()
