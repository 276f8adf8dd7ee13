"""What a service's process was started from, and what it should have been.

The first program of a service (the role's `run.sh`) puts a text into the process's environment: the definition's digest, the
digest of each file, and the folder of the release behind its symlinks. The process itself therefore tells what it runs,
however often it ended and came back since a file changed. Of a secret it tells which writing of the file it read, never a digest:
whoever sees one can try what the secret may be.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

from ansible.module_utils.headrace_health import wait_until
from ansible.module_utils.headrace_writing import content_of, current_content, file_bytes

DEFINITION_VARIABLE = "HEADRACE_DEFINITION"
VARIABLE = "HEADRACE_STARTED_FROM"
# In a definition's content, where its own digest goes.
DIGEST_PLACE = "@digest@"
# How long the first program may take to become the service.
BECOMING_S = 10


class UnreadableError(Exception):
    """The process's environment is another user's; the message is a sentence."""


def digest(content: str) -> str:
    return hashlib.sha256(file_bytes(content)).hexdigest()


def with_digest(definition: dict[str, Any]) -> dict[str, Any]:
    """The definition with its own digest in it, which then tells which definition a process was started from."""
    content = definition["content"]
    return {**definition, "content": content.replace(DIGEST_PLACE, digest(content))}


def wanted(
    definition: dict[str, Any], files: list[dict[str, Any]], secrets: list[dict[str, Any]], release: str
) -> str:
    """The text that `run.sh` makes of this definition (without its digest), these files and secrets, and this release.

    Of a file that is reloaded the process itself tells (see headrace_reloads), by the digest that the file carries.
    """
    lines = [f"{digest(definition['content'])}  definition"]
    lines += [f"{digest(content_of(file))}  {file['path']}" for file in files if not file.get("reloaded")]
    lines += [f"{writing(file)}  {file['path']}" for file in secrets]
    lines += [f"{digest(content_of(file))}  {file['path']}" for file in files if file.get("reloaded")]
    return "\n".join([*lines, os.path.realpath(release)])


def writing(secret: dict[str, Any]) -> str:
    """Which writing of its file the secret is: a file is replaced whole, so that each has its own inode and time."""
    if current_content(secret["path"]) != content_of(secret):
        return "not written yet"
    return writing_of(secret["path"])


def writing_of(path: str) -> str:
    found = os.stat(path)
    return f"{found.st_ino} {found.st_mtime_ns // 10**9}.{found.st_mtime_ns % 10**9:09d}"


def is_secret(told: str) -> bool:
    """Whether what a process tells of a file is which writing it is."""
    return " " in told


def is_of(path: str, content: str, told: str) -> bool:
    """Whether a file is what a process says that it was started from; a definition carries its own digest."""
    if is_secret(told):
        return writing_of(path) == told
    return digest(content.replace(told, DIGEST_PLACE)) == told


def named_files(text: str, definition: str) -> dict[str, str]:
    """What a process tells of each file that it was started from, by the file's path, the definition first."""
    lines = [line.rpartition("  ") for line in text.splitlines()[:-1]]
    return {definition if name == "definition" else name: told for told, _, name in lines}


def with_loaded(text: str, told: str, path: str) -> str:
    """What the process carries, and what it has loaded since from the file of that path."""
    *lines, release = text.splitlines() or [""]
    return "\n".join([*lines, f"{told}  {path}", release])


def without(text: str, path: str) -> list[str]:
    """The lines of a text but that of the file of that path."""
    return [line for line in text.splitlines() if line.rpartition("  ")[2] != path]


def running(pid: int) -> str:
    """The text that the process carries; empty when it was started without one or is gone."""
    variables: dict[str, str] = {}

    def still_first_program() -> str | None:
        variables.update(environment(pid))
        return "run.sh still runs" if DEFINITION_VARIABLE in variables and VARIABLE not in variables else None

    wait_until(still_first_program, BECOMING_S)
    return variables.get(VARIABLE, "")


def environment(pid: int) -> dict[str, str]:
    try:
        with open(f"/proc/{pid}/environ", encoding="utf-8", errors="surrogateescape") as file:
            entries = file.read().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return {}
    except PermissionError as error:
        raise UnreadableError(
            f"What process {pid} was started from cannot be read: roll out as its user or as root."
        ) from error
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)
