#!/usr/bin/python
"""Starts and stops the supervisord of one machine, which it knows by its own pid file and by nothing else.

Invariants: a pid file whose process is gone or is no supervisord counts as stopped; stopping ends when the process is gone,
and with it every program it kept, also one that outlived it; none is started beside such programs.
"""

from __future__ import annotations

import os
import signal
import subprocess
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.headrace_health import wait_until
from ansible.module_utils.headrace_managers import outlived, outlived_problem, stop_outlived

DOCUMENTATION = r"""
module: headrace_supervisord
short_description: Start or stop a supervisord by its configuration and pid file
options:
  state: {description: What shall be., type: str, default: started, choices: [started, stopped]}
  executable: {description: The supervisord program., type: path, required: true}
  config: {description: Its configuration file., type: path, required: true}
  pid_file: {description: Its pid file., type: path, required: true}
  socket: {description: Its socket., type: path, required: true}
  stopped:
    description: Its programs that the play has stopped by then, or would have, in check mode.
    type: list
    elements: str
    default: []
  timeout_s: {description: How long it may take., type: int, default: 60}
author: The headrace contributors
"""

EXAMPLES = r"""
- name: Start supervisord
  headrace_supervisord:
    executable: /opt/headrace/current/bin/supervisord
    config: /srv/headrace/supervisord.conf
    pid_file: /srv/headrace/supervisord.pid
    socket: /srv/headrace/supervisor.sock
"""

RETURN = r"""
pid:
  description: The process found, or 0.
  type: int
  returned: always
"""


def is_ours(pid: int, config: str) -> bool:
    """Whether the process runs with that configuration; a pid may have been given to another program since."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return config.encode() in file.read().split(b"\0")
    except OSError:
        return False


def running_pid(pid_file: str, config: str) -> int:
    """The supervisord that the pid file names, or 0."""
    try:
        with open(pid_file, encoding="ascii") as file:
            pid = int(file.read())
    except (OSError, ValueError):
        return 0
    return pid if is_ours(pid, config) else 0


def start(arguments: dict[str, str], timeout_s: int) -> str | None:
    """Start supervisord in the background; returns what is wrong, or None."""
    command = [arguments["executable"], "--configuration", arguments["config"]]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        return f"`{' '.join(command)}` failed: {(result.stderr or result.stdout).strip()}"
    return wait_until(
        lambda: None if os.path.exists(arguments["socket"]) else f"there is no socket {arguments['socket']}",
        timeout_s,
    )


def stop(pid: int, arguments: dict[str, str], timeout_s: int) -> str | None:
    """Stop supervisord, if there is one; it removes its pid file before it is gone, so the process itself is waited for."""
    if pid:
        os.kill(pid, signal.SIGTERM)
    wrong = wait_until(
        lambda: f"process {pid} still stops its programs" if is_ours(pid, arguments["config"]) else None,
        timeout_s,
    )
    if wrong is None:
        stop_outlived(arguments["socket"], timeout_s)
    return wrong


def would_stop(arguments: dict[str, Any], check_mode: bool) -> bool:
    """Whether programs run on without supervisord; in check mode those count no more that the play would have stopped."""
    left = set(outlived(arguments["socket"]).values())
    return bool(left - set(arguments["stopped"]) if check_mode else left)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "default": "started", "choices": ["started", "stopped"]},
            "executable": {"type": "path", "required": True},
            "config": {"type": "path", "required": True},
            "pid_file": {"type": "path", "required": True},
            "socket": {"type": "path", "required": True},
            "stopped": {"type": "list", "elements": "str", "default": []},
            "timeout_s": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    arguments = module.params
    timeout_s, starts = arguments["timeout_s"], arguments["state"] == "started"
    pid = running_pid(arguments["pid_file"], arguments["config"])
    if starts and pid == 0 and (problem := outlived_problem(arguments["socket"])):
        module.fail_json(msg=problem)
    changed = pid == 0 if starts else pid != 0 or would_stop(arguments, module.check_mode)
    wrong = None
    if changed and not module.check_mode:
        wrong = start(arguments, timeout_s) if starts else stop(pid, arguments, timeout_s)
    if wrong is not None:
        module.fail_json(msg=f"supervisord is not {arguments['state']} after {timeout_s} s: {wrong}.")
    module.exit_json(changed=changed, pid=pid)


if __name__ == "__main__":
    main()
