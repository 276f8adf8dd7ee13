"""What all tests share: only one of them at a time has a whole pipeline on the machine, and what may run beside what."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterator

import class_archives
import hypothesis
import pytest
from demo_process import BusyError, alone_on_this_machine

# Tests start processes by the hundred, and none shall compile again what another has compiled, or read Ansible's modules from
# its standard input byte by byte.
sys.dont_write_bytecode = False
for costly in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"):
    os.environ.pop(costly, None)
# Nor shall each Spark and each ZooKeeper read and check its classes by the hundred again, or compile what runs for seconds well.
SPARK_JVM = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    *class_archives.options(class_archives.spark_archive()),
)
os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(SPARK_JVM))
os.environ.setdefault("SERVER_JVMFLAGS", " ".join(class_archives.options(class_archives.zookeeper_archive())))
# A machine may be busy, and no test is timed: neither a property's examples nor their making have a deadline.
hypothesis.settings.register_profile(
    "headrace", deadline=None, database=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("headrace")

FREE_FOLDERS = {"sim"}
"""Their tests share nothing, so that any worker may take any one of them; those of a unit test's module share what it imports."""

LONGEST_FIRST = (
    "alone",
    "test_e2e_audit_faults",
    "test_e2e_mirror_copies",
    "pair",
    "test_e2e_mirror_aggregate",
    "test_e2e_load_spark",
    "test_e2e_docs",
    "test_e2e_load_exactly_once",
    "test_e2e_load_elsewhere",
    "test_e2e_load_iceberg",
    "test_conformance_mixed_cluster",
    "test_deploy_release",
    "test_deploy_terraform_security",
    "test_conformance_engine_swap",
    "test_conformance_mixed_reassignments",
    "test_e2e_cluster_faults",
    "test_e2e_broker_lifecycle",
    "test_e2e_producer_events",
    "test_e2e_load_positions",
    "test_conformance_data_directories",
    "test_conformance_errors",
    "test_e2e_load_schemas",
    "test_e2e_replication_faults",
    "test_deploy_preflight",
)
"""Groups that begin before the others, so that none of them is what all workers wait for at the end."""

FIRST_ALONE = "test_deploy_rollout"
"""Of the whole pipelines, what is run even where there is time for one of them only."""

OPEN_FILES_MAX = 300
LEFT_OUT = "left out, since --minutes were over"
START = time.monotonic()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--minutes", type=float, help="leave out what would begin later than this after the start"
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays until the end: the garbage collector looks at none of it, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    minutes = item.config.getoption("--minutes")
    if minutes is not None and time.monotonic() - START > minutes * 60:
        pytest.skip(LEFT_OUT)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Let no later test find descriptors beyond select()'s 1,024: hundreds of logs stay open until the collector comes."""
    if len(os.listdir("/proc/self/fd")) > OPEN_FILES_MAX:
        gc.collect()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which modules had no time for how many of their tests."""
    skipped = [
        report for report in terminalreporter.getreports("skipped") if LEFT_OUT in str(report.longrepr)
    ]
    for module, count in sorted(Counter(report.nodeid.partition("::")[0] for report in skipped).items()):
        terminalreporter.write_line(f"{module}: {count} {LEFT_OUT}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests that share what they started to one worker: a module, those of one pair of brokers, all whole pipelines.

    Groups come one after the other, the longest first, and then what any worker may fill its time with.
    """
    groups = {item: group_of(item) for item in items}
    for item, group in groups.items():
        if group:
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: (place_of(groups[item]), item.path.stem != FIRST_ALONE))


def place_of(group: str | None) -> int:
    if group is None:
        return len(LONGEST_FIRST) + 1
    return LONGEST_FIRST.index(group) if group in LONGEST_FIRST else len(LONGEST_FIRST)


def group_of(item: pytest.Item) -> str | None:
    folder = item.path.relative_to(item.config.rootpath / "tests").parts[0]
    if folder in FREE_FOLDERS:
        return None
    if "alone" in getattr(item, "fixturenames", ()):
        return "alone"
    return "pair" if "pair" in getattr(item, "fixturenames", ()) else item.path.stem


@pytest.fixture(scope="module")
def alone() -> Iterator[None]:
    """The right to roll out, until the module's end; without it the test fails with a sentence."""
    try:
        with alone_on_this_machine():
            yield
    except BusyError as error:
        pytest.fail(str(error), pytrace=False)
