"""`headrace check-logs`: what it prints and ends with, for whole data directories and for partitions."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from log_kit import batch, fill, open_log, open_store

from headrace.broker.check_logs import Pace, PiecewiseFile, check_logs
from headrace.broker.config.topics import LogConfig
from headrace.broker.log.files import OsFiles
from headrace.broker.log.scrub_outcome import ScrubOutcome, read_outcome

SIZE = len(batch())
SMALL = LogConfig(segment_bytes=4 * SIZE)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(check_logs, [str(argument) for argument in arguments])


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A data directory with ten batches of one log, in three segments."""
    store, _ = open_store(tmp_path, config=SMALL)
    log, _ = open_log(tmp_path, SMALL)
    fill(log, 10)
    log.close()
    store.close()
    return tmp_path


def flip(logs: Path, base_offset: int, position: int) -> Path:
    path = logs / "events-0" / f"{base_offset:020d}.log"
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    return path


def kept(logs: Path) -> ScrubOutcome:
    return read_outcome(OsFiles(), str(logs))


def test_sound_logs_end_with_zero(logs: Path) -> None:
    done = run(logs)
    assert (done.exit_code, done.stdout) == (0, "0.0 MiB read, 3 segments of 1 logs: 0 damaged.\n")


def test_a_damaged_batch_is_a_line_and_exit_code_one(logs: Path) -> None:
    path = flip(logs, 4, SIZE + 65)
    before = path.read_bytes()
    done = run(logs)
    told, summary = done.stdout.splitlines()
    assert done.exit_code == 1
    assert told.startswith(
        f"{path}: {SIZE} bytes at byte {SIZE}, from offset 5 on: the checksum of the batch at offset 5 is wrong. If"
    )
    assert summary.endswith("3 segments of 1 logs: 1 damaged.")
    assert path.read_bytes() == before


def test_one_partition_alone_can_be_checked(logs: Path) -> None:
    flip(logs, 0, 65)
    open_log(logs / "other")
    assert run(logs / "events-0").exit_code == 1
    assert run(logs / "other" / "events-0").exit_code == 0


def test_a_data_directory_may_be_named_as_a_partition_is(logs: Path) -> None:
    """As those of the roll-out are, by their broker."""
    flip(logs, 4, SIZE + 65)
    named = logs.rename(logs.parent / "headrace-broker-1")
    done = run("--record", named)
    assert done.exit_code == 1
    assert "3 segments of 1 logs: 1 damaged" in done.stdout
    assert kept(named).rotten_places == {"events-0": 1}


@pytest.mark.parametrize("place", ["nowhere", "."])
def test_a_directory_without_logs_is_refused(tmp_path: Path, place: str) -> None:
    done = run(tmp_path / place)
    assert done.exit_code == 2
    assert "nowhere" in done.stderr or "give a directory of log.dirs" in done.stderr


def test_what_is_damaged_once_is_not_told(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that cut and rewrote the end of its log between two reads."""
    path = flip(logs, 4, SIZE + 65)
    sound, opened = os.open, []

    def mended(name: Path, *arguments: int) -> int:
        opened.append(name)
        if opened.count(path) == 2:
            flip(logs, 4, SIZE + 65)
        return sound(name, *arguments)

    monkeypatch.setattr(os, "open", mended)
    assert run(logs).exit_code == 0


def test_segments_that_were_put_together_meanwhile_are_not_told(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a cleaning between the look at the folder and the first read."""
    folder = logs / "events-0"
    sound = os.open

    def cleaned(name: Path, *arguments: int) -> int:
        for base_offset in (4, 8):
            (folder / f"{base_offset:020d}.log").unlink(missing_ok=True)
        (folder / f"{0:020d}.log").write_bytes(bytes(batch(at=0)) + bytes(batch(at=9)))
        return sound(name, *arguments)

    monkeypatch.setattr(os, "open", cleaned)
    assert run(logs).exit_code == 0


def test_a_folder_that_cannot_be_read_is_not_passed_over(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    iterdir = Path.iterdir

    def refused(path: Path) -> Iterator[Path]:
        if path.name == "events-0":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return iterdir(path)

    monkeypatch.setattr(Path, "iterdir", refused)
    done = run(logs)
    assert (done.exit_code, "Let the broker's user read" in done.stderr) == (1, True)


def test_reading_keeps_to_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    now = [0]

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += int(seconds * 1000)

    monkeypatch.setattr("time.sleep", sleep)
    monkeypatch.setattr("headrace.broker.clock.SystemClock.monotonic_ms", lambda _: now[0])
    pace = Pace(1000, size_total=30_000)
    for _ in range(30):
        pace.read(1000)
    assert sum(slept) == 30


def test_long_work_tells_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0]
    monkeypatch.setattr("headrace.broker.clock.SystemClock.monotonic_ms", lambda _: now[0])
    pace = Pace(2**40, size_total=8 * 2**30)
    for now[0] in range(0, 21_000, 1000):
        pace.read(2**27)
    assert capsys.readouterr().err.splitlines() == ["1.4 of 8.0 GiB read", "2.6 of 8.0 GiB read"]


def test_a_file_that_becomes_shorter_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    file = PiecewiseFile(os.open(path, os.O_RDONLY), Pace(2**40, size_total=100))
    assert file.read_at(10, 90) == b"x" * 10
    with pytest.raises(OSError, match="shorter"):
        file.read_at(20, 90)


def test_an_outcome_is_kept_where_that_is_asked_for(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1000.0)
    flip(logs, 4, SIZE + 65)
    flip(logs, 4, 3 * SIZE + 65)
    before = sorted(logs.iterdir())
    assert run(logs).exit_code == 1
    assert sorted(logs.iterdir()) == before
    assert run("--record", logs).exit_code == 1
    assert kept(logs) == ScrubOutcome(finished_s=1000.0, rotten_places={"events-0": 2})


def test_a_clean_look_clears_what_was_kept(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of one log tells nothing of the others, nor that all of the directory was looked through."""
    monkeypatch.setattr("time.time", lambda: 1000.0)
    open_log(logs / "other")
    (logs / "other" / "events-0").rename(logs / "other-0")
    flip(logs, 4, SIZE + 65)
    run("--record", logs)
    flip(logs, 4, SIZE + 65)
    assert run("--record", logs / "other-0").exit_code == 0
    assert kept(logs).rotten_places == {"events-0": 1}
    monkeypatch.setattr("time.time", lambda: 2000.0)
    assert run("--record", logs / "events-0").exit_code == 0
    assert kept(logs) == ScrubOutcome(finished_s=1000.0)
    run("--record", logs)
    assert kept(logs) == ScrubOutcome(finished_s=2000.0)


def test_what_is_found_is_kept_before_the_end(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a look that is interrupted, or that comes to a log that it cannot read."""
    folder = logs / "events-1"
    folder.mkdir()
    (folder / f"{0:020d}.log").write_bytes(b"")
    flip(logs, 4, SIZE + 65)
    sound = os.open

    def interrupted(name: Path, *arguments: int) -> int:
        if Path(name).parent == folder:
            raise KeyboardInterrupt
        return sound(name, *arguments)

    monkeypatch.setattr(os, "open", interrupted)
    assert run("--record", logs).exit_code != 0
    monkeypatch.undo()
    assert kept(logs) == ScrubOutcome(rotten_places={"events-0": 1})


def test_an_outcome_that_cannot_be_understood_is_replaced(logs: Path) -> None:
    (logs / "scrub-outcome").write_text("no outcome")
    assert run("--record", logs).exit_code == 0
    assert kept(logs).finished_s is not None


def test_an_outcome_that_cannot_be_kept_is_told(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: OsFiles, path: str, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr(OsFiles, "replace_file", refused)
    done = run("--record", logs)
    assert (done.exit_code, "Make room on its disk" in done.stderr) == (1, True)
