"""Writes directories and files with given contents.

Invariants: a file is replaced whole or not at all; a file whose content, mode and group are right is left alone; no file of a
set is replaced before every `validate` command of the set accepted the new content; a secret is in no output, and never in a file
that others may read. A secret is a file whose dictionary says `secret`: modules take its content as a parameter of its own, which
Ansible keeps out of outputs and of the host's journal, where it writes what each module was called with.
"""

from __future__ import annotations

import glob
import grp
import os
import pwd
import shlex
import shutil
import subprocess
import tempfile
from typing import Any

FILE_OPTIONS = {
    "path": {"type": "path", "required": True},
    "content": {"type": "str"},
    "mode": {"type": "str", "default": "0644"},
    "validate": {"type": "str"},
    # Whether the service reads it anew when it is told to, so that a change of it needs no restart.
    "reloaded": {"type": "bool", "default": False},
}
DIRECTORY_MODE = 0o755
# A folder's files with this ending are all of the roll-out's: what is no more wanted of them is removed.
SECRET_SUFFIX = ".secret"
SECRET_MODE = "0640"


class FilesError(Exception):
    """A file cannot be written; the message says which and why."""


def secret_files(contents: dict[str, str], folder: str | None, group: str | None) -> list[dict[str, Any]]:
    """The secrets of a service as files for its group alone, from their contents by their names."""
    return [
        {
            "path": os.path.join(folder or "", name),
            "content": content,
            "mode": SECRET_MODE,
            "group": group,
            "secret": True,
        }
        for name, content in sorted(contents.items())
    ]


def unwanted_secrets(contents: dict[str, str], folder: str | None) -> list[str]:
    """The secrets that are still in the folder, and that nobody wants any more."""
    if folder is None:
        return []
    found = glob.glob(os.path.join(glob.escape(folder), f"*{SECRET_SUFFIX}"))
    return sorted(path for path in found if os.path.basename(path) not in contents)


def content_of(file: dict[str, Any]) -> str:
    return str(file.get("content") or "")


def file_bytes(content: str) -> bytes:
    return content.encode("utf-8", "surrogateescape")


def current_content(path: str) -> str | None:
    """The file's text, or None when there is no such file."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FilesError(f"{path} cannot be read: {error.strerror}.") from error


def owner_ids(owner: str | None) -> tuple[int, int] | None:
    if owner is None:
        return None
    try:
        return pwd.getpwnam(owner).pw_uid, grp.getgrnam(owner).gr_gid
    except KeyError as error:
        raise FilesError(
            f"There is no user and group {owner!r} on this host: roll out the release first."
        ) from error


def validate_files(files: list[dict[str, Any]]) -> None:
    """Have every `validate` command look at its new content; one whose program is not there yet is passed over.

    Where the content names other files of the set, the command finds them as they will be, in a folder that nobody else reads.
    """
    commands = [(file, shlex.split(file.get("validate") or "")) for file in files]
    commands = [(file, words) for file, words in commands if words and shutil.which(words[0]) is not None]
    if not commands:
        return
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        staged = {
            file["path"]: os.path.join(folder, f"{index}-{os.path.basename(file['path'])}")
            for index, file in enumerate(files)
        }
        for file in files:
            with open(staged[file["path"]], "wb") as copy:
                copy.write(file_bytes(renamed(content_of(file), staged)))
        for file, words in commands:
            validate_file(file["path"], words, staged)


def validate_file(path: str, words: list[str], staged: dict[str, str]) -> None:
    command = [word.replace("%s", staged[path]) for word in words]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        said = renamed((result.stdout + result.stderr).strip(), {new: old for old, new in staged.items()})
        raise FilesError(f"{path} was not replaced, since its new content is refused: {said}")


def renamed(text: str, names: dict[str, str]) -> str:
    """The text with each of these paths under its other name."""
    for path in sorted(names, key=len, reverse=True):
        text = text.replace(path, names[path])
    return text


def group_id(file: dict[str, Any]) -> int:
    """The group that the file shall have, -1 where any will do."""
    if file.get("group") is None:
        return -1
    try:
        return grp.getgrnam(file["group"]).gr_gid
    except KeyError as error:
        raise FilesError(
            f"There is no group {file['group']!r} on this host: roll out the release first."
        ) from error


def replace_file(path: str, content: str, mode: int, group: int = -1) -> None:
    """Until it has its mode and group, nobody else reads the new file."""
    directory = os.path.dirname(path)
    os.makedirs(directory, exist_ok=True)
    descriptor, temporary_path = tempfile.mkstemp(dir=directory, prefix=".headrace-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(file_bytes(content))
        os.chown(temporary_path, -1, group)
        os.chmod(temporary_path, mode)
        os.replace(temporary_path, path)
    except BaseException:
        os.unlink(temporary_path)
        raise


def file_difference(wanted: dict[str, Any]) -> dict[str, str] | None:
    """What writing the file would change, as Ansible shows it, or None; of a secret, that it changes."""
    path, content = wanted["path"], content_of(wanted)
    before = current_content(path)
    if before == content and has_rights(wanted):
        return None
    texts = {"before": before or "", "after": content}
    if wanted.get("secret"):
        texts = {
            "before": "" if before is None else "a secret\n",
            "after": "a secret\n" if before is None else "a secret, or rights, that differ\n",
        }
    return {**texts, "before_header": path, "after_header": path}


def has_rights(wanted: dict[str, Any]) -> bool:
    """Whether the file, which is there, has the mode and the group that are wanted."""
    found = os.stat(wanted["path"])
    group = group_id(wanted)
    return found.st_mode & 0o7777 == int(wanted["mode"], 8) and group in (-1, found.st_gid)


def directory_difference(path: str) -> dict[str, str] | None:
    if os.path.isdir(path):
        return None
    return {"before": "", "after": f"directory {path}\n", "before_header": path, "after_header": path}


def differences(directories: list[str], files: list[dict[str, Any]]) -> list[dict[str, str]]:
    """What `write` would change."""
    found = [directory_difference(path) for path in directories] + [file_difference(file) for file in files]
    return [difference for difference in found if difference is not None]


def write(directories: list[str], files: list[dict[str, Any]], owner: str | None) -> None:
    """Bring all to what is wanted; nothing is touched when a new content is refused. Raises FilesError, OSError."""
    validate_files(files)
    place(directories, files, owner)


def place(directories: list[str], files: list[dict[str, Any]], owner: str | None) -> None:
    """The same with contents that were accepted before."""
    ids = owner_ids(owner)
    for path in directories:
        if directory_difference(path) is not None:
            os.makedirs(path, exist_ok=True)
            os.chmod(path, DIRECTORY_MODE)
            if ids is not None:
                os.chown(path, *ids)
    for file in files:
        if file_difference(file) is not None:
            replace_file(file["path"], content_of(file), int(file["mode"], 8), group_id(file))
