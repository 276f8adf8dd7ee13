"""The client suites in docs/compatibility.md: cases counted from the tests, librdkafka's own suite from docs/client-suites.json.

The JSON holds what one run of that suite came to, a row a test number: `headrace` and `kafka` are passed, failed, skipped
or no broker, and `note` tells why they differ or why both did not pass; `replicated` is a later run on replicated topics, and
`transactions` one of the numbers that want them. The
suite is run by hand; nothing of it is here.
`others` are clients of other families, run by hand, too.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "client-suites.json"
TESTS = "tests/conformance"
LIBRARIES, KCAT, JAVA = (
    f"{TESTS}/test_conformance_{name}.py" for name in ("clients", "kcat", "java_clients")
)
LIBRARY_NAMES = ("librdkafka", "kafka-python", "aiokafka")
CLIENTS = {
    "librdkafka": "librdkafka (confluent-kafka)",
    "kafka-python": "kafka-python",
    "aiokafka": "aiokafka",
    KCAT: "kcat",
    JAVA: "Apache Kafka's command line tools (the Java client)",
}
"""Where a case belongs, by its first parameter or its file, and what the page calls it."""


def collected() -> list[str]:
    """The node ids of all cases, as pytest collects them."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-m",
        "",
        "-q",
        "-p",
        "no:cacheprovider",
        "-W",
        "ignore",
    ]
    run = subprocess.run(
        [*command, LIBRARIES, KCAT, JAVA], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    return [line for line in run.stdout.splitlines() if "::" in line]


def cases(node_ids: Iterable[str]) -> dict[str, Counter[str]]:
    """How many cases of each test, as a sentence, each client runs."""
    found: dict[str, Counter[str]] = {client: Counter() for client in CLIENTS}
    for node_id in node_ids:
        path, _, case = node_id.partition("::")
        name, _, parameters = case.removesuffix("]").partition("[")
        sentence = re.sub("^test_(java_|kcat_)?", "", name).replace("_", " ")
        # A case of no client in particular is one of all libraries.
        named = [client for client in CLIENTS if client == path or parameters.startswith(client)]
        for client in named or LIBRARY_NAMES:
            found[client][sentence] += 1
    return found


def client_table(node_ids: Iterable[str]) -> str:
    rows = ["| client | cases | what |", "|---|---|---|"]
    for client, counts in cases(node_ids).items():
        told = "; ".join(f"{name} (×{n})" if n > 1 else name for name, n in counts.items())
        rows.append(f"| {CLIENTS[client]} | {counts.total()} | {told} |")
    return "\n".join(rows)


def suite_summary(results: dict[str, Any]) -> str:
    counts = Counter((test["headrace"], test["kafka"]) for test in results["tests"])
    rows = ["| headrace | Apache Kafka | test numbers |", "|---|---|---|"]
    rows += [f"| {ours} | {theirs} | {count} |" for (ours, theirs), count in counts.most_common()]
    return "\n".join(rows)


def suite_table(results: dict[str, Any]) -> str:
    rows = ["| test | exercises | headrace | Apache Kafka | note |", "|---|---|---|---|---|"]
    rows += [
        f"| {t['test']} | {t['exercises']} | {t['headrace']} | {t['kafka']} | {t['note']} |"
        for t in results["tests"]
        if t["headrace"] != "no broker"
    ]
    return "\n".join(rows)


def others_table(results: dict[str, Any]) -> str:
    rows = ["| client | language | lines compared | its own tests | differences |", "|---|---|---|---|---|"]
    rows += [
        f"| {o['client']} | {o['language']} | {o['compared'] or ''} | {o['suite']} | {o['note']} |"
        for o in results["others"]
    ]
    return "\n".join(rows)


def section() -> str:
    """The part of the page between its markers."""
    results = json.loads(RESULTS.read_text())
    local = ", ".join(t["test"] for t in results["tests"] if t["headrace"] == "no broker")
    replicated, transactions = results["replicated"], results["transactions"]
    return f"""
Each of these cases runs the same script against headrace and Apache Kafka at once, and what comes of it must be the same
(`{TESTS}`):

{client_table(collected())}

librdkafka {results["librdkafka"]}'s own test suite, one process a test number and never in its quick mode, was run on
{results["date"]} against headrace and against Apache Kafka {results["kafka"]}, {results["servers"]}:

{suite_summary(results)}

{suite_table(results)}

Those that want transactions ({", ".join(transactions["passed"])}) passed on {transactions["date"]},
{transactions["servers"]}: the table has that run of them.

On {replicated["date"]} it was run against headrace once more, {replicated["servers"]}:
{len(replicated["passed"])} test numbers passed ({", ".join(replicated["passed"])}). {replicated["note"]}

Without a broker (they run on the client's own mock cluster, or on the client alone): {local}.

Clients of other families ran programs of ours (codecs, keys, null values, sizes up to and above the limit, acks 0, 1 and all,
offsets by time, groups that members join and leave, administration, errors) on the same day against both, one broker
each; what they told was compared line by line. Their own tests ran against both, too, where the table counts them
(what they say was not served then is served since then):

{others_table(results)}

"""
