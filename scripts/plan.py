"""`make plan`: what playbooks/site.yml would do to the hosts of an inventory, for people, and changes nothing.

Runs site.yml with --check --diff; what it does not know itself it hands on to ansible-playbook (--limit, -e and so on).
Exit 0 when nothing would be done, 2 when something would, 1 when that cannot be told. Make itself ends with 2 for any failure
of a recipe, so whoever has to tell a failure from a change runs this program.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.append(str(CHECKOUT / "playbooks"))

from headrace_views.plan import Plan, exit_code, plan_of, text_of  # noqa: E402

FAILED = 1


def planned(inventory: str, arguments: list[str]) -> tuple[int, Plan]:
    """The exit code of ansible-playbook, and what its tasks told."""
    program = Path(sys.executable).parent / "ansible-playbook"
    command = [
        str(program),
        "-i",
        inventory,
        str(CHECKOUT / "playbooks" / "site.yml"),
        "--check",
        "--diff",
        *arguments,
    ]
    with tempfile.TemporaryDirectory(prefix="headrace-plan-") as folder:
        told = Path(folder) / "seen.json"
        environment = {
            **os.environ,
            "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"),
            "ANSIBLE_STDOUT_CALLBACK": "headrace_plan",
            "HEADRACE_PLAN": str(told),
        }
        done = subprocess.run(command, env=environment, check=False)
        seen = json.loads(told.read_text(encoding="utf-8")) if told.exists() else []
    return done.returncode, plan_of(seen)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument(
        "-i", "--inventory", default="inventory/local", help="inventory/local unless told otherwise"
    )
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")
    parser.add_argument("--full", action="store_true", help="show the content of new files, too")
    own, others = parser.parse_known_args()
    returncode, plan = planned(own.inventory, others)
    if returncode and not plan["failures"]:
        plan["failures"].append(
            {"host": "", "task": "", "sentence": "ansible-playbook failed: see its messages."}
        )
    print(json.dumps(plan, indent=1) if own.json else text_of(plan, own.full))
    return FAILED if returncode else exit_code(plan)


if __name__ == "__main__":
    sys.exit(main())
