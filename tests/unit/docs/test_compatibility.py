"""docs/compatibility.md says what the handlers and the client suites say."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import client_suites

from headrace.broker.handlers.table import HANDLERS
from headrace.broker.wire.api import APIS

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "compatibility_page.py"))


def test_the_page_is_made_from_the_handlers_of_today() -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text()
    assert SCRIPT["render"](page) == page, "run python scripts/compatibility_page.py"


def test_a_key_is_served_or_has_a_reason() -> None:
    assert SCRIPT["NOT_SERVED"].keys() == APIS.keys() - HANDLERS.keys()


def test_no_version_is_served_that_apache_kafka_does_not_have() -> None:
    for handler in HANDLERS.values():
        first, last = APIS[handler.key].versions
        assert first <= handler.version_min <= handler.version_max <= last


def test_a_handlers_deviations_end_with_their_paragraph() -> None:
    text = "Fetch.\n\nAll of it. Deviations: one\nthing and\nanother.\n\nMore.\n"
    assert SCRIPT["deviations"](text) == "One thing and another."
    assert SCRIPT["deviations"]("Heartbeat. No deviations.") == ""


def test_a_suites_test_that_did_not_pass_on_both_says_why() -> None:
    results = json.loads(client_suites.RESULTS.read_text())
    assert {t["headrace"] for t in results["tests"]} <= {"passed", "failed", "skipped", "no broker"}
    unexplained = [
        t["test"]
        for t in results["tests"]
        if {t["headrace"], t["kafka"]} not in ({"passed"}, {"no broker"}) and not t["note"]
    ]
    assert unexplained == []


def test_cases_are_counted_by_client() -> None:
    kcat, java = client_suites.KCAT, client_suites.JAVA
    library = client_suites.LIBRARIES
    found = client_suites.cases(
        [
            f"{library}::test_it_works[kafka-python-none]",
            f"{library}::test_it_works[kafka-python-gzip]",
            f"{library}::test_it_ends[librdkafka]",
            f"{library}::test_all_meet",
            f"{kcat}::test_kcat_lists",
            f"{java}::test_java_topics_are_made",
        ]
    )
    assert found == {
        "librdkafka": {"it ends": 1, "all meet": 1},
        "kafka-python": {"it works": 2, "all meet": 1},
        "aiokafka": {"all meet": 1},
        kcat: {"lists": 1},
        java: {"topics are made": 1},
    }
