"""Events that come before their schema, are given up, and become rows once it is registered: the audit sees each once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from audit_world import DATACENTER, HEADRACE, TOPIC, AuditWorld, run_script
from commands import headrace
from iceberg_spark import spark_sql
from load_driver import load, run_here
from load_helpers import EVENT, EVENT_ID, GARBAGE, event, framed, schemas_served
from load_kit import bury, letter_at, offsets_in
from load_kit import load as load_offsets
from processes import eventually
from pyiceberg.catalog import Catalog
from registry_process import RegistryProcess
from zookeeper_process import ZooKeeperProcess

from headrace.broker.client.bootstrap import Bootstrap
from headrace.events.avro_schemas import schema_text
from headrace.events.registry_address import RegistryAddress
from headrace.load import commit, tables
from headrace.load.driver import LoadConfig, Loader
from headrace.load.leftovers import Run

EVENTS = 200
LETTERS = 1000
REWRITE = (
    "CALL headrace.system.rewrite_data_files(table => 'warehouse.{}', "
    "options => map('delete-file-threshold', '1'))"
)


@pytest.fixture
def world(tmp_path: Path, zookeeper: ZooKeeperProcess) -> Iterator[AuditWorld]:
    world = AuditWorld(tmp_path, zookeeper)
    yield world
    world.end()


@pytest.fixture
def late(world: AuditWorld, tmp_path: Path) -> Iterator[RegistryProcess]:
    """The offline datacenter's registry, to which nobody has brought a schema yet."""
    registry = RegistryProcess(tmp_path / "late.log", world.offline.bootstrap)
    yield registry
    registry.end()


def load_impatiently(world: AuditWorld, registry: RegistryProcess) -> None:
    """Load what is there; a schema that the registry does not know is given up at once."""
    config = LoadConfig(
        bootstrap=Bootstrap(world.offline.bootstrap),
        registry=RegistryAddress(registry.url),
        task_count_max=2,
        wanted=f"{DATACENTER}.{TOPIC}".__eq__,
        schema_wait_seconds=0,
    )
    loader = Loader(tables.open_catalog(str(world.warehouse)), config, run_here)
    while loader.round().moved:
        pass
    loader.close()


def register(registry: RegistryProcess) -> None:
    url = f"{registry.url}/subjects/{DATACENTER}.{TOPIC}-value/versions"
    body = json.dumps({"schema": schema_text("page_view")}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/vnd.schemaregistry.v1+json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status == 200


def rows(warehouse: Path) -> list[dict[str, Any]]:
    found = tables.load_table(tables.open_catalog(str(warehouse)), TOPIC).scan().to_arrow()
    order = [("_topic_partition", "ascending"), ("_offset", "ascending")]
    rows: list[dict[str, Any]] = found.sort_by(order).to_pylist()
    return rows


def test_events_before_their_schema_come_once_it_is_there(
    world: AuditWorld, late: RegistryProcess, tmp_path: Path
) -> None:
    world.publish(EVENTS)
    world.count("live")
    world.copy()
    world.count("offline")
    load_impatiently(world, late)
    state = ("--state", str(tmp_path / "state"))
    before = world.report(*state)
    assert (before["verdict"], before["totals"]["dead_letters"]) == ("complete", EVENTS)

    register(late)
    page = tmp_path / "page"
    page.mkdir()
    done = run_script("load_page.sh", world, page, 0, WORD="redrive", REGISTRY=late.url)
    dry, real = done.stdout.decode().split("{", 1)
    assert "would get rows" in dry
    assert json.loads("{" + real)["topics"][0]["rows"] == EVENTS

    for arguments in (state, ()):
        after = world.report(*arguments)
        assert (after["verdict"], after["findings"], after["incomplete"]) == ("complete", [], [])
        assert (after["totals"]["dead_letters"], after["totals"]["warehouse"]) == (0, EVENTS)
    assert after["complete_until"] == before["complete_until"]
    assert rows(world.warehouse) == rows(loaded_anew(world, late, tmp_path / "anew"))


@pytest.mark.acceptance
def test_a_redrive_beside_a_load_that_goes_on_loses_and_doubles_nothing(
    world: AuditWorld, late: RegistryProcess, tmp_path: Path
) -> None:
    world.publish(EVENTS)
    world.copy()
    load_impatiently(world, late)
    register(late)
    settings = ("--registry", late.url, "--warehouse", str(world.warehouse))
    source = ("--bootstrap", world.offline.bootstrap, "--topics", f"{DATACENTER}[.]{TOPIC}")
    going_on = subprocess.Popen([HEADRACE, "load", *source, *settings, "--interval", "0.05"])
    try:
        world.publish(EVENTS)
        world.copy()
        eventually(lambda: rows(world.warehouse), what="the load to go on")
        redrive = subprocess.Popen([HEADRACE, "load", "redrive", *settings])
        while redrive.poll() is None:
            world.publish(EVENTS // 10)
            world.copy()
        assert redrive.returncode == 0
    finally:
        going_on.terminate()
        assert going_on.wait(60) == 0
    world.load()
    for tier in ("live", "offline"):
        world.count(tier)
    world.copy()
    report = world.report()
    assert (report["verdict"], report["findings"], report["incomplete"]) == ("complete", [], [])
    totals = report["totals"]
    assert totals["dead_letters"] == 0
    assert totals["produced"] == totals["warehouse"] == len(rows(world.warehouse))


@pytest.fixture
def buried(tmp_path: Path) -> Catalog:
    """A table that was loaded up to an offset below which all are dead letters, in two files; every tenth is no event."""
    catalog, run = tables.open_catalog(str(tmp_path / "warehouse")), Run()
    for first in (0, LETTERS // 2):
        following = first + LETTERS // 2
        values = (
            (at, GARBAGE if at % 10 == 0 else framed(EVENT_ID, EVENT, event(at)))
            for at in range(first, following)
        )
        bury(catalog, run, following, [letter_at(at, value, "no schema") for at, value in values])
    run.close()
    return catalog


@pytest.mark.acceptance
def test_letters_from_which_spark_deleted_by_delete_files_wait_until_they_are_rewritten(
    buried: Catalog, tmp_path: Path
) -> None:
    warehouse, letters = tmp_path / "warehouse", f"headrace.warehouse.{tables.DEAD_LETTER}"
    by_files = f"ALTER TABLE {letters} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')"
    spark_sql(warehouse, [by_files, f"DELETE FROM {letters} WHERE _offset = 1"])
    before = offsets_in(buried, tables.DEAD_LETTER)
    with schemas_served({EVENT_ID: EVENT}) as registry:
        command = ["load", "redrive", "--registry", registry, "--warehouse", str(warehouse)]
        refused = headrace(*command)
        assert refused.returncode == 1
        assert "rewrite_data_files" in refused.stderr
        assert offsets_in(buried, tables.DEAD_LETTER) == before
        spark_sql(warehouse, [REWRITE.format(tables.DEAD_LETTER)])
        done = headrace(*command)
        assert done.returncode == 0, done.stderr
    junk = list(range(0, LETTERS, 10))
    assert offsets_in(buried, tables.DEAD_LETTER) == junk
    assert offsets_in(buried, "pageviews") == [at for at in range(2, LETTERS) if at not in junk]


def redriving(registry: str, warehouse: Path, *kill: str) -> subprocess.Popen[bytes]:
    driver = Path(__file__).with_name("redrive_driver.py")
    return subprocess.Popen([sys.executable, str(driver), registry, str(warehouse), *kill])


def check_each_once(catalog: Catalog, following: int = LETTERS) -> None:
    junk = list(range(0, LETTERS, 10))
    assert offsets_in(catalog, tables.DEAD_LETTER) == junk
    assert offsets_in(catalog, "pageviews") == [at for at in range(following) if at not in junk]


@pytest.mark.acceptance
def test_a_redrive_that_is_killed_at_any_commit_is_ended_by_the_next(buried: Catalog, tmp_path: Path) -> None:
    with schemas_served({EVENT_ID: EVENT}) as registry:
        for when, number in (("after", 1), ("before", 1), ("after", 1), ("before", 1), ("after", 2)):
            killed = redriving(registry, tmp_path / "warehouse", when, str(number))
            assert killed.wait(60) == -signal.SIGKILL
        assert redriving(registry, tmp_path / "warehouse").wait(60) == 0
    check_each_once(buried)


@pytest.mark.acceptance
def test_two_redrives_beside_a_load_give_each_letter_one_row(buried: Catalog, tmp_path: Path) -> None:
    run, following = Run(), LETTERS
    with schemas_served({EVENT_ID: EVENT}) as registry:
        both = [redriving(registry, tmp_path / "warehouse") for _ in range(2)]
        while any(process.poll() is None for process in both):
            with suppress(commit.RefusedError):
                load_offsets(buried, run, following, following + 1)
                following += 1
        assert [process.returncode for process in both] == [0, 0]
    run.close()
    assert following > LETTERS
    check_each_once(buried, following)


def loaded_anew(world: AuditWorld, registry: RegistryProcess, warehouse: Path) -> Path:
    """Load all from the log, with the schema there."""
    catalog = tables.open_catalog(str(warehouse))
    load(world.offline.bootstrap, registry.url, catalog, f"{DATACENTER}.{TOPIC}")
    return warehouse
