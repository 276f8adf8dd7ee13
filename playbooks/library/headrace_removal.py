#!/usr/bin/python
"""Removes folders that a roll-out made, and the user that ran the services, all in one module run.

Invariants: no folder of the system's own is removed; a user goes only when the roll-out made it and nothing that it
keeps data in stays.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Sequence

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: headrace_removal
short_description: Remove what a roll-out left on a machine
options:
  paths: {description: "Folders and files to remove, with all that is in them.", type: list, elements: path, default: []}
  user: {description: The user that ran the services; it is removed too., type: str}
  home: {description: "The home that the roll-out gave the user; with another one the user stays.", type: path}
  kept: {description: "Folders of the user's: while one is there, the user stays.", type: list, elements: path, default: []}
author: The headrace contributors
"""

EXAMPLES = r"""
- name: Remove the configuration and the releases
  headrace_removal:
    paths: [/etc/headrace, /opt/headrace]
    user: headrace
    home: /opt/headrace
    kept: [/var/lib/headrace]
"""

RETURN = r"""
removed:
  description: What was, or would be, removed.
  type: list
  returned: always
"""

# Folders that others live in as well.
SHARED_FOLDERS = frozenset(
    """
    / /bin /boot /dev /etc /home /lib /opt /proc /root /run /sbin /srv /sys /tmp /usr /usr/local
    /var /var/cache /var/lib /var/log /var/opt /var/run /var/tmp
    """.split()  # noqa: SIM905
)


class RefusedError(Exception):
    """Something must not or cannot be removed; the message is a sentence."""


def check_path(path: str) -> None:
    """Raises RefusedError for a folder that others live in."""
    if os.path.realpath(path) in SHARED_FOLDERS:
        raise RefusedError(
            f"{path} is the system's own folder and is not removed: set another in the inventory."
        )


def remove(path: str) -> None:
    """Remove a file, or a folder with all in it; of a mounted one, all in it."""
    if os.path.islink(path) or not os.path.isdir(path):
        os.unlink(path)
    elif os.path.ismount(path):
        for name in os.listdir(path):
            remove(os.path.join(path, name))
    else:
        shutil.rmtree(path)


def is_there(path: str) -> bool:
    """A mounted folder that is empty has nothing left to remove."""
    return os.path.lexists(path) and not (os.path.ismount(path) and not os.listdir(path))


def home_of(user: str) -> str | None:
    """None where there is no such user."""
    try:
        return pwd.getpwnam(user).pw_dir
    except KeyError:
        return None


def reason_to_stay(user: str, home: str | None, made_with: str | None, keeping: Sequence[str]) -> str | None:
    if home != made_with:
        return f"The user {user} stays, since its home is {home}: this roll-out did not make it."
    if keeping:
        return f"The user {user} stays, since {keeping[0]} does, its own: remove that too, and the user goes."
    return None


def remove_user(name: str) -> None:
    result = subprocess.run(["userdel", name], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RefusedError(f"The user {name} is not removed: {result.stderr.strip()}.")


def run(module: AnsibleModule) -> list[str]:
    paths, user = module.params["paths"], module.params["user"]
    for path in paths:
        check_path(path)
    found = [path for path in paths if is_there(path)]
    keeping = [path for path in module.params["kept"] if is_there(path) and path not in paths]
    home = home_of(user) if user else None
    staying = reason_to_stay(user, home, module.params["home"], keeping) if home is not None else None
    if staying is not None:
        module.warn(staying)
    leaves = home is not None and staying is None
    if not module.check_mode:
        for path in found:
            remove(path)
        if leaves:
            remove_user(user)
    return found + ([f"user {user}"] if leaves else [])


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "paths": {"type": "list", "elements": "path", "default": []},
            "user": {"type": "str"},
            "home": {"type": "path"},
            "kept": {"type": "list", "elements": "path", "default": []},
        },
        supports_check_mode=True,
    )
    try:
        removed = run(module)
    except (RefusedError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=bool(removed), removed=removed)


if __name__ == "__main__":
    main()
