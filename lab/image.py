"""The image of a lab host: Debian 12 with systemd and what the role `machine` would install, made once with debootstrap.

Its tag is the hash of its recipe: this module's constants and the files of lab/root, which are laid over the system. The mirror
is the one that this machine's apt installs Debian from.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from lab.docker import Docker
from lab.engine import cache_folder
from lab.errors import LabError

SUITE: Final = "bookworm"
PACKAGES: Final = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "python3",
    "python3-venv",
    "openjdk-17-jre-headless",
    "haproxy",
    "chrony",
    "iproute2",
    "nftables",
    "procps",
    # For drills of a clock that is off: all containers have their machine's.
    "libfaketime",
)
ENABLED: Final = ("lab-routes.service",)
DISABLED: Final = ("haproxy.service", "apt-daily.timer", "apt-daily-upgrade.timer", "e2scrub_all.timer")
"""Debian's own HAProxy with its own configuration, and what a container has no use for."""
MASKED: Final = ("systemd-ask-password-console.path", "systemd-ask-password-wall.path")
"""Nobody types passwords there, and each watch takes one of the few inotify instances that all containers share."""
REMOVED: Final = (
    "var/cache/apt/archives/*.deb",
    "var/lib/apt/lists/*_*",
    "usr/share/doc/*",
    "usr/share/man/*",
)
COMMAND: Final = "/lib/systemd/systemd"
OVERLAY: Final = Path(__file__).parent / "root"
REPOSITORY: Final = "headrace-lab"
BUILD_TIMEOUT_S: Final = 900
IMPORT_TIMEOUT_S: Final = 300


def overlay() -> dict[str, tuple[bool, str]]:
    """The files of lab/root by their paths in the image: whether each is a program, and its content."""
    return {
        str(path.relative_to(OVERLAY)): (path.stat().st_mode & 0o111 != 0, path.read_text(encoding="utf-8"))
        for path in sorted(OVERLAY.rglob("*"))
        if path.is_file()
    }


def recipe() -> str:
    """All that decides what is in the image, as text."""
    return json.dumps([SUITE, PACKAGES, ENABLED, DISABLED, MASKED, REMOVED, COMMAND, overlay()])


def image_name() -> str:
    return f"{REPOSITORY}:{hashlib.sha256(recipe().encode()).hexdigest()[:16]}"


def ensure(docker: Docker, say: Callable[[str], None]) -> str:
    """The image's name; it is made when the engine does not have it, and images of other recipes go."""
    name = image_name()
    if docker.ask("image", "inspect", name).returncode != 0:
        build(docker, name, say)
        for other in images(docker):
            if other != name:
                docker.ask("image", "rm", other)
    return name


def images(docker: Docker) -> list[str]:
    listing = docker.run("image", "ls", "--format", "{{.Repository}}:{{.Tag}}", REPOSITORY)
    return listing.split()


def build(docker: Docker, name: str, say: Callable[[str], None]) -> None:
    if os.geteuid() != 0:
        raise LabError(
            "The image of the lab is made with debootstrap, which needs root: run this once as root."
        )
    if shutil.which("debootstrap") is None:
        raise LabError(
            "The image of the lab is made with debootstrap: install the Debian package debootstrap."
        )
    say("Making the image of a host with debootstrap (two minutes, this once)")
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="image-", dir=cache_folder()) as folder:
        root = Path(folder, "root")
        bootstrap(root, Path(folder, "debootstrap.log"))
        configure(root)
        import_tree(docker, root, name)


def bootstrap(root: Path, log_path: Path) -> None:
    command = [
        "debootstrap",
        "--variant=minbase",
        f"--include={','.join(PACKAGES)}",
        SUITE,
        str(root),
        mirror(),
    ]
    with log_path.open("wb") as log:
        result = subprocess.run(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, check=False, timeout=BUILD_TIMEOUT_S
        )
    if result.returncode != 0:
        last = log_path.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-5:]
        raise LabError("debootstrap failed:\n" + "\n".join(last))


def mirror() -> str:
    """Where this machine's apt has Debian 12 from."""
    command = [
        "apt-get",
        "indextargets",
        "--format",
        "$(RELEASE) $(COMPONENT) $(REPO_URI)",
        "Created-By: Packages",
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    found = [line.split()[2] for line in result.stdout.splitlines() if line.startswith(f"{SUITE} main ")]
    if not found:
        raise LabError(
            f"apt of this machine has no source of Debian 12 ({SUITE} main): add one to its sources."
        )
    return found[0]


def configure(root: Path) -> None:
    for path, (is_program, content) in overlay().items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
        file.chmod(0o755 if is_program else 0o644)
    for verb, units in (("enable", ENABLED), ("disable", DISABLED), ("mask", MASKED)):
        subprocess.run(
            ["chroot", str(root), "systemctl", "--quiet", verb, *units], check=True, capture_output=True
        )
    for pattern in REMOVED:
        for found in root.glob(pattern):
            shutil.rmtree(found) if found.is_dir() and not found.is_symlink() else found.unlink()
    # Each container is a machine of its own, with journals that outlive a reboot.
    (root / "etc/machine-id").write_text("", encoding="utf-8")
    (root / "var/log/journal").mkdir(exist_ok=True)


def import_tree(docker: Docker, root: Path, name: str) -> None:
    changes = (f'CMD ["{COMMAND}"]', "ENV container=docker")
    options = [option for change in changes for option in ("--change", change)]
    with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as archive:
        result = subprocess.run(
            docker.command("import", *options, "-", name),
            stdin=archive.stdout,
            capture_output=True,
            text=True,
            check=False,
            timeout=IMPORT_TIMEOUT_S,
        )
    if result.returncode != 0 or archive.returncode != 0:
        raise LabError(f"The image cannot be imported: {result.stderr.strip() or 'tar failed'}")
