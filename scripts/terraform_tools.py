"""Terraform as this repository runs it: where it and the AWS provider are, and an AWS of moto's to try things against.

A configuration that the environment names and that does not exist is left aside: providers come from the plugin folder of this
machine that has them, and else from wherever Terraform itself looks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

TERRAFORM = Path(__file__).resolve().parents[1] / "terraform"
EXAMPLES = TERRAFORM / "pipeline" / "examples"
# Host of the registry, owner, name, version, platform, program: how a filesystem mirror is laid out.
PROVIDER = "*/hashicorp/aws/*/*/terraform-provider-aws*"
# Where Terraform itself looks, then where a machine's image may keep a mirror.
PLUGIN_FOLDERS = (
    "~/.terraform.d/plugins",
    "~/.local/share/terraform/plugins",
    "/usr/local/share/terraform/plugins",
    "/usr/share/terraform/plugins",
    "/usr/lib/terraform/plugins",
)
MIRROR_PARENTS = ("/opt", "/usr/local/lib", "/usr/local/share", "/var/lib")
START_SECONDS = 60


def terraform() -> str | None:
    """The program, or None where it is not installed."""
    return shutil.which("terraform")


def plugin_mirror() -> Path | None:
    """The folder of this machine that has the AWS provider, laid out as a filesystem mirror; None where none has."""
    places = [Path(place).expanduser() for place in PLUGIN_FOLDERS]
    for parent in MIRROR_PARENTS:
        places += sorted(Path(parent).glob("*")) + sorted(Path(parent).glob("*/*"))
    for place in places:
        if any(place.glob(PROVIDER)):
            return place
    return None


def environment(folder: Path) -> dict[str, str]:
    """What Terraform runs in: no questions, its data and its configuration in that folder."""
    settings = {**os.environ, "TF_IN_AUTOMATION": "1", "TF_INPUT": "0", "CHECKPOINT_DISABLE": "1"}
    # The provider's schemas fill its memory at the start: with Go's ordinary 100 a fifth of a plan is collecting garbage.
    settings.setdefault("GOGC", "400")
    configuration = settings.get("TF_CLI_CONFIG_FILE")
    mirror = plugin_mirror()
    if mirror is not None:
        file = folder / "terraform.rc"
        file.write_text(
            f'provider_installation {{\n  filesystem_mirror {{\n    path = "{mirror}"\n  }}\n}}\n',
            encoding="utf-8",
        )
        settings["TF_CLI_CONFIG_FILE"] = str(file)
    elif configuration and not Path(configuration).exists():
        del settings["TF_CLI_CONFIG_FILE"]
    return settings


def copy_of_terraform(folder: Path) -> Path:
    """A copy of terraform/ in that folder, without anybody's state, backend or plugins; returns its pipeline."""
    left_out = shutil.ignore_patterns(".terraform*", "*.tfstate*", "backend.tf")
    shutil.copytree(TERRAFORM, folder / "terraform", ignore=left_out)
    return folder / "terraform" / "pipeline"


def has_credentials() -> bool:
    """Whether the environment says who the user is on AWS, in one of the ways that the provider knows."""
    named = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_ROLE_ARN", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
    return any(name in os.environ for name in named) or Path("~/.aws").expanduser().is_dir()


@contextmanager
def moto_server(folder: Path) -> Iterator[Mapping[str, str]]:
    """An AWS that makes nothing, on a free port; yields the variables that point the provider at it."""
    log = folder / "moto.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [str(Path(sys.executable).with_name("moto_server")), "-H", "127.0.0.1", "-p", "0"],
            stdout=sink,
            stderr=sink,
        )
    try:
        url = _wait_for_url(process, log)
        yield {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "moto",
            "AWS_SECRET_ACCESS_KEY": "nobody-is-asked-for-it",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
    finally:
        process.terminate()
        process.wait(timeout=30)


def _wait_for_url(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        for word in log.read_text(encoding="utf-8").split():
            if word.startswith("http://127.0.0.1:"):
                with urllib.request.urlopen(f"{word}/moto-api/", timeout=START_SECONDS):
                    return word.rstrip("/")
        time.sleep(0.2)
    raise RuntimeError(f"moto did not start: {log.read_text(encoding='utf-8')}")
