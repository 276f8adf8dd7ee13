"""What goes into a support bundle, from what each host handed over: files by their names, and what is missing."""

from __future__ import annotations

import base64
import io
import json
import os
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

HOST_BYTES_MAX = 64 << 20
"""No host hands over more than a third of it; what says otherwise is no payload."""
NOTHING_MISSING = "Nothing is missing.\n"


class PayloadError(Exception):
    """A host handed over something else than a collection; the message is half a sentence."""


def unpacked(payload: str) -> tuple[dict[str, str], list[str]]:
    """The files and what is missing, from the text of the module headrace_support."""
    try:
        inflater = zlib.decompressobj()
        told = inflater.decompress(base64.b64decode(payload), HOST_BYTES_MAX)
        if inflater.unconsumed_tail:
            raise PayloadError(f"it handed over more than {HOST_BYTES_MAX >> 20} MB")
        found = json.loads(told)
    except (ValueError, zlib.error) as error:
        raise PayloadError(f"what it handed over cannot be read: {error}") from error
    return dict(found["files"]), list(found["missing"])


def members(
    collected: Mapping[str, Mapping[str, Any]], answers: Iterable[Mapping[str, Any]], texts: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """The bundle's files by their names, and a sentence for each thing that it has not."""
    files, missing = dict(texts), []
    for host, result in collected.items():
        try:
            own, lacking = unpacked(result["payload"])
        except KeyError:
            missing.append(str(result.get("unanswered") or f"Host {host} was not asked."))
            continue
        except PayloadError as error:
            missing.append(f"Host {host}: {error}.")
            continue
        files |= {f"hosts/{host}/{safe(name)}": text for name, text in own.items()}
        missing += [f"Host {host}: {each}." for each in lacking]
    for each in answers:
        files[f"answers/{safe(each['name'].replace(' ', '-'))}"] = f"exit {each['code']}\n{each['said']}\n"
    files["MISSING"] = "".join(f"{each}\n" for each in missing) or NOTHING_MISSING
    return files, missing


def safe(name: str) -> str:
    """The name below the host's folder, wherever a host would like it to be."""
    return str(PurePosixPath(*[part for part in PurePosixPath(name).parts if part not in ("/", "..")]))


def write(directory: Path, name: str, files: Mapping[str, str], now_s: float) -> Path:
    """Write NAME.tar.gz, which only its owner may read; it is there whole or not at all."""
    directory.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=directory, prefix=".making-")
    final = directory / f"{name}.tar.gz"
    try:
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as tar:
            for path, text in sorted(files.items()):
                content = text.encode(errors="replace")
                member = tarfile.TarInfo(f"{name}/{path}")
                member.size, member.mode, member.mtime = len(content), 0o600, int(now_s)
                tar.addfile(member, io.BytesIO(content))
        os.replace(temporary, final)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return final
