"""Writes inventory/aws/hosts.yml from what `terraform apply` made: nobody retypes an address between the two.

Reads the output `inventory` of terraform/pipeline.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from terraform_tools import terraform

ROOT = Path(__file__).resolve().parents[1]
HEADER = "# Written by scripts/terraform_inventory.py: change the map of datacenters and apply it, not this file.\n"


def inventory_text(inventory: dict[str, Any]) -> str:
    """The inventory as YAML: groups one a line, a host with all of its variables on one."""
    text: str = yaml.safe_dump(inventory, default_flow_style=None, sort_keys=False, width=1000)
    return HEADER + text


def main() -> int:
    """Write the file; 1 with a sentence when there is nothing to write."""
    parser = argparse.ArgumentParser(description="Write the Ansible inventory of what Terraform made.")
    parser.add_argument("--pipeline", type=Path, default=ROOT / "terraform" / "pipeline")
    parser.add_argument("--output", type=Path, default=ROOT / "inventory" / "aws" / "hosts.yml")
    arguments = parser.parse_args()
    if terraform() is None:
        print("Terraform is not installed: install version 1.11.", file=sys.stderr)
        return 1
    command = ["terraform", f"-chdir={arguments.pipeline}", "output", "-json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stderr, file=sys.stderr)
        return 1
    outputs = json.loads(done.stdout)
    if "inventory" not in outputs:
        print("Terraform has made nothing yet: run `terraform apply` first.", file=sys.stderr)
        return 1
    arguments.output.write_text(inventory_text(outputs["inventory"]["value"]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
