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

from terraform_tools import PIPELINE, environment, has_credentials, moto_server, terraform


def plan(example: Path, folder: Path, settings: Mapping[str, str]) -> int:
    """Plan one example and print the plan's summary, or all of it when it fails; the exit code."""
    command = ["terraform", f"-chdir={PIPELINE}", "plan", "-no-color", "-lock=false", f"-var-file={example}"]
    command.append(f"-state={folder / 'none.tfstate'}")
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    summary = [line for line in done.stdout.splitlines() if line.startswith("Plan:")]
    print(f"{example.stem}: {' '.join(summary)}" if done.returncode == 0 else done.stdout + done.stderr)
    return done.returncode


def main() -> int:
    """Plan every example, or those named on the command line; 1 when one failed."""
    if terraform() is None:
        print("Terraform is not installed: install version 1.11 or later.", file=sys.stderr)
        return 1
    examples = [PIPELINE / "examples" / f"{name}.tfvars" for name in sys.argv[1:]]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        settings = {**environment(folder), "TF_DATA_DIR": str(folder / "data")}
        if not has_credentials():
            print("No AWS credentials: planning against moto.")
            settings |= stack.enter_context(moto_server(folder))
        initialise = ["terraform", f"-chdir={PIPELINE}", "init", "-no-color", "-backend=false"]
        done = subprocess.run(initialise, env=settings, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(done.stdout + done.stderr, file=sys.stderr)
            return 1
        codes = [plan(example, folder, settings) for example in examples or sorted(PIPELINE.glob("examples/*.tfvars"))]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
