"""Gives the program of a module that runs on this machine the bytecode that Python keeps beside its sources.

Ansible ships a module as a program that holds an archive of sources, and each run compiles them again: a third of its CPU.
Invariants: the archive's sources stay, so that another Python runs them; what has no bytecode here, or another source, is
compiled as before; a program of a form that is not known stays as it is.
"""

from __future__ import annotations

import base64
import fcntl
import io
import marshal
import re
import struct
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from importlib.machinery import SourceFileLoader
from importlib.util import MAGIC_NUMBER
from pathlib import Path

ARCHIVE = re.compile(rb"(?<=^zip_data=')[A-Za-z0-9+/=]+(?=',$)", re.MULTILINE)
# PEP 552: checked against no source, since both are in one archive.
HEADER = MAGIC_NUMBER + struct.pack("<III", 1, 0, 0)

Folders = Mapping[str, tuple[Path, ...]]
"""By the folder in the archive: those that its files may come from."""


def with_bytecode(program: bytes, folders: Folders, kept: Path) -> bytes:
    """The program with the bytecode in its archive; `kept` is a folder of what was made before."""
    found = ARCHIVE.search(program)
    if found is None:
        return program
    file = kept / f"{sha256(found.group()).hexdigest()}.zip"
    # Of the workers that begin together with a module, one makes it.
    with file.open("a+b") as archive:
        fcntl.flock(archive, fcntl.LOCK_EX)
        archive.seek(0)
        made = archive.read()
        if not made:
            made = base64.b64encode(compiled(base64.b64decode(found.group()), folders))
            archive.write(made)
    return program[: found.start()] + made + program[found.end() :]


def compiled(archive: bytes, folders: Folders) -> bytes:
    made = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(archive)) as sources,
        zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as both,
    ):
        for entry in sources.infolist():
            source = sources.read(entry)
            both.writestr(entry, source)
            code = bytecode_of(entry.filename, source, folders)
            if code is not None:
                beside = zipfile.ZipInfo(f"{entry.filename}c", entry.date_time)
                both.writestr(beside, HEADER + code, both.compression)
    return made.getvalue()


def bytecode_of(name: str, source: bytes, folders: Folders) -> bytes | None:
    """The bytecode of a file in the archive, if its source is the one that lies here."""
    for prefix, places in folders.items():
        for place in places if name.startswith(prefix) and name.endswith(".py") else ():
            file = place / name.removeprefix(prefix)
            with suppress(FileNotFoundError):
                if file.read_bytes() == source:
                    return marshal.dumps(SourceFileLoader(name, str(file)).get_code(name))
    return None
