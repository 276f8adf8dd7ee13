"""Runs `uv pip …` with the indexes, certificates and time-outs that pip is configured with on this machine.

uv reads neither pip's files nor its variables, so what `pip config list` says is told to it by variables of its own. One that is
set already stays as it is.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

# What a section of pip's configuration overrides, from the weakest on.
SECTIONS = ("global", "install", ":env:")
VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX",),
    "extra-index-url": ("UV_INDEX",),
    "find-links": ("UV_FIND_LINKS",),
    "trusted-host": ("UV_INSECURE_HOST",),
    "cert": ("SSL_CERT_FILE",),
    "client-cert": ("SSL_CLIENT_CERT",),
    "proxy": ("HTTP_PROXY", "HTTPS_PROXY"),
    "timeout": ("UV_HTTP_TIMEOUT",),
    "default-timeout": ("UV_HTTP_TIMEOUT",),
    "retries": ("UV_HTTP_RETRIES",),
}
# pip trusts the system's certificates and takes a package from any of its indexes; its hash says that it is the right one.
LIKE_PIP = {"UV_SYSTEM_CERTS": "true", "UV_INDEX_STRATEGY": "unsafe-best-match"}


def pip_settings(listing: str) -> dict[str, str]:
    """The settings of `pip install` by their keys, from what `pip config list` prints."""
    found: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for line in listing.splitlines():
        name, _, value = line.partition("=")
        section, _, key = name.partition(".")
        if section in found:
            found[section][key] = str(ast.literal_eval(value))
    return {key: value for section in SECTIONS for key, value in found[section].items()}


def uv_environment(settings: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """That environment, with what pip's settings mean for uv."""
    told = dict(LIKE_PIP)
    for key, value in settings.items():
        for variable in VARIABLES.get(key, ()):
            told[variable] = value
    if "find-links" in settings:
        # uv refuses folders that are not there, which pip only warns of.
        places = [place for place in settings["find-links"].split() if "://" in place or Path(place).exists()]
        told["UV_FIND_LINKS"] = ",".join(places)
    for listed in ("UV_INDEX", "UV_INSECURE_HOST"):
        if listed in told:
            told[listed] = " ".join(told[listed].split())
    return {name: value for name, value in told.items() if value} | dict(environment)


def uv_options(settings: Mapping[str, str]) -> list[str]:
    """What uv has no variable for."""
    return ["--no-index"] if settings.get("no-index", "").lower() in {"1", "true", "yes", "on"} else []


def main() -> None:
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], stdout=subprocess.PIPE, text=True, check=True
    )
    settings = pip_settings(listed.stdout)
    uv = str(Path(sys.executable).with_name("uv"))
    command = [uv, "pip", *sys.argv[1:], "--python", sys.executable, *uv_options(settings)]
    os.execve(uv, command, uv_environment(settings, os.environ))


if __name__ == "__main__":
    main()
