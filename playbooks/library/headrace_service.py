#!/usr/bin/python
"""Brings one service under supervisor or systemd to what is wanted, its files included, and waits until it serves.

All of it is one module run, since a run costs about 0.37 s of CPU however small its work. A service is compared as it runs:
its process carries what it was started from (see headrace_fingerprint). Invariants: `started` touches no service that
serves, so that it may run on all hosts at once, and reports one that should run something else; `current` changes such a
one, for plays of one host at a time; nothing is written or stopped before every new file was accepted; what a service ran
last that passed its gate is kept until what runs now has passed (see headrace_kept), and `previous` goes back to it.
"""

from __future__ import annotations

import os
import subprocess
import xmlrpc.client
from functools import cached_property
from typing import Any

from ansible.module_utils import headrace_fingerprint as fingerprint
from ansible.module_utils import headrace_kept as kept
from ansible.module_utils import headrace_marks as marks
from ansible.module_utils import headrace_reloads as reloads
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.headrace_health import PROBES, complaint, wait_until
from ansible.module_utils.headrace_managers import (
    Manager,
    ManagerError,
    Outlived,
    Supervisor,
    Systemd,
    supervisor_answers,
)
from ansible.module_utils.headrace_writing import (
    FILE_OPTIONS,
    FilesError,
    differences,
    place,
    secret_files,
    unwanted_secrets,
    validate_files,
)

DOCUMENTATION = r"""
module: headrace_service
short_description: Run a service under supervisor or systemd and wait until it serves
description:
  - Writes a service's files, starts or restarts it, and waits until it answers in its own protocol.
  - Supports check mode and diff mode.
options:
  name: {description: The program's or unit's name., type: str, required: true}
  manager: {description: Who keeps the process., type: str, required: true, choices: [supervisor, systemd]}
  state:
    description:
      - C(started) writes the files of a service that does not serve and starts it; one that serves is left alone.
      - C(current) also changes a service that serves, when it runs something else than what is wanted, and keeps what it ran.
      - C(previous) goes back to what was kept, where something was; C(settled) forgets it, since what runs now is good.
      - C(restarted) restarts a service as it is, or reloads one that can be, and C(serving) only waits.
      - C(stopped) stops, and a boot does not bring the service back; C(absent) also removes its definition.
      - Of a drained host only these two do anything.
    type: str
    default: started
    choices: [started, current, previous, settled, restarted, serving, stopped, absent]
  definition:
    description: The file that defines the service to its manager; needed to start one.
    type: dict
    suboptions: &file
      path: {description: Where the file is., type: path, required: true}
      content: {description: "The whole content; C(@digest@) in a definition becomes its digest.", type: str}
      mode: {description: The file's mode., type: str, default: "0644"}
      validate: {description: A command that accepts the new content; it names the file as %s., type: str}
      reloaded: {description: "Whether the service is told to read it anew; C(@digest@) in it becomes its digest.", type: bool,
                 default: false}
  files: {description: "The files that the service is started from, C(run.sh) first.", type: list, elements: dict,
          default: [], suboptions: *file}
  secrets: {description: "Contents that no output may show, by names of files that end in C(.secret).", type: dict, default: {}}
  secret_dir: {description: "The folder of these files, where no other such file stays.", type: path}
  secret_group: {description: "The group that may read them, where not that of who writes them.", type: str}
  release: {description: "The folder or program whose place behind its symlinks tells the release.", type: path, default: /}
  reload:
    description: How a service is told to read its files anew, so that no connection is cut, and where it tells what it loaded.
    type: dict
    suboptions:
      signal: {description: "The signal, as USR2; with systemd the unit's ExecReload.", type: str, required: true}
      socket: {description: Where it answers C(show env) and C(show info)., type: path, required: true}
  mark: {description: The file that is there while the host is drained., type: path}
  directories: {description: Directories that it needs., type: list, elements: str, default: []}
  directory_owner: {description: User and group that own the directories., type: str}
  socket: {description: Path of supervisor's socket., type: path}
  health:
    description: How the service shows that it serves; without it a process that stays up is enough.
    type: dict
    suboptions:
      kind:
        description: The protocol to ask in.
        type: str
        required: true
        choices: [http, https, kafka, kafka_tls, zookeeper, zookeeper_tls]
      address: {description: Where to ask., type: str, required: true}
      port: {description: The port to ask., type: int, required: true}
      path: {description: The path of an HTTP request., type: str, default: /}
  kept:
    description: The folder for what the service ran last that passed its gate; needed for C(current), C(previous), C(settled).
    type: path
  gated:
    description: Whether gates come after C(current), so that what it ran before is kept until they have passed.
    type: bool
    default: false
  deferred:
    description: >
      A service that is started or restarted now need not answer yet, only stay up; a later run with C(serving) waits for the
      answer.
    type: bool
    default: false
  timeout_s: {description: How long the service may take to serve., type: int, default: 60}
  log: {description: Where a person reads what the service says., type: str, required: true}
author: The headrace contributors
"""

EXAMPLES = r"""
- name: Run a broker
  headrace_service:
    name: dc-east-broker-1
    manager: supervisor
    socket: /srv/headrace/supervisor.sock
    definition: {path: /srv/headrace/supervisor/conf.d/dc-east-broker-1.conf, content: "[program:dc-east-broker-1]..."}
    health: {kind: kafka, address: 127.0.1.1, port: 9092}
    log: /srv/headrace/log/dc-east-broker-1.log
"""

RETURN = r"""
state:
  description: What was found before anything was done; C(drained) where the host is.
  type: str
  returned: always
outdated:
  description: Whether it runs something else than what is wanted, or something that has not passed its gate.
  type: bool
  returned: always
step:
  description: What was, or would be, done to a process that shall run, C(start), C(restart), C(reload) or C(none).
  type: str
  returned: always
kept:
  description: The release whose files are kept, as its path; empty when nothing is.
  type: str
  returned: always
"""

# A service that runs and has not answered for this long serves nobody, and needs no turn of its own.
SILENCE_S_MAX = 10
# What can be done without the service's manager as well, and on a drained host.
STOPPING = ("stopped", "absent")


class NotServingError(Exception):
    """The service does not answer in time; the message is a sentence with the end of its log."""


def manager_of(arguments: dict[str, Any]) -> Manager:
    name: str = arguments["name"]
    if arguments["manager"] == "systemd":
        return Systemd(name)
    socket: str = arguments["socket"]
    if arguments["state"] in STOPPING and not supervisor_answers(socket):
        return Outlived(name, socket, arguments["timeout_s"])
    return Supervisor(name, socket)


class Service:
    """One service: what is wanted of it, and what was found."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.name: str = arguments["name"]
        self.arguments = arguments
        self.manager = manager_of(arguments)
        self.found = self.manager.state()

    def secrets(self) -> list[dict[str, Any]]:
        return secret_files(
            self.arguments["secrets"], self.arguments["secret_dir"], self.arguments["secret_group"]
        )

    def kept_release(self) -> str:
        """The release that can be gone back to; empty when what runs has passed its gate, or was never changed."""
        folder = self.arguments.get("kept")
        return kept.started_from(folder).splitlines()[-1] if folder and kept.is_kept(folder) else ""

    def keep(self) -> str | None:
        """Keep what the process was started from, unless something is kept; why that cannot be, or None."""
        return kept.keep(self.arguments["kept"], self.told, self.arguments["definition"]["path"])

    @cached_property
    def told(self) -> str:
        """What the process that was found says it was started from; empty where there is none."""
        pid = self.manager.process_id() if self.found == "running" else 0
        text = fingerprint.running(pid) if pid else ""
        path = self.reloaded()
        if not text or path is None:
            return text
        return fingerprint.with_loaded(text, reloads.told(self.arguments["reload"]["socket"]).digest, path)

    def reloaded(self) -> str | None:
        """The path of the file that it reads anew when it is told to."""
        return next((file["path"] for file in self.arguments["files"] if file.get("reloaded")), None)

    def wanted(self) -> str:
        """What the process would say if it ran from what is wanted."""
        arguments = self.arguments
        return fingerprint.wanted(
            arguments["definition"], arguments["files"], self.secrets(), arguments["release"]
        )

    def wanted_files(self) -> list[dict[str, Any]]:
        """The definition is the last: a process that comes back meanwhile is started from the old one, and says so."""
        files = [
            fingerprint.with_digest(file) if file.get("reloaded") else file
            for file in self.arguments["files"]
        ]
        definition = fingerprint.with_digest(self.arguments["definition"])
        return [*files, *self.secrets(), definition]

    def unwanted_secrets(self) -> list[str]:
        return unwanted_secrets(self.arguments["secrets"], self.arguments["secret_dir"])

    def started_from(self) -> dict[str, str] | None:
        """How what the process was started from differs from what is wanted, as Ansible shows it; None when it does not."""
        before, after = self.told, self.wanted()
        header = f"{self.name} is started from"
        texts = {
            "before": f"{before}\n",
            "after": f"{after}\n",
            "before_header": header,
            "after_header": header,
        }
        return None if before == after else texts

    def boot_difference(self) -> list[dict[str, str]]:
        """A service that serves and would not after the next boot, as Ansible shows it."""
        if self.found != "running" or self.manager.comes_back() is not False:
            return []
        header = f"{self.name} after a boot"
        return [
            {"before": "stopped\n", "after": "running\n", "before_header": header, "after_header": header}
        ]

    def enabled(self, check_mode: bool) -> list[dict[str, str]]:
        """Have a service that serves come back with the machine; what that changes."""
        found = self.boot_difference()
        if found and not check_mode:
            self.manager.enable()
        return found

    def differences(self) -> list[dict[str, str]]:
        started_from = self.started_from()
        written = differences(self.arguments["directories"], self.wanted_files())
        removed = [
            {"before": "a secret\n", "after": "", "before_header": path, "after_header": path}
            for path in self.unwanted_secrets()
        ]
        return written + removed + ([started_from] if started_from else [])

    def step(self) -> str:
        """What has to be done to the process for it to run from what is wanted."""
        return self.step_to(self.wanted())

    def step_to(self, wanted: str) -> str:
        """The same for it to say this of itself."""
        if self.found != "running":
            return "restart" if self.found == "failing" else "start"
        told, path = self.told, self.reloaded()
        if told == wanted:
            return "none"
        reloads_it = path is not None and fingerprint.without(told, path) == fingerprint.without(wanted, path)
        return "reload" if reloads_it else "restart"

    def bring(self, check_mode: bool) -> None:
        """Write the files and have the service run from them, until it serves."""
        validate_files(self.wanted_files())
        if check_mode:
            return
        step = self.step()
        unkept = self.keep() if self.arguments["state"] == "current" else None
        place(self.arguments["directories"], self.wanted_files(), self.arguments["directory_owner"])
        for path in self.unwanted_secrets():
            os.unlink(path)
        if step != "none":
            self.run_anew(step)
        try:
            self.wait_until_well(asks=not self.arguments["deferred"])
        except NotServingError as error:
            raise NotServingError(
                f"{error} It cannot be taken back: {unkept}." if unkept else f"{error}"
            ) from None

    def run_anew(self, step: str) -> None:
        """Have the service run from the files that are there now."""
        if step == "reload":
            self.reload()
        elif step == "restart":
            self.manager.restart()
        else:
            self.manager.start()

    def reload(self) -> None:
        """Tell the service to read its files anew, and wait until another process serves from them."""
        how, timeout_s, log = (self.arguments[name] for name in ("reload", "timeout_s", "log"))
        former = reloads.told(how["socket"]).pid
        self.manager.reload(how["signal"])

        def other() -> str | None:
            return None if reloads.told(how["socket"]).pid not in (0, former) else "none has taken over"

        if wait_until(other, timeout_s):
            raise NotServingError(
                f"goes on with what it had loaded: no process that read its files anew serves after {timeout_s} s. "
                f"Its log is {log}.{last_lines(self.manager.log_tail(log))}"
            )

    def complaint(self, timeout_s: float, *, asks: bool = True) -> str | None:
        """None once the process is up and, if it is asked, answers; otherwise what is wrong when time has run out."""
        health = self.arguments["health"] if asks else None

        def ask() -> str | None:
            process = self.manager.complaint()
            if process is not None or health is None:
                return process
            answer = complaint(health["kind"], health["address"], health["port"], health["path"])
            return answer and f"{health['kind']} at {health['address']}:{health['port']}: {answer}"

        return wait_until(ask, timeout_s)

    def wait_until_well(self, *, asks: bool = True) -> None:
        timeout_s, log = self.arguments["timeout_s"], self.arguments["log"]
        wrong = self.complaint(timeout_s, asks=asks)
        if wrong is not None:
            raise NotServingError(
                f"does not serve after {timeout_s} s: {wrong}. Its log is {log}.{last_lines(self.manager.log_tail(log))}"
            )


def last_lines(lines: list[str]) -> str:
    return " Its last lines:\n" + "\n".join(lines) if lines else " It is empty."


def started(service: Service, check_mode: bool) -> dict[str, Any]:
    if service.kept_release():
        return {"changed": False, "outdated": True}
    found = service.differences()
    runs = service.found == "running"
    if runs and found and (check_mode or service.complaint(SILENCE_S_MAX) is None):
        return {"changed": False, "outdated": True}
    if found or not runs:
        step = service.step()
        service.bring(check_mode)
        return {"changed": True, "diff": found, "step": step}
    if not check_mode:
        service.wait_until_well()
    enabled = service.enabled(check_mode)
    return {"changed": bool(enabled), "diff": enabled}


def current(service: Service, check_mode: bool) -> dict[str, Any]:
    found, step = service.differences(), service.step()
    result = {"changed": bool(found) or step != "none", "diff": found, "step": step}
    if result["changed"]:
        service.bring(check_mode)
    elif not check_mode:
        service.wait_until_well()
    if not check_mode and not service.arguments["gated"]:
        kept.settle(service.arguments["kept"])
    return result


def previous(service: Service, check_mode: bool) -> dict[str, Any]:
    folder = service.arguments["kept"]
    if not service.kept_release():
        return {"changed": False}
    # A change that got no further than to its files has changed no process.
    step = service.step_to(kept.started_from(folder))
    result = {"changed": True, "diff": kept.differences(folder), "step": step}
    if not check_mode:
        kept.restore(folder)
        if step != "none":
            service.run_anew(step)
        service.wait_until_well()
    return result


def settled(service: Service, check_mode: bool) -> dict[str, Any]:
    release = service.kept_release()
    if release and not check_mode:
        kept.settle(service.arguments["kept"])
    return {"changed": bool(release), "kept": ""}


def restarted(service: Service, check_mode: bool) -> dict[str, Any]:
    step = "reload" if service.arguments.get("reload") and service.found == "running" else "restart"
    if not check_mode:
        service.run_anew(step)
        service.wait_until_well()
    return {"changed": True, "step": step}


def serving(service: Service, check_mode: bool) -> dict[str, Any]:
    if not check_mode:
        service.wait_until_well()
    return {"changed": False}


def stopped(service: Service, check_mode: bool) -> dict[str, Any]:
    changed = service.found in ("running", "failing") or bool(service.manager.comes_back())
    if changed and not check_mode:
        service.manager.stop()
    return {"changed": changed}


def absent(service: Service, check_mode: bool) -> dict[str, Any]:
    result = stopped(service, check_mode)
    definition = service.arguments["definition"]["path"]
    changed = result["changed"] or service.found != "missing" or os.path.lexists(definition)
    if changed and not check_mode:
        service.manager.forget(definition)
    return {"changed": changed}


STATES = {
    "started": started,
    "current": current,
    "previous": previous,
    "settled": settled,
    "restarted": restarted,
    "serving": serving,
    "stopped": stopped,
    "absent": absent,
}


def argument_spec() -> dict[str, Any]:
    health_options = {
        "kind": {"type": "str", "required": True, "choices": sorted(PROBES)},
        "address": {"type": "str", "required": True},
        "port": {"type": "int", "required": True},
        "path": {"type": "str", "default": "/"},
    }
    reload_options = {
        "signal": {"type": "str", "required": True},
        "socket": {"type": "path", "required": True},
    }
    return {
        "name": {"type": "str", "required": True},
        "manager": {"type": "str", "required": True, "choices": ["supervisor", "systemd"]},
        "state": {"type": "str", "default": "started", "choices": list(STATES)},
        "definition": {"type": "dict", "options": FILE_OPTIONS},
        "files": {"type": "list", "elements": "dict", "default": [], "options": FILE_OPTIONS},
        "secrets": {"type": "dict", "default": {}, "no_log": True},
        "secret_dir": {"type": "path"},
        "secret_group": {"type": "str"},
        "release": {"type": "path", "default": "/"},
        "directories": {"type": "list", "elements": "str", "default": []},
        "directory_owner": {"type": "str"},
        "reload": {"type": "dict", "options": reload_options},
        "mark": {"type": "path"},
        "socket": {"type": "path"},
        "health": {"type": "dict", "options": health_options},
        "kept": {"type": "path"},
        "gated": {"type": "bool", "default": False},
        "deferred": {"type": "bool", "default": False},
        "timeout_s": {"type": "int", "default": 60},
        "log": {"type": "str", "required": True},
    }


def mark_against(arguments: dict[str, Any]) -> marks.Mark | None:
    """The mark of a drained host, whose services are only ever stopped."""
    if arguments["mark"] is None or arguments["state"] in STOPPING:
        return None
    return marks.read(arguments["mark"])


def main() -> None:
    module = AnsibleModule(
        argument_spec=argument_spec(),
        required_if=[
            ("manager", "supervisor", ["socket"]),
            ("state", "started", ["definition"]),
            ("state", "current", ["definition", "kept"]),
            ("state", "previous", ["kept"]),
            ("state", "settled", ["kept"]),
            ("state", "absent", ["definition"]),
        ],
        supports_check_mode=True,
    )
    name = module.params["name"]
    try:
        if (mark := mark_against(module.params)) is not None:
            module.warn(marks.sentence(mark))
            module.exit_json(changed=False, state="drained", outdated=False, step="none", kept="")
        service = Service(module.params)
        result = STATES[module.params["state"]](service, module.check_mode)
    except NotServingError as error:
        module.fail_json(msg=f"{name} {error}")
    except (ManagerError, FilesError, fingerprint.UnreadableError, marks.MarkError) as error:
        module.fail_json(msg=f"{name}: {error}")
    except (xmlrpc.client.Fault, OSError, subprocess.CalledProcessError) as error:
        module.fail_json(msg=f"{name}: {error}")
    answer = {"state": service.found, "outdated": False, "step": "none", "kept": service.kept_release()}
    module.exit_json(**{**answer, **result})


if __name__ == "__main__":
    main()
