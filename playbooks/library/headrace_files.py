#!/usr/bin/python
"""Writes all files of one service in one module run.

A module run costs about 0.37 s of CPU however small its work, so a task a file would spend the roll-out's budget on start-ups.
Invariants: a file is replaced whole or not at all; a file whose content and mode are right is left alone; a file with
a `validate` command is replaced only after the command accepted the new content.
"""

from __future__ import annotations

import grp
import os
import pwd
import shlex
import subprocess
import tempfile
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: headrace_files
short_description: Write all files and directories of one service
description:
  - Creates directories and writes files with given contents, all in one module run.
  - Supports check mode and diff mode.
options:
  directories:
    description: Directories to create, parents included.
    type: list
    elements: str
    default: []
  directory_mode:
    description: Mode of the directories that are created.
    type: str
    default: "0755"
  files:
    description: Files to write.
    type: list
    elements: dict
    default: []
    suboptions:
      path: {description: Where the file is., type: path, required: true}
      content: {description: The whole content., type: str, required: true}
      mode: {description: The file's mode., type: str, default: "0644"}
      validate: {description: A command that accepts the new content; it names the file as %s., type: str}
  directory_owner:
    description: User and group that own the directories; the user of the connection when absent. Files stay root's.
    type: str
author: The headrace contributors
"""

EXAMPLES = r"""
- name: Write a broker's files
  headrace_files:
    directories: [/var/lib/headrace/broker-1]
    files:
      - {path: /etc/headrace/broker-1/server.properties, content: "broker.id=1\n"}
"""

RETURN = r"""
paths:
  description: What was changed, or would be.
  type: list
  returned: always
created:
  description: Those of them that were not there before.
  type: list
  returned: always
"""


class FilesError(Exception):
    """A file cannot be written; the message says which and why."""


def current_content(path: str) -> str | None:
    """The file's text, or None when there is no such file."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FilesError(f"{path} cannot be read: {error.strerror}.") from error


def owner_ids(owner: str | None) -> tuple[int, int] | None:
    if owner is None:
        return None
    try:
        return pwd.getpwnam(owner).pw_uid, grp.getgrnam(owner).gr_gid
    except KeyError as error:
        raise FilesError(
            f"There is no user and group {owner!r} on this host: roll out the release first."
        ) from error


def check_content(command: str | None, temporary_path: str, path: str) -> None:
    if command is None:
        return
    result = subprocess.run(
        shlex.split(command % temporary_path), capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        output = (result.stdout + result.stderr).strip()
        raise FilesError(f"{path} was not replaced: `{command % path}` refuses the new content: {output}")


def replace(path: str, content: str, mode: int, validate: str | None) -> None:
    directory = os.path.dirname(path)
    os.makedirs(directory, exist_ok=True)
    descriptor, temporary_path = tempfile.mkstemp(dir=directory, prefix=".headrace-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(content)
        check_content(validate, temporary_path, path)
        os.chmod(temporary_path, mode)
        os.replace(temporary_path, path)
    except BaseException:
        os.unlink(temporary_path)
        raise


def write_file(wanted: dict[str, Any], check_mode: bool) -> dict[str, str] | None:
    """Bring one file to its wanted state; returns its diff, or None when nothing had to change."""
    path, content, mode = wanted["path"], wanted["content"], int(wanted["mode"], 8)
    before = current_content(path)
    if before == content and os.stat(path).st_mode & 0o7777 == mode:
        return None
    if not check_mode:
        replace(path, content, mode, wanted.get("validate"))
    return {"before": before or "", "after": content, "before_header": path, "after_header": path}


def make_directory(
    path: str, mode: int, ids: tuple[int, int] | None, check_mode: bool
) -> dict[str, str] | None:
    if os.path.isdir(path):
        return None
    if not check_mode:
        os.makedirs(path, exist_ok=True)
        os.chmod(path, mode)
        if ids is not None:
            os.chown(path, *ids)
    return {"before": "", "after": f"directory {path}\n", "before_header": path, "after_header": path}


def run(module: AnsibleModule) -> list[dict[str, str]]:
    arguments, check_mode = module.params, module.check_mode
    ids = None if check_mode else owner_ids(arguments["directory_owner"])
    directory_mode = int(arguments["directory_mode"], 8)
    directories = [make_directory(path, directory_mode, ids, check_mode) for path in arguments["directories"]]
    files = [write_file(wanted, check_mode) for wanted in arguments["files"]]
    return [diff for diff in directories + files if diff is not None]


def main() -> None:
    file_options = {
        "path": {"type": "path", "required": True},
        "content": {"type": "str", "required": True},
        "mode": {"type": "str", "default": "0644"},
        "validate": {"type": "str"},
    }
    module = AnsibleModule(
        argument_spec={
            "directories": {"type": "list", "elements": "str", "default": []},
            "directory_mode": {"type": "str", "default": "0755"},
            "files": {"type": "list", "elements": "dict", "default": [], "options": file_options},
            "directory_owner": {"type": "str"},
        },
        supports_check_mode=True,
    )
    wanted = module.params["directories"] + [file["path"] for file in module.params["files"]]
    found = {path for path in wanted if os.path.exists(path)}
    try:
        diffs = run(module)
    except (FilesError, OSError) as error:
        module.fail_json(msg=str(error))
    paths = [diff["after_header"] for diff in diffs]
    created = [path for path in paths if path not in found]
    module.exit_json(changed=bool(diffs), diff=diffs, paths=paths, created=created)


if __name__ == "__main__":
    main()
