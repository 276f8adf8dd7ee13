"""Every alert fires under what it is about, resolves after it, and leads to a runbook."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

import metrics_kit
import pytest
import yaml
from prometheus_tools import ALERTS, CHECKOUT, OBSERVABILITY, alert_queries, alerts, tool

Value = Callable[[int], float]
"""What a metric says at a minute."""
BEGIN, END, MINUTES = 70, 100, 260
"""The minutes that the fault is there from and until, and how many are looked at."""


def is_bad(minute: int) -> bool:
    return BEGIN <= minute < END


def turns(good: float, bad: float) -> Value:
    """A gauge that is another one during the fault."""
    return lambda minute: bad if is_bad(minute) else good


def grows(minute: int) -> float:
    """A counter that grows during the fault alone."""
    return min(max(minute - BEGIN + 1, 0), END - BEGIN)


def falls_behind(minute: int) -> float:
    """A time in seconds that stands still during the fault."""
    return 60 * (BEGIN if is_bad(minute) else minute) + 1


def waits(minute: int) -> float:
    """For how many seconds something has not happened."""
    return 60 * (minute - BEGIN) if is_bad(minute) else 0


MIRRORED = 'source="dc-east",topic="pageviews",partition="0"'
PARTITION = 'host="b-1",topic="pageviews",partition="0"'
TOPIC = 'datacenter="dc-east",topic="pageviews"'
# By alert: the metrics that make it, by their series.
FAULTS: dict[str, dict[str, Value]] = {
    "HeadraceServiceDown": {'up{job="broker",host="b-1"}': turns(1, 0)},
    "HeadraceServiceNotReady": {'headrace_load_ready{host="l-1"}': turns(1, 0)},
    "HeadraceFileDescriptorsShort": {
        'process_open_fds{job="broker"}': turns(50, 95),
        'process_max_fds{job="broker"}': turns(100, 100),
    },
    "HeadracePartitionsOffline": {'headrace_offline_partitions{host="b-1"}': turns(0, 3)},
    "HeadracePartitionsUnderMinIsr": {'headrace_under_min_isr_partitions{host="b-1"}': turns(0, 3)},
    "HeadracePartitionsUnderReplicated": {'headrace_under_replicated_partitions{host="b-1"}': turns(0, 3)},
    "HeadraceTransactionHangs": {
        f"headrace_high_watermark{{{PARTITION}}}": turns(5, 9),
        f"headrace_last_stable_offset{{{PARTITION}}}": turns(5, 5),
    },
    "HeadraceCommittedDataLost": {"headrace_unclean_leader_elections_total": grows},
    "HeadraceReplicaRotten": {f"headrace_log_rotten_places{{{PARTITION}}}": turns(0, 1)},
    "HeadraceScrubOverdue": {
        'headrace_scrub_seconds_since_last_run{directory="/d"}': turns(8 * 86400, 22 * 86400)
    },
    "HeadraceControllerMissing": {
        'headrace_active_controller{host="b-1"}': turns(1, 0),
        'headrace_active_controller{host="b-2"}': turns(0, 0),
    },
    "HeadraceZooKeeperAway": {"headrace_zookeeper_away_seconds": waits},
    "HeadraceLogDirectoryFails": {'headrace_log_directory_refuses_writes{directory="/d"}': turns(0, 1)},
    "HeadraceLogDirectoryFillsUp": {
        'headrace_log_directory_free_bytes{directory="/d"}': turns(50, 5),
        'headrace_log_directory_capacity_bytes{directory="/d"}': turns(100, 100),
    },
    "HeadraceCertificateExpires": {
        'headrace_certificate_expires_seconds{listener="SSL"}': turns(100 * 86400, 13 * 86400)
    },
    "HeadraceSourceSilent": {'headrace_mirror_source_silent_seconds{source="dc-east"}': waits},
    "HeadraceMirrorLags": {f"headrace_mirror_lag_seconds{{{MIRRORED}}}": waits},
    "HeadraceMirrorStopped": {f'headrace_mirror_state{{{MIRRORED},state="stopped"}}': turns(0, 1)},
    "HeadraceMirrorRotten": {f"headrace_mirror_rotten{{{MIRRORED}}}": turns(0, 1)},
    "HeadraceMirrorDiffers": {f"headrace_mirror_different{{{MIRRORED}}}": turns(0, 1)},
    "HeadraceTopicsNotBrought": {'headrace_mirror_topics_not_brought{source="dc-east"}': turns(0, 1)},
    "HeadraceLoadBehind": {"headrace_load_seconds_since_caught_up": waits},
    "HeadraceLoadStandsStill": {"headrace_load_findings": turns(0, 1)},
    "HeadraceDeadLetters": {"headrace_load_dead_letters_total": grows},
    "HeadraceEventsLost": {f"headrace_audit_open_lost{{{TOPIC}}}": grows},
    "HeadraceEventsDuplicated": {f"headrace_audit_open_duplicated{{{TOPIC}}}": grows},
    "HeadraceWatermarkBehind": {
        "headrace_audit_complete_until_seconds": falls_behind,
        f"headrace_audit_open_windows{{{TOPIC}}}": turns(1, 9),
    },
    "HeadraceClocksDisagree": {"headrace_audit_skewed_events_total": grows},
    "HeadraceCounterBehind": {'headrace_counter_lag_offsets{topic="pageviews"}': turns(0, 7)},
    "HeadraceCounterStandsStill": {"headrace_counter_standstills": turns(0, 1)},
    "HeadraceAuditorBehind": {'headrace_audit_lag_offsets{topic="headrace.counts"}': turns(0, 7)},
    "HeadraceAuditStateFillsUp": {
        "headrace_audit_state_free_bytes": turns(50, 5),
        "headrace_audit_state_capacity_bytes": turns(100, 100),
    },
}
# What looks like a fault and is none: nothing is due while nobody publishes, and a lag that nobody knows is told by other alerts.
IDLE: dict[str, dict[str, Value]] = {
    "HeadraceWatermarkBehind": {
        "headrace_audit_complete_until_seconds": falls_behind,
        f"headrace_audit_open_windows{{{TOPIC}}}": turns(0, 0),
    },
    "HeadraceMirrorLags": {f"headrace_mirror_lag_seconds{{{MIRRORED}}}": turns(0, float("nan"))},
    "HeadraceEventsLost": {f"headrace_audit_open_lost{{{TOPIC}}}": turns(0, 0)},
    "HeadraceTransactionHangs": {
        f"headrace_high_watermark{{{PARTITION}}}": lambda minute: 10 * minute + 9,
        f"headrace_last_stable_offset{{{PARTITION}}}": lambda minute: 10 * minute,
    },
}


def told_by(series: dict[str, dict[str, Value]]) -> dict[str, Value]:
    """All series of these alerts, which share no metric."""
    return {name: value for each in series.values() for name, value in each.items()}


def story(series: dict[str, Value], firing: dict[int, Iterable[str]]) -> dict[str, object]:
    """A test of promtool's: at each of the minutes, which alerts fire."""
    return {
        "interval": "1m",
        "input_series": [
            {"series": name, "values": " ".join(f"{value(minute):g}" for minute in range(MINUTES))}
            for name, value in series.items()
        ],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(names)],
            }
            for minute, names in sorted(firing.items())
        ],
    }


def run(story: dict[str, object], folder: Path) -> None:
    file = folder / "story.yml"
    file.write_text(
        yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [story]})
    )
    done = subprocess.run(
        [tool("promtool"), "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]


def test_every_alert_fires_under_its_fault_and_resolves(tmp_path: Path) -> None:
    assert set(FAULTS) == {rule["alert"] for rule in alerts()}
    # It fires before the fault is over, and the last of what it looks back at is an hour.
    run(story(told_by(FAULTS), {BEGIN - 1: (), END - 1: FAULTS, END + 120: ()}), tmp_path)


def test_an_alert_is_told_apart_from_what_looks_like_it(tmp_path: Path) -> None:
    run(story(told_by(IDLE), {BEGIN: (), END - 1: (), END + 30: ()}), tmp_path)


def test_a_further_warehouse_that_falls_behind_is_told_while_the_first_one_does_not(tmp_path: Path) -> None:
    series: dict[str, Value] = {
        "headrace_audit_complete_until_seconds": lambda minute: 60.0 * minute,
        'headrace_audit_further_complete_until_seconds{warehouse="archive"}': falls_behind,
        f"headrace_audit_open_windows{{{TOPIC}}}": turns(1, 9),
    }
    run(story(series, {BEGIN - 1: (), END - 1: ["HeadraceWatermarkBehind"]}), tmp_path)


def test_a_replica_that_a_scrub_found_rotten_is_told(tmp_path: Path) -> None:
    """Once, where a start had found it, too."""
    series: dict[str, Value] = {
        f"headrace_log_rotten_places{{{PARTITION}}}": turns(0, 1),
        f"headrace_scrub_rotten_places{{{PARTITION}}}": lambda minute: minute >= BEGIN and minute < END + 30,
    }
    fires = ["HeadraceReplicaRotten"]
    run(story(series, {BEGIN - 1: (), END - 1: fires, END + 20: fires, END + 35: ()}), tmp_path)


def test_a_full_disk_that_takes_a_small_write_now_and_then_is_told(tmp_path: Path) -> None:
    series: dict[str, Value] = {
        'headrace_log_directory_refuses_writes{directory="/d"}': lambda minute: is_bad(minute) and minute % 2,
        'headrace_refused_writes_total{directory="/d"}': grows,
    }
    run(story(series, {BEGIN - 1: (), END - 1: ["HeadraceLogDirectoryFails"], END + 5: ()}), tmp_path)


def test_a_test_of_rules_can_fail(tmp_path: Path) -> None:
    healthy = {"headrace_load_findings": turns(0, 0)}
    with pytest.raises(AssertionError, match="HeadraceLoadStandsStill"):
        run(story(healthy, {END - 1: ["HeadraceLoadStandsStill"]}), tmp_path)


def test_the_rules_and_the_configuration_are_accepted(tmp_path: Path) -> None:
    for name in ("alerts.yml", "prometheus.yml"):
        (tmp_path / name).write_text((OBSERVABILITY / name).read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "targets.json").write_text("[]")
    subprocess.run(
        [tool("promtool"), "check", "config", str(tmp_path / "prometheus.yml")],
        check=True,
        capture_output=True,
    )


def test_every_alert_says_how_bad_it_is_and_what_to_do() -> None:
    page = (CHECKOUT / "docs" / "alerts.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (Headrace\w+)\n((?:(?!^## ).*\n?)*)", page, re.MULTILINE))
    assert list(sections) == [rule["alert"] for rule in alerts()]
    for rule in alerts():
        assert re.fullmatch(r"\d+m", rule["for"])
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert set(rule["annotations"]) == {"summary", "description", "runbook"}
        assert rule["annotations"]["runbook"] == f"docs/alerts.md#{rule['alert'].lower()}"
        steps = [sections[rule["alert"]].find(f"*{step}:*") for step in ("See", "Decide", "Act")]
        assert steps[0] >= 0, rule["alert"]
        assert all(before < after for before, after in pairwise(steps)), rule["alert"]


def test_alerts_ask_for_metrics_that_services_serve(tmp_path: Path) -> None:
    served = metrics_kit.of_all(tmp_path)
    for query in alert_queries():
        assert query.metrics, query
        own = {name for name in query.metrics if name.startswith("headrace_")}
        assert own <= served, (query.asker, own - served)
