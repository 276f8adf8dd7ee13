"""What a look at a machine makes of its brokers' scrubs."""

from __future__ import annotations

from pathlib import Path

from playbooks_kit import load

from headrace.broker.log.files import OsFiles
from headrace.broker.log.scrub_outcome import ScrubOutcome, write_outcome

look = load("headrace_look")


def test_a_log_that_a_scrub_found_rotten_is_named(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for name in ("broker-1/pageviews-0", "broker-2", "zookeeper-1"):
        (data / name).mkdir(parents=True)
    outcome = ScrubOutcome(finished_s=1.0, rotten_places={"pageviews-0": 2, "gone-0": 1})
    write_outcome(OsFiles(), str(data / "broker-1"), outcome)
    write_outcome(OsFiles(), str(data / "broker-2"), ScrubOutcome(finished_s=1.0))
    (sentence,) = look.rotten_logs([str(data), str(tmp_path / "none")])
    assert sentence.startswith(f"{data}/broker-1/pageviews-0 on ")
    assert "has rotten bytes: make that replica anew" in sentence


def test_an_outcome_that_cannot_be_understood_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "broker-1").mkdir()
    for text in ("", "[]", '{"rotten_places": 1}'):
        (tmp_path / "broker-1" / "scrub-outcome").write_text(text)
        assert look.rotten_logs([str(tmp_path)]) == []
