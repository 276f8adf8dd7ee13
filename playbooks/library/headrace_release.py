#!/usr/bin/python
"""Installs a release on a host from bundles that are already there; the action plugin of the same name brings them."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
from typing import Any

from ansible.module_utils import headrace_releases as releases
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: headrace_release
short_description: Install a release of headrace on a host
description:
  - Brings a host those of the release's bundles that it lacks, verifies them, and makes a virtual environment of their wheels
    without any package index, beside the releases that are there.
  - An interrupted run leaves what was there before; the next one starts anew.
  - The task's own options are those of the action plugin, which reads the manifest here; C(release) and C(places) are its.
options:
  version: {description: The release's version., type: str, required: true}
  folder: {description: "Here, the release's folder that `make release` built.", type: path}
  bundles: {description: The bundles that the host needs., type: list, elements: str}
  release: {description: "What the manifest says of the release and of these bundles.", type: dict}
  places: {description: "Where each bundle is, by its name: a path on the host, or an address.", type: dict}
  bucket: {description: The S3 bucket that a bundle is put into once and hosts fetch it from., type: str}
  region: {description: The region of that bucket., type: str}
  home: {description: Where releases are installed., type: path, required: true}
  python: {description: The host's Python that the environment is made with., type: str, default: python3}
  user: {description: "The user that runs the services, made where it is missing.", type: str}
  keep: {description: "How many releases stay, this one included; one in use always does.", type: int, default: 3}
  current: {description: "Whether C(current), which is for people, names this release.", type: bool, default: true}
author: The headrace contributors
"""

EXAMPLES = r"""
- name: Install the release
  headrace_release:
    version: 0.1.0
    folder: dist/headrace-0.1.0
    bundles: [broker]
    home: /opt/headrace
    user: headrace
"""

RETURN = r"""
installed:
  description: Whether the release was not there, or not with all of these bundles.
  type: bool
  returned: always
removed:
  description: The older releases that went.
  type: list
  returned: always
"""


def user_exists(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def make_user(name: str, home: str) -> None:
    options = [
        "--system",
        "--user-group",
        "--no-create-home",
        "--home-dir",
        home,
        "--shell",
        "/usr/sbin/nologin",
    ]
    result = subprocess.run(["useradd", *options, name], capture_output=True, text=True, check=False)
    if result.returncode != 0 and not user_exists(name):
        raise releases.ReleaseError(f"The user {name} cannot be made: {result.stderr.strip()}")


def refuse_another_content(folder: str, release: dict[str, Any]) -> None:
    """A process must never import from another content than it was started with."""
    stamp = releases.stamp_of(folder)
    other = releases.contradictions(stamp, release["bundles"]) if stamp else []
    running = releases.users(folder) if other else []
    if running:
        raise releases.ReleaseError(
            f"The release {release['version']} is installed with another content ({', '.join(other[:3])}), and "
            f"{running[0]} runs from it: give the new one a version of its own (make release VERSION=…)."
        )


def bring(arguments: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    release, home, user = arguments["release"], arguments["home"], arguments["user"]
    version = release["version"]
    folder = releases.folder_of(home, version)
    lacking = bool(release["bundles"]) and not releases.has_all(releases.stamp_of(folder), release["bundles"])
    no_user = user is not None and not user_exists(user)
    is_current = not arguments["current"] or releases.current_of(home) == os.path.join("releases", version)
    to_link = bool(release["bundles"]) and not is_current
    result: dict[str, Any] = {
        "changed": lacking or no_user or to_link,
        "installed": lacking,
        "removed": releases.removable(home, version, arguments["keep"]),
        "diff": differences(release, home, lacking, no_user and user, to_link),
    }
    if check_mode:
        result["changed"] = result["changed"] or bool(result["removed"])
        return result
    if no_user:
        make_user(user, home)
    with releases.alone(home):
        releases.remove_leftovers(home)
        if lacking:
            refuse_another_content(folder, release)
            releases.install(home, arguments["python"], release, arguments["places"])
        if to_link:
            releases.link_current(home, version)
        result["removed"] = releases.removable(home, version, arguments["keep"])
        for each in result["removed"]:
            releases.remove(home, each)
    result["changed"] = result["changed"] or bool(result["removed"])
    return result


def differences(
    release: dict[str, Any], home: str, lacking: bool, user: Any, to_link: bool
) -> list[dict[str, str]]:
    """What is done to the host, as Ansible shows it."""
    bundles = ", ".join(sorted(release["bundles"]))
    folder = releases.folder_of(home, release["version"])
    lines = {
        folder: f"headrace {release['version']} of {release['commit'][:12]}: {bundles}\n" if lacking else "",
        "user": f"{user}\n" if user else "",
        os.path.join(home, "current"): f"releases/{release['version']}\n" if to_link else "",
    }
    return [
        {"before": "", "after": text, "before_header": header, "after_header": header}
        for header, text in lines.items()
        if text
    ]


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "version": {"type": "str", "required": True},
            "folder": {"type": "path"},
            "bundles": {"type": "list", "elements": "str"},
            "release": {"type": "dict"},
            "places": {"type": "dict"},
            "bucket": {"type": "str"},
            "region": {"type": "str"},
            "home": {"type": "path", "required": True},
            "python": {"type": "str", "default": "python3"},
            "user": {"type": "str"},
            "keep": {"type": "int", "default": 3},
            "current": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    os.umask(0o022)
    try:
        result = bring(module.params, module.check_mode)
    except (releases.ReleaseError, OSError) as error:
        module.fail_json(msg=f"{socket.gethostname()}: {error}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
