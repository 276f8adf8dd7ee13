"""What a crash may leave of a log, by seed: the same damage for the same folder of any broker.

Only such as both brokers mend alike when nothing counts as synced. What a checksum does not cover (a batch's offset, its
length, its leader epoch) and files that no crash makes are cases of `tests/unit/broker/log/test_recovery_of_odd_files.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

from headrace.broker.wire.batches import CRC_START, HEADER_SIZE, read_header

HINTS = ("index", "timeindex", "snapshot")
EPOCHS = ("", "0\n0\n", "0\n1\n0 0\n", "0\n1\n0 7\n", "0\n1\n7 20\n", "0\n1\n0 100000\n")


def damaged(seed: str, folder: Path) -> str:
    """Damage the log in `folder`; answers what was done."""
    random = Random(seed)
    damage = random.choice([*(_damage_log,) * 3, *(_damage_hint,) * 2, _damage_epochs, _leave_files])
    return damage(random, folder)


def _damage_log(random: Random, folder: Path) -> str:
    path = random.choice(sorted(folder.glob("*.log"))[-2:])
    change = random.choice([_cut, _zero, _append, _flip])
    return change(random, path) if path.stat().st_size else f"{path.name} is empty"


def _damage_hint(random: Random, folder: Path) -> str:
    kind = random.choice(HINTS)
    paths = sorted(folder.glob(f"*.{kind}"))
    if not paths:
        return f"there is no {kind}"
    path = random.choice(paths)
    if random.random() < 0.3 or not path.stat().st_size:
        path.unlink()
        return f"{path.name} removed"
    change: Callable[[Random, Path], str] = random.choice([_cut, _zero, _append])
    return change(random, path)


def _damage_epochs(random: Random, folder: Path) -> str:
    path = folder / "leader-epoch-checkpoint"
    text = random.choice([None, *EPOCHS])
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    return f"epochs {text!r}"


def _leave_files(random: Random, folder: Path) -> str:
    names = ("9.log.deleted", "9.log.cleaned", "7.index", "7.timeindex", "7.snapshot", "100000.snapshot")
    number, _, suffix = random.choice(names).partition(".")
    path = folder / f"{int(number):020d}.{suffix}"
    if random.random() < 0.3:
        path.mkdir()
    else:
        path.write_bytes(random.randbytes(random.choice([0, 10, 100])))
    return f"{path.name} left"


def _cut(random: Random, path: Path) -> str:
    size = random.randrange(path.stat().st_size)
    os.truncate(path, size)
    return f"{path.name} cut to {size}"


def _zero(random: Random, path: Path) -> str:
    data = path.read_bytes()
    start = random.randrange(len(data))
    path.write_bytes(data[:start] + bytes(len(data) - start))
    return f"{path.name} zero from {start}"


def _append(random: Random, path: Path) -> str:
    makers: list[Callable[[int], bytes]] = [bytes, random.randbytes]
    tail = random.choice(makers)(random.choice([1, 12, 17, 61, 5000]))
    path.write_bytes(path.read_bytes() + tail)
    return f"{len(tail)} bytes behind {path.name}"


def _flip(random: Random, path: Path) -> str:
    """A bit of what a batch's checksum covers, or of the checksum."""
    data = bytearray(path.read_bytes())
    positions = [0]
    while positions[-1] + HEADER_SIZE <= len(data):
        positions.append(positions[-1] + read_header(data, positions[-1]).size)
    number = random.randrange(len(positions) - 1)
    byte = random.randrange(positions[number] + CRC_START - 4, positions[number + 1])
    data[byte] ^= 1 << random.randrange(8)
    path.write_bytes(data)
    return f"a bit of {path.name} at {byte}"
