"""How often a log is replayed and what becomes of lines that do not parse."""

from __future__ import annotations

import gzip
import hashlib
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.producer.log_lines import KEPT_SIZE_MAX, LogLine
from headrace.producer.replay import (
    NothingToReplayError,
    Replayed,
    _progress_lines,
    page_views,
    rejected_record,
    replay,
    require_page_view,
)

GOOD = '{n} - - [17/May/2015:10:05:03 +0000] "GET /{n} HTTP/1.1" 200 1 "-" "-"\n'


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "access.log"
    path.write_text(
        GOOD.format(n=0) + "broken\n" + GOOD.format(n=1) + "broken\n" + GOOD.format(n=2) + "worse"
    )
    return path


def run(log: Path, count: int) -> tuple[list[str], Replayed, list[LogLine]]:
    replayed, rejected = Replayed(), []
    views = page_views(log, replayed, lambda line, _: rejected.append(line), count)
    return [view.path for view in views], replayed, rejected


def test_the_log_is_replayed_until_enough_lines_are_published(log: Path) -> None:
    paths, replayed, _ = run(log, 7)
    assert paths == ["/0", "/1", "/2", "/0", "/1", "/2", "/0"]
    assert replayed.published == 7


@pytest.mark.parametrize("count", [1, 3, 7, 100])
def test_every_line_that_does_not_parse_is_rejected_once_however_many_events_are_asked_for(
    log: Path, count: int
) -> None:
    paths, replayed, rejected = run(log, count)
    assert len(paths) == count
    assert [line.head for line in rejected] == [b"broken", b"broken", b"worse"]
    assert replayed.rejected == {"not in combined log format": 3}


def test_a_log_that_has_nothing_to_replay_ends_instead_of_looping(tmp_path: Path) -> None:
    path = tmp_path / "bad.log"
    path.write_text("a\nb\n")
    assert run(path, 5)[0] == []


def test_a_rejected_line_keeps_its_first_64_kib_with_size_and_digest_of_all() -> None:
    content = b"x" * 100_000
    record = rejected_record(LogLine(content, len(content), None), "why")
    assert record == {
        "reason": "why",
        "line": content[:KEPT_SIZE_MAX],
        "size": 100_000,
        "sha256": hashlib.sha256(content).hexdigest(),
    }


@pytest.mark.parametrize(
    ("content", "sentence"),
    [("", "it is empty."), ("a\n\nb\n", "none of its 3 lines is in combined log format.")],
)
def test_a_log_without_a_line_that_parses_ends_with_one_sentence(
    tmp_path: Path, content: str, sentence: str
) -> None:
    path = tmp_path / "bad.log"
    path.write_text(content)
    with pytest.raises(NothingToReplayError, match=sentence):
        require_page_view(path)
    result = CliRunner().invoke(replay, ["--log", str(path), "--check"])
    assert result.exit_code == 1
    assert result.output == f"Error: {path} has nothing to replay: {sentence}\n"


def test_check_needs_no_brokers(log: Path) -> None:
    assert CliRunner().invoke(replay, ["--log", str(log), "--check"]).exit_code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--bootstrap", "127.0.0.1:1"],
        ["--bootstrap", "h:1", "--registry", "http://h", "--set", "linger"],
        ["--events", "0"],
    ],
)
def test_wrong_use_exits_2(log: Path, arguments: list[str]) -> None:
    result = CliRunner().invoke(replay, ["--log", str(log), *arguments])
    assert result.exit_code == 2, result.output


def test_a_packed_log_is_named_as_such(tmp_path: Path) -> None:
    packed = tmp_path / "access.log.gz"
    packed.write_bytes(gzip.compress(GOOD.format(n=0).encode()))
    with pytest.raises(NothingToReplayError, match="packed with gzip, so unpack it first"):
        require_page_view(packed)


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(NothingToReplayError, match="is no regular file"):
            require_page_view(path)


def test_progress_in_lines_keeps_quiet_within_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    show = _progress_lines(300)
    for published in (100, 200, 300):
        show(published)
    assert capsys.readouterr().err.splitlines() == ["100 of 300 events published"]
