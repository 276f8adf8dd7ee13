"""What a service ran last that passed its gate: its definition and files, kept beside them until a change of it has passed.

Invariants: the folder is there whole or not at all; it is made before anything is replaced, and of what the process itself says
that it was started from, so that nothing half-written is ever taken for good; while it is there nothing replaces it; copies
have the rights of what they are copies of, in a folder that nobody else enters, and of a secret they are the same writing.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from typing import Any

from ansible.module_utils import headrace_fingerprint as fingerprint
from ansible.module_utils.headrace_writing import FilesError, current_content, replace_file

LISTING = "kept.json"


def is_kept(folder: str) -> bool:
    return os.path.isfile(os.path.join(folder, LISTING))


def keep(folder: str, told: str, definition: str) -> str | None:
    """Keep the files that a process was started from; half a sentence about why they cannot be kept, or None.

    `told` is what the process says it was started from, `definition` the path of the file that defines the service.
    """
    if is_kept(folder):
        return None
    wanted = fingerprint.named_files(told, definition)
    if not wanted:
        return "the process does not say what it was started from"
    contents = {path: current_content(path) for path in wanted}
    for path, told_of in wanted.items():
        content = contents[path]
        if content is None or not fingerprint.is_of(path, content, told_of):
            return f"{path} is not what the process was started from"
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    making = tempfile.mkdtemp(dir=os.path.dirname(folder), prefix=".keeping-")
    try:
        entries = []
        for number, (path, content) in enumerate(contents.items()):
            copy_of(
                path, str(content), os.path.join(making, str(number)), fingerprint.is_secret(wanted[path])
            )
            entries.append({"path": path, "copy": str(number), "secret": fingerprint.is_secret(wanted[path])})
        listing = json.dumps({"files": entries, "started_from": told}, indent=1)
        replace_file(os.path.join(making, LISTING), f"{listing}\n", 0o600)
        # What an interrupted run left of a folder that had no listing yet, or none any more.
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(making, folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return None


def copy_of(path: str, content: str, target: str, is_secret: bool) -> None:
    """A file with that content and the same rights; of a secret the same writing, which its process knows it by."""
    if is_secret:
        linking = f"{target}.linking"
        if os.path.lexists(linking):
            os.unlink(linking)
        os.link(path, linking)
        os.replace(linking, target)
        # Renamed over itself, a link stays.
        if os.path.lexists(linking):
            os.unlink(linking)
        return
    found = os.stat(path)
    replace_file(target, content, found.st_mode & 0o7777, found.st_gid)


def _listing(folder: str) -> dict[str, Any]:
    content = current_content(os.path.join(folder, LISTING))
    if content is None:
        raise FilesError(f"{folder} holds nothing to go back to.")
    found: dict[str, Any] = json.loads(content)
    return found


def started_from(folder: str) -> str:
    """What the process said of itself that ran from the kept files."""
    return str(_listing(folder)["started_from"])


def differences(folder: str) -> list[dict[str, str]]:
    """The files that going back would change, as Ansible shows them; contents are not shown, since some may be secret."""
    return [
        {
            "before": "what has not passed its gate\n",
            "after": "what passed last\n",
            "before_header": each["path"],
            "after_header": each["path"],
        }
        for each in _listing(folder)["files"]
        if current_content(each["path"]) != current_content(os.path.join(folder, each["copy"]))
    ]


def restore(folder: str) -> None:
    """Put the kept files back with their rights, the definition, which is the first of them, last."""
    for each in reversed(_listing(folder)["files"]):
        copy = os.path.join(folder, each["copy"])
        content = current_content(copy)
        assert content is not None
        copy_of(copy, content, each["path"], each["secret"])


def settle(folder: str) -> None:
    """Forget what was kept, since what runs now has passed; interrupted, it is no longer taken for kept."""
    listing = os.path.join(folder, LISTING)
    if os.path.lexists(listing):
        os.unlink(listing)
    shutil.rmtree(folder, ignore_errors=True)
