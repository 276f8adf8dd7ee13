"""Plans the examples of terraform/pipeline, each from nothing, and prints how many things each would make.

With AWS credentials the plan is made in that account; without any against moto, which is as good for a look. Nothing is made
and no state is read or written.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from terraform_tools import EXAMPLES, copy_of_terraform, environment, has_credentials, moto_server, terraform


def run(pipeline: Path, settings: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """One Terraform command in the pipeline's folder."""
    command = ["terraform", f"-chdir={pipeline}", *arguments]
    return subprocess.run(command, env=settings, capture_output=True, text=True, check=False)


def plan(pipeline: Path, example: str, settings: Mapping[str, str]) -> bool:
    """Plan one example and print the plan's summary, or what is wrong; whether it could be planned."""
    done = run(pipeline, settings, "plan", "-no-color", f"-var-file=examples/{example}.tfvars")
    summary = [line for line in done.stdout.splitlines() if line.startswith("Plan:")]
    print(f"{example}: {' '.join(summary) if done.returncode == 0 else done.stdout + done.stderr}")
    return done.returncode == 0


def main() -> int:
    """Plan every example, or those named on the command line; 1 when one failed."""
    if terraform() is None:
        print("Terraform is not installed: install version 1.11.", file=sys.stderr)
        return 1
    examples = sys.argv[1:] or sorted(file.stem for file in EXAMPLES.glob("*.tfvars"))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        pipeline = copy_of_terraform(folder)
        settings = environment(folder)
        if not has_credentials():
            print("No AWS credentials: planning against moto.", flush=True)
            settings |= stack.enter_context(moto_server(folder))
        done = run(pipeline, settings, "init", "-no-color")
        if done.returncode != 0:
            print(done.stdout + done.stderr, file=sys.stderr)
            return 1
        planned = [plan(pipeline, example, settings) for example in examples]
    return 0 if all(planned) else 1


if __name__ == "__main__":
    sys.exit(main())
