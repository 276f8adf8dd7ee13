"""Terraform for tests: copies to work in, the program's answers, and plans of the examples as data."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import terraform_tools

CHECKOUT = Path(__file__).resolve().parents[2]
TERRAFORM = CHECKOUT / "terraform"
MODULES = [*sorted(path.parent for path in TERRAFORM.glob("modules/*/versions.tf")), TERRAFORM / "pipeline"]
COMMAND_SECONDS = 600

# Where changes are accepted nothing is skipped: there, what is missing is a failure.
MAY_SKIP = not os.environ.get("CI")
needs_terraform = pytest.mark.skipif(
    MAY_SKIP and terraform_tools.terraform() is None,
    reason="terraform is not installed, or not on the path",
)
needs_provider = pytest.mark.skipif(
    MAY_SKIP and (terraform_tools.terraform() is None or terraform_tools.plugin_mirror() is None),
    reason="no plugin folder of this machine has terraform and its provider hashicorp/aws",
)


@dataclass(frozen=True)
class Workspace:
    """A folder of Terraform files, a copy to work in, and what its commands run with."""

    folder: Path
    settings: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["terraform", *arguments],
            cwd=self.folder,
            env=dict(self.settings),
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )

    def succeed(self, *arguments: str) -> str:
        """Run a command that has to succeed, without colours; its output."""
        done = self.run(arguments[0], "-no-color", *arguments[1:])
        assert done.returncode == 0, (
            f"terraform {' '.join(arguments)}\n{done.stdout[-8000:]}\n{done.stderr[-8000:]}"
        )
        return done.stdout

    def plan_as_data(self, *arguments: str) -> dict[str, Any]:
        """What a plan with these arguments would do, in Terraform's JSON form."""
        self.succeed("plan", "-out=made.plan", *arguments)
        plan: dict[str, Any] = json.loads(self.run("show", "-json", "made.plan").stdout)
        return plan


def pipeline_copy(folder: Path, settings: Mapping[str, str]) -> Workspace:
    """A copy of the pipeline and its modules, initialised."""
    workspace = Workspace(terraform_tools.copy_of_terraform(folder), settings)
    workspace.succeed("init")
    return workspace


def moto_pipeline(folder: Path) -> Iterator[Workspace]:
    """A copy of the pipeline whose provider talks to a moto server of its own."""
    settings = terraform_tools.environment(folder)
    with terraform_tools.moto_server(folder) as pointers:
        yield pipeline_copy(folder, {**settings, **pointers})
