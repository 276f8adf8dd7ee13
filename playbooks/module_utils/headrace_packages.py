"""The packages of what services need from a host's system, on Debian and on Amazon Linux, and how they are installed."""

from __future__ import annotations

PROGRAMS = {"clock": ("chronyd", "ntpd"), "haproxy": ("haproxy",), "java": ("java",)}
# By the ID or ID_LIKE of /etc/os-release.
PACKAGES = {
    "debian": {
        "clock": "chrony",
        "haproxy": "haproxy",
        "java": "openjdk-17-jre-headless",
        "python": "python3-venv",
    },
    "amzn": {
        "clock": "chrony",
        "haproxy": "haproxy",
        "java": "java-17-amazon-corretto-headless",
        "python": "python3.11",
    },
}
INSTALL = {
    "debian": ("apt-get", "install", "-y", "-q", "--no-install-recommends"),
    "amzn": ("dnf", "install", "-y", "-q"),
}
OS_RELEASE = "/etc/os-release"


class UnknownSystemError(Exception):
    """Nothing is known of the system's packages; the message is a sentence."""


def os_release() -> str:
    with open(OS_RELEASE, encoding="utf-8") as file:
        return file.read()


def family(text: str) -> str:
    """Which of PACKAGES a system is, from the text of its /etc/os-release."""
    pairs = dict(line.replace('"', "").split("=", 1) for line in text.splitlines() if "=" in line)
    names = [pairs.get(key, "") for key in ("ID", "ID_LIKE")]
    for name in " ".join(names).split():
        if name in PACKAGES:
            return name
    raise UnknownSystemError(
        f"No packages are known for {pairs.get('PRETTY_NAME', 'this system')}: install what preflight asks for and set "
        "machine_packages to false."
    )


def advice(need: str) -> str:
    """What a person would type here to install it."""
    try:
        system = family(os_release())
    except (UnknownSystemError, OSError):
        return f"install {need}"
    program, verb = INSTALL[system][:2]
    return f"install it ({program} {verb} {PACKAGES[system].get(need, need)})"


def python_advice(*, installs: bool) -> str:
    """What to do where the system's own Python is too old for a release."""
    try:
        amazon = family(os_release()) == "amzn"
    except (UnknownSystemError, OSError):
        amazon = False
    if not amazon:
        return "Set release_python to another Python of the host's."
    how = "which the roll-out installs" if installs else f"after you {advice('python')}"
    return f"Set release_python to {PACKAGES['amzn']['python']}, {how}."
