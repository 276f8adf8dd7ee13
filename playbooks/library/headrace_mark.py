#!/usr/bin/python
"""Marks a host as drained, takes its mark away, or tells it.

Invariants: a mark that says the same is left as it is, so that it tells since when; nothing but the mark is touched.
"""

from __future__ import annotations

import os
from typing import Any

from ansible.module_utils import headrace_marks as marks
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.headrace_writing import replace_file

DOCUMENTATION = r"""
module: headrace_mark
short_description: Mark a host as drained, or tell whether it is
options:
  config_dir: {description: The host's folder of configuration., type: path, required: true}
  host: {description: The host's name in the inventory., type: str, required: true}
  state:
    description: C(present) marks it, C(absent) takes the mark away, C(told) changes nothing.
    type: str
    default: told
    choices: [present, absent, told]
  who: {description: Who drains it; needed to mark., type: str}
  why: {description: For which reason; needed to mark., type: str}
  since: {description: "Since when, as ISO 8601 in UTC; needed to mark.", type: str}
author: The headrace contributors
"""

EXAMPLES = r"""
- name: Mark the host
  headrace_mark:
    config_dir: /etc/headrace
    host: dc-east-broker-1
    state: present
    who: ana
    why: its disk is replaced
    since: "2026-11-23T08:30:00Z"
"""

RETURN = r"""
drained:
  description: Whether the host is marked now, or in check mode would be.
  type: bool
  returned: always
sentence:
  description: Who drained it, why and since when; empty when nobody did.
  type: str
  returned: always
sentences:
  description: The same of each host that is drained of those that are this machine.
  type: dict
  returned: when C(state) is C(told)
"""


def present(path: str, found: marks.Mark | None, wanted: marks.Mark, check_mode: bool) -> dict[str, Any]:
    same = found is not None and found._replace(since=wanted.since) == wanted
    if not same and not check_mode:
        replace_file(path, marks.text_of(wanted), 0o644)
    mark = found if same and found is not None else wanted
    sentence = marks.sentence(mark) if same or not check_mode else marks.intention(mark)
    return {"changed": not same, "drained": True, "sentence": sentence}


def absent(path: str, check_mode: bool) -> dict[str, Any]:
    there = os.path.lexists(path)
    if there and not check_mode:
        os.unlink(path)
    return {"changed": there, "drained": False, "sentence": ""}


def told(arguments: dict[str, Any]) -> dict[str, Any]:
    found = {mark.host: marks.sentence(mark) for mark in marks.read_all(arguments["config_dir"])}
    sentence = found.get(arguments["host"], "")
    return {"changed": False, "drained": bool(sentence), "sentence": sentence, "sentences": found}


def run(arguments: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    path = marks.path_of(arguments["config_dir"], arguments["host"])
    if arguments["state"] == "absent":
        return absent(path, check_mode)
    if arguments["state"] == "told":
        return told(arguments)
    wanted = marks.Mark(arguments["host"], arguments["who"], arguments["why"], arguments["since"])
    try:
        found = marks.read(path)
    except marks.MarkError:
        found = None
    return present(path, found, wanted, check_mode)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "config_dir": {"type": "path", "required": True},
            "host": {"type": "str", "required": True},
            "state": {"type": "str", "default": "told", "choices": ["present", "absent", "told"]},
            "who": {"type": "str"},
            "why": {"type": "str"},
            "since": {"type": "str"},
        },
        required_if=[("state", "present", ["who", "why", "since"])],
        supports_check_mode=True,
    )
    try:
        module.exit_json(**run(module.params, module.check_mode))
    except (marks.MarkError, OSError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
