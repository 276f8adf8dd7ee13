#!/usr/bin/python
"""Writes files and directories that belong to no service, all in one module run; those of a service go with headrace_service."""

from __future__ import annotations

import subprocess

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.headrace_writing import FILE_OPTIONS, FilesError, differences, validate_files, write

DOCUMENTATION = r"""
module: headrace_files
short_description: Write files and directories
description:
  - Creates directories and writes files with given contents, all in one module run.
  - Has systemd read units anew, where the files define some.
  - Supports check mode and diff mode.
options:
  directories:
    description: Directories to create, parents included.
    type: list
    elements: str
    default: []
  files:
    description: Files to write.
    type: list
    elements: dict
    default: []
    suboptions:
      path: {description: Where the file is., type: path, required: true}
      content: {description: The whole content., type: str}
      mode: {description: The file's mode., type: str, default: "0644"}
      validate: {description: A command that accepts the new content; it names the file as %s., type: str}
  directory_owner:
    description: User and group that own the directories; the user of the connection when absent. Files stay root's.
    type: str
  units:
    description: Units of systemd that the files define; those that are active take a change over, and no others start.
    type: list
    elements: str
    default: []
author: The headrace contributors
"""

EXAMPLES = r"""
- name: Write supervisord's configuration
  headrace_files:
    directories: [/srv/headrace/supervisor]
    files:
      - {path: /srv/headrace/supervisor/supervisord.conf, content: "[supervisord]\n"}
"""

RETURN = r"""
paths:
  description: What was changed, or would be.
  type: list
  returned: always
"""


def take_over(units: list[str]) -> None:
    """Have systemd read what was written of these units, and those that are active start anew."""
    for command in (["daemon-reload"], ["try-restart", *units]):
        subprocess.run(["systemctl", *command], check=True)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "directories": {"type": "list", "elements": "str", "default": []},
            "files": {"type": "list", "elements": "dict", "default": [], "options": FILE_OPTIONS},
            "directory_owner": {"type": "str"},
            "units": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    directories, files = module.params["directories"], module.params["files"]
    try:
        found = differences(directories, files)
        if found and module.check_mode:
            validate_files(files)
        elif found:
            write(directories, files, module.params["directory_owner"])
            if module.params["units"]:
                take_over(module.params["units"])
    except (FilesError, OSError, subprocess.CalledProcessError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=bool(found), diff=found, paths=[each["after_header"] for each in found])


if __name__ == "__main__":
    main()
