"""What a service that is reloaded tells of itself, and what a roll-out makes of it."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

from playbooks_kit import load

reloads = load("ansible.module_utils.headrace_reloads")
fingerprint = load("ansible.module_utils.headrace_fingerprint")
ANSWER = "HEADRACE_CONFIGURATION=0a1b\n\nName: HAProxy\nPid: 4711\nUptime: 0d\n\n"
DEFINITION = {"path": "/etc/unit", "content": "run @digest@"}
RUNNER = {"path": "/etc/run.sh", "content": "exec"}
RELOADED = {"path": "/etc/haproxy.cfg", "content": "setenv X @digest@\nmaxconn 1", "reloaded": True}


def test_what_is_loaded_is_told_at_a_socket_however_long_its_path_is(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 30)
    folder.mkdir()
    path = folder / "stats"
    with socket.socket(socket.AF_UNIX) as listener:
        (tmp_path / "short").symlink_to(folder)
        listener.bind(str(tmp_path / "short" / "stats"))
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                assert connection.recv(1000) == b"show env HEADRACE_CONFIGURATION;show info\n"
                connection.sendall(ANSWER.encode())

        thread = threading.Thread(target=answer)
        thread.start()
        assert reloads.told(str(path)) == reloads.Loaded("0a1b", 4711)
        thread.join()


def test_nobody_there_has_loaded_nothing(tmp_path: Path) -> None:
    assert reloads.told(str(tmp_path / "stats")) == reloads.Loaded("", 0)
    assert reloads.told(str(tmp_path / "gone" / "stats")) == reloads.Loaded("", 0)
    assert reloads.parse("Unknown variable\n\nPid: 7\n") == reloads.Loaded("", 7)


def test_what_a_process_carries_and_has_loaded_is_what_is_wanted_of_it() -> None:
    wanted = fingerprint.wanted(DEFINITION, [RUNNER, RELOADED], [], "/usr/sbin/haproxy")
    carried = fingerprint.wanted(DEFINITION, [RUNNER], [], "/usr/sbin/haproxy")
    loaded = fingerprint.digest(RELOADED["content"])
    assert fingerprint.with_loaded(carried, loaded, RELOADED["path"]) == wanted
    assert fingerprint.with_loaded(carried, "0a1b", RELOADED["path"]) != wanted
    former = fingerprint.with_loaded(carried, "0a1b", RELOADED["path"])
    assert fingerprint.without(former, RELOADED["path"]) == fingerprint.without(wanted, RELOADED["path"])


def test_the_file_carries_the_digest_that_is_told_of_it() -> None:
    written = fingerprint.with_digest(RELOADED)["content"]
    assert written == f"setenv X {fingerprint.digest(RELOADED['content'])}\nmaxconn 1"
