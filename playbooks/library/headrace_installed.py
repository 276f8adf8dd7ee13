#!/usr/bin/python
"""Tells which releases a host has and what runs from each, and has `current`, which is for people, name one of them."""

from __future__ import annotations

import os
from typing import Any

from ansible.module_utils import headrace_releases as releases
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: headrace_installed
short_description: Tell which releases of headrace a host has, or name one of them
options:
  home: {description: Where releases are installed., type: path, required: true}
  current: {description: The release that the link C(current) shall name; without it nothing is changed., type: str}
author: The headrace contributors
"""

EXAMPLES = r"""
- name: Look at the releases
  headrace_installed:
    home: /opt/headrace
"""

RETURN = r"""
releases:
  description: Of each its version, the oldest that reads what it writes, and whether something runs from it.
  type: list
  returned: always
current:
  description: The version that C(current) names, or would; empty when there is none.
  type: str
  returned: always
"""


def bring(home: str, wanted: str | None, check_mode: bool) -> dict[str, Any]:
    found = os.path.basename(releases.current_of(home) or "")
    changed = wanted is not None and wanted != found
    if changed and not check_mode:
        assert wanted is not None
        releases.link_current(home, wanted)
    listed = [
        {
            "version": stamp["version"],
            "oldest_reader": stamp["oldest_reader"],
            "runs": bool(releases.users(releases.folder_of(home, stamp["version"]))),
        }
        for stamp in releases.stamps(home)
    ]
    texts = {"before": f"{found}\n", "after": f"{wanted}\n"}
    header = os.path.join(home, "current")
    diff = [{**texts, "before_header": header, "after_header": header}] if changed else []
    return {"changed": changed, "releases": listed, "current": wanted if changed else found, "diff": diff}


def main() -> None:
    module = AnsibleModule(
        argument_spec={"home": {"type": "path", "required": True}, "current": {"type": "str"}},
        supports_check_mode=True,
    )
    try:
        result = bring(module.params["home"], module.params["current"], module.check_mode)
    except OSError as error:
        module.fail_json(msg=f"The releases in {module.params['home']} cannot be looked at: {error}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
