"""Dead letters that become rows on a real catalog: which do, once each, whatever dies or commits in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from click.testing import CliRunner
from load_helpers import EVENT, EVENT_ID, event, framed, schemas_served
from load_kit import TOPIC, bury, letter_at, load, own, written
from pyiceberg.catalog import Catalog
from pyiceberg.transforms import IdentityTransform

from headrace.audit.ledger.facts import Facts
from headrace.audit.ledger.ledger import Ledger
from headrace.audit.warehouse import Warehouse
from headrace.audit.windows import Stream, depth
from headrace.broker.wire.batches import HEADER_SIZE
from headrace.load import commit, expiry, leftovers, missing_rows, redrive, tables
from headrace.load import redrive_command as command
from headrace.load.avro_types import EventSchema, event_schema, writer_schema
from headrace.load.headers import BAD_HEADERS
from headrace.load.leftovers import Run
from headrace.load.missing_rows import Source
from headrace.load.ranges import Passing
from headrace.load.redrive import NotRedrivenError, Outcome, Outcomes, Wanted
from headrace.load.registry import RegistryUnreachableError, SchemaRegistry, UnknownSchemaError
from headrace.load.task import RangeResult, TaskResult

SOURCE = Source("dc-east", "pageviews")
UNKNOWN = "the registry has no schema 2"
WIDER = {**EVENT, "fields": [*EVENT["fields"], {"name": "zone", "type": "string", "default": "eu"}]}
ENVELOPE = [
    {"name": "time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    *({"name": name, "type": "string"} for name in ("server", "service", "producer")),
    {"name": "sequence", "type": "long"},
]
AUDITED = {
    "type": "record",
    "name": "Audited",
    "fields": [{"name": "header", "type": {"type": "record", "name": "Header", "fields": ENVELOPE}}],
}
ALL = Wanted()
TRACE = [{"key": "trace", "value": b"1"}]


class Registry:
    """A registry of fixed schemas; `is_away` lets it answer no more."""

    def __init__(self, *, newest: int | None = None, **schemas: Any) -> None:
        self.schemas = {int(name[1:]): schema for name, schema in schemas.items()}
        self.newest = newest
        self.is_away = False

    def schema(self, _: str, schema_id: int) -> EventSchema:
        if self.is_away:
            raise RegistryUnreachableError("no registry answers")
        if schema_id not in self.schemas:
            raise UnknownSchemaError(f"the registry has no schema {schema_id}")
        return event_schema(schema_id, self.schemas[schema_id])

    def latest(self, topic: str) -> EventSchema | None:
        return None if self.newest is None else self.schema(topic, self.newest)


def letter(offset: int, value: bytes | None, *, reason: str = UNKNOWN, **fields: Any) -> dict[str, Any]:
    return letter_at(offset, value, reason, **fields)


def view(offset: int, schema_id: int = 2, schema: dict[str, Any] = EVENT) -> bytes:
    return framed(schema_id, schema, {**event(offset), "zone": "us"})


def redriven(catalog: Catalog, registry: Registry, wanted: Wanted = ALL, *, is_dry: bool = False) -> Outcomes:
    return redrive.redrive(catalog, cast(SchemaRegistry, registry), wanted, is_dry=is_dry)


def rows(catalog: Catalog, name: str = "pageviews") -> list[dict[str, Any]]:
    found = tables.load_table(catalog, name).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["_offset"])


def offsets(catalog: Catalog) -> tuple[list[int], list[int]]:
    """Return the offsets that are rows, and those that are letters."""
    found = [[row["_offset"] for row in rows(catalog, name)] for name in ("pageviews", tables.DEAD_LETTER)]
    return found[0], found[1]


def outcome(*, had_rows: int = 0, stay: dict[str, int] | None = None, **new: int) -> Outcomes:
    counts = Counter({UNKNOWN: new["rows"]}) if new.get("rows") else Counter[str]()
    return {SOURCE: Outcome(rows=counts, had_rows=had_rows, stay=Counter(stay or {}))}


def test_letters_become_rows_with_all_that_a_record_has(catalog: Catalog, run: Run) -> None:
    bury(catalog, run, 2, [letter(0, view(0), key=b"\xffk", headers=TRACE), letter(1, view(1), _timestamp=7)])
    assert redriven(catalog, Registry(s2=EVENT)) == outcome(rows=2)
    first, second = rows(catalog)
    assert first.items() >= {**own(0), "_key": b"\xffk", "path": "/"}.items() - {("_timestamp", 0)}
    assert (first["_headers"], second["_headers"], second["_key"]) == (TRACE, None, None)
    assert [row["header"]["sequence"] for row in (first, second)] == [0, 1]
    assert second["_timestamp"].microsecond == 7
    assert offsets(catalog) == ([0, 1], [])


def test_what_does_not_decode_stays_with_the_reason_of_today(catalog: Catalog, run: Run) -> None:
    bury(catalog, run, 4, [letter(0, view(0)), letter(1, view(1, 3)), letter(2, b"junk"), letter(3, None)])
    found = redriven(catalog, Registry(s2=EVENT))[SOURCE]
    assert (found.rows.total(), found.stay.total(), offsets(catalog)) == (1, 3, ([0], [1, 2, 3]))
    reasons = [row["_reason"] for row in rows(catalog, tables.DEAD_LETTER)]
    assert reasons[0] == "the registry has no schema 3"
    assert ["fewer than the 5" in reasons[1], "tombstone" in reasons[2]] == [True, True]
    before = tables.load_table(catalog, tables.DEAD_LETTER).current_snapshot()
    assert redriven(catalog, Registry(s2=EVENT))[SOURCE].stay == found.stay
    assert tables.load_table(catalog, tables.DEAD_LETTER).current_snapshot() == before


def test_a_table_grows_for_letters_as_for_records(catalog: Catalog, run: Run) -> None:
    bury(catalog, run, 3, [letter(0, view(0, 1)), letter(1, view(1, 2, WIDER)), letter(2, view(2, 1))])
    redriven(catalog, Registry(s1=EVENT, s2=WIDER, newest=2))
    assert [row["zone"] for row in rows(catalog)] == ["eu", "us", "eu"]


@pytest.mark.parametrize(
    ("former", "kind", "what", "kept"),
    [
        (["string", "long"], "string", "a", {"string": "a", "long": None}),
        ("string", ["string", "long"], "a", "a"),
        ("string", ["string", "long"], 5, None),
    ],
)
def test_letters_of_a_field_of_several_types_become_rows(
    catalog: Catalog, run: Run, former: Any, kind: Any, what: Any, kept: Any
) -> None:
    before, after = (
        {**EVENT, "fields": [*EVENT["fields"], {"name": "what", "type": each}]} for each in (former, kind)
    )
    tables.evolve(tables.ensure_table(catalog, "pageviews"), writer_schema(1, before))
    bury(catalog, run, 1, [letter(0, framed(2, after, {**event(0), "what": what}))])
    for is_dry in (True, False):
        found = redriven(catalog, Registry(s2=after), is_dry=is_dry)[SOURCE]
        assert (found.rows.total(), found.stay.total()) == ((0, 1) if kept is None else (1, 0))
    assert [row["what"] for row in rows(catalog)] == ([] if kept is None else [kept])


def test_a_schema_that_no_column_can_hold_is_a_reason(catalog: Catalog, run: Run) -> None:
    bury(catalog, run, 1, [letter(0, view(0, 1))])
    redriven(catalog, Registry(s1=EVENT))
    changed = {**EVENT, "fields": [EVENT["fields"][0], {"name": "path", "type": "long"}]}
    bury(catalog, run, 2, [letter(1, framed(2, changed, {**event(1), "path": 5}))])
    for is_dry in (True, False):
        (reason,) = redriven(catalog, Registry(s2=changed), is_dry=is_dry)[SOURCE].stay
        assert reason.startswith("schema 2: field path is int64, but the table's column is string: rename")


def test_letters_of_a_union_of_records_become_rows(catalog: Catalog, run: Run) -> None:
    click = {"type": "record", "name": "Click", "fields": [{"name": "at", "type": "int"}]}
    union: Any = [EVENT, click, "string"]
    values: list[Any] = [event(0), ("Click", {"at": 5}), "a"]
    bury(catalog, run, 3, [letter(at, framed(2, union, value)) for at, value in enumerate(values)])
    for is_dry in (True, False):
        found = redriven(catalog, Registry(s2=union), is_dry=is_dry)[SOURCE]
        assert (found.rows.total(), found.stay.total()) == (2, 1)
    assert [(row["path"], row["at"]) for row in rows(catalog)] == [("/", None), (None, 5)]


def test_what_is_not_whole_in_its_letter_stays(catalog: Catalog, run: Run) -> None:
    batch = bytearray(view(0) * 5)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[16] = 2
    assert len(batch) > HEADER_SIZE
    kept = [
        letter(0, view(0), reason="several", _last_offset=1),
        letter(2, view(2), reason=BAD_HEADERS),
        letter(3, bytes(batch), reason="one record in a batch"),
    ]
    bury(catalog, run, 4, kept)
    assert redriven(catalog, Registry(s2=EVENT)) == outcome(
        stay={"several": 1, BAD_HEADERS: 1, "one record in a batch": 1}
    )
    assert offsets(catalog) == ([], [0, 2, 3])


def test_a_dry_run_says_the_same_and_changes_nothing(catalog: Catalog, run: Run) -> None:
    bury(catalog, run, 2, [letter(0, view(0, 2, WIDER)), letter(1, view(1, 3))])
    names = ("pageviews", tables.DEAD_LETTER)
    before = [tables.load_table(catalog, name).metadata_location for name in names]
    found = redriven(catalog, Registry(s2=WIDER), is_dry=True)
    assert [tables.load_table(catalog, name).metadata_location for name in names] == before
    assert found == redriven(catalog, Registry(s2=WIDER))
    assert found[SOURCE].rows == {UNKNOWN: 1}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("commits", "name"), [(0, "pageviews"), (1, "pageviews"), (2, tables.DEAD_LETTER)])
def test_a_redrive_that_died_at_a_commit_is_ended_by_the_next(
    catalog: Catalog, run: Run, monkeypatch: pytest.MonkeyPatch, when: str, commits: int, name: str
) -> None:
    bury(catalog, run, 3, [letter(0, view(0)), letter(1, b"junk"), letter(2, view(2))])
    real, done = type(catalog).commit_table, list[str]()

    def commit_table(self: Any, table: Any, *arguments: Any) -> Any:
        done.append(table.name()[-1])
        if len(done) == commits + 1 and when == "before":
            raise SystemExit
        answer = real(self, table, *arguments)
        if len(done) == commits + 1:
            raise SystemExit
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(type(catalog), "commit_table", commit_table)
        with pytest.raises(SystemExit):
            redriven(catalog, Registry(s2=EVENT))
    assert (len(done), done[-1]) == (commits + 1, name)
    redriven(catalog, Registry(s2=EVENT))
    assert offsets(catalog) == ([0, 2], [1])


def test_a_letter_whose_row_is_there_is_only_taken_out(
    catalog: Catalog, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    bury(catalog, run, 3, [letter(0, view(0)), letter(1, b"junk"), letter(2, view(2))])

    def die(*_: object) -> bool:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(redrive._Redrive, "_replace", die)
        with pytest.raises(SystemExit):
            redriven(catalog, Registry(s2=EVENT))
    assert offsets(catalog) == ([0, 2], [0, 1, 2])
    assert redriven(catalog, Registry())[SOURCE].had_rows == 2
    assert offsets(catalog) == ([0, 2], [1])


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object], *, on: str) -> None:
    """Do something once, right before the redrive's first commit to a table."""
    real, done = commit.append, list[bool]()

    def append(table: Any, *arguments: Any, **named: Any) -> Any:
        if table.name()[-1] == on and not done:
            done.append(True)
            act()
        return real(table, *arguments, **named)

    monkeypatch.setattr(commit, "append", append)


@pytest.mark.parametrize("on", ["pageviews", tables.DEAD_LETTER])
def test_a_load_that_commits_in_between_is_looked_behind(
    catalog: Catalog, run: Run, monkeypatch: pytest.MonkeyPatch, on: str
) -> None:
    bury(catalog, run, 2, [letter(0, view(0)), letter(1, view(1))])
    meanwhile(monkeypatch, lambda: load(catalog, run, 2, 5, dead=(3,)), on=on)
    assert redriven(catalog, Registry(s2=EVENT)) == outcome(rows=2)
    assert offsets(catalog) == ([0, 1, 2, 4], [3])
    load(catalog, run, 5, 7, dead=(5,))
    assert offsets(catalog) == ([0, 1, 2, 4, 6], [3, 5])


def rolled_back(catalog: Catalog) -> None:
    table = tables.load_table(catalog, "pageviews")
    first = table.snapshots()[0].snapshot_id
    table.manage_snapshots().rollback_to_snapshot(first).commit()


@pytest.mark.parametrize(
    ("act", "looks", "left"),
    [
        (lambda catalog, run: load(catalog, run, 3, 5), 1, []),
        (lambda catalog, _: redriven(catalog, Registry(s2=EVENT)), 2, []),
        (lambda catalog, _: rolled_back(catalog), 2, [1, 2]),
    ],
)
def test_what_others_commit_is_looked_at_unless_a_load_brought_it(
    catalog: Catalog, run: Run, monkeypatch: pytest.MonkeyPatch, act: Any, looks: int, left: list[int]
) -> None:
    load(catalog, run, 0, 1)
    bury(catalog, run, 3, [letter(1, view(1)), letter(2, view(2))])
    real, looked = missing_rows.look_at, list[None]()

    def look(*arguments: Any) -> Any:
        looked.append(None)
        return real(*arguments)

    def others() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(redrive, "look_at", real)
            act(catalog, run)

    monkeypatch.setattr(redrive, "look_at", look)
    meanwhile(monkeypatch, others, on="pageviews")
    redriven(catalog, Registry(s2=EVENT))
    assert (len(looked), offsets(catalog)[1]) == (looks, left)


@pytest.mark.parametrize("on", ["pageviews", tables.DEAD_LETTER])
def test_two_redrives_at_a_time_give_one_row_each(
    catalog: Catalog, run: Run, monkeypatch: pytest.MonkeyPatch, on: str
) -> None:
    bury(catalog, run, 3, [letter(0, view(0)), letter(1, view(1, 3)), letter(2, view(2))])
    meanwhile(monkeypatch, lambda: redriven(catalog, Registry(s2=EVENT)), on=on)
    redriven(catalog, Registry(s2=EVENT, s3=EVENT))
    assert offsets(catalog) == ([0, 1, 2], [])


def test_letters_that_somebody_deletes_meanwhile_do_not_come_back(
    catalog: Catalog, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    bury(catalog, run, 3, [letter(0, view(0)), letter(1, b"junk"), letter(2, b"other junk")])
    letters = tables.load_table(catalog, tables.DEAD_LETTER)
    meanwhile(monkeypatch, lambda: letters.delete("_offset = 1"), on=tables.DEAD_LETTER)
    redriven(catalog, Registry(s2=EVENT))
    assert offsets(catalog) == ([0], [2])


def test_a_letter_that_is_there_twice_gets_one_row(
    catalog: Catalog, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redrive, "LETTERS_PER_SLICE_MAX", 2)
    bury(catalog, run, 3, [letter(at, view(at)) for at in (0, 0, 1, 0, 2)])
    assert redriven(catalog, Registry(s2=EVENT)) == outcome(rows=3, had_rows=2)
    assert offsets(catalog) == ([0, 1, 2], [])


def test_what_the_load_is_going_to_read_again_is_left_to_it(catalog: Catalog, run: Run) -> None:
    bury(catalog, run, 2, [letter(0, view(0)), letter(1, view(1))])
    catalog.drop_table("warehouse.pageviews")
    load(catalog, run, 0, 1)
    assert redriven(catalog, Registry(s2=EVENT)) == outcome(had_rows=1, stay={missing_rows.NOT_REACHED: 1})
    assert offsets(catalog) == ([0], [1])


def test_one_offset_of_two_lives_is_two_rows(catalog: Catalog, run: Run) -> None:
    bury(catalog, run, 1, [letter(0, view(0))])
    for name in ("pageviews", tables.DEAD_LETTER):
        tables.ensure_life(tables.load_table(catalog, name))
    passing = Passing(
        kind="recreation", topic=TOPIC, partition=0, first_offset=1, next_offset=0, life=1, reason="anew"
    )
    commit.let_go_on(tables.load_table(catalog, "pageviews"), passing, "one", None)
    letters = tables.load_table(catalog, tables.DEAD_LETTER)
    ahead = [letter(0, view(5), _life=1), letter(1, view(6), _life=1)]
    commit.append(letters, [commit.data_file(cast(Any, written(letters, run, ahead)))], {})
    result = RangeResult(
        topic=TOPIC,
        partition=0,
        first_offset=0,
        next_offset=1,
        row_count=0,
        dead_letter_count=0,
        size_bytes=1,
        life=1,
    )
    table = tables.load_table(catalog, "pageviews")
    commit.commit(table, [TaskResult(ranges=(result,), rows=None, dead_letters=None, worker_pid=1)])
    redriven(catalog, Registry(s2=EVENT))
    found = {(row["_offset"], row["_life"], row["header"]["sequence"]) for row in rows(catalog)}
    assert found == {(0, None, 0), (0, 1, 5)}
    assert offsets(catalog)[1] == [1]


@pytest.mark.parametrize(
    ("wanted", "changed"),
    [
        (Wanted(datacenter="dc-west"), [1]),
        (Wanted(topics=frozenset({"dc-west.pageviews"})), [1]),
        (Wanted(topics=frozenset({"pageviews"})), [0, 1]),
        (Wanted(datacenter="dc-north"), []),
    ],
)
def test_only_what_is_wanted_is_touched(
    catalog: Catalog, run: Run, wanted: Wanted, changed: list[int]
) -> None:
    bury(catalog, run, 2, [letter(0, view(0)), letter(1, view(1), _datacenter="dc-west")])
    table = tables.load_table(catalog, "pageviews")
    result = RangeResult(
        topic="dc-west.pageviews",
        partition=0,
        first_offset=0,
        next_offset=2,
        row_count=0,
        dead_letter_count=0,
        size_bytes=1,
    )
    commit.commit(table, [TaskResult(ranges=(result,), rows=None, dead_letters=None, worker_pid=1)])
    redriven(catalog, Registry(s2=EVENT), wanted)
    assert offsets(catalog)[0] == changed


def test_a_topic_that_nobody_knows_is_refused(catalog: Catalog, run: Run) -> None:
    bury(catalog, run, 1, [letter(0, view(0))])
    with pytest.raises(NotRedrivenError, match=r"nothing was changed: .* of topic clicks"):
        redriven(catalog, Registry(s2=EVENT), Wanted(topics=frozenset({"clicks", "pageviews"})))
    assert offsets(catalog) == ([], [0])


def test_letters_whose_table_is_gone_are_refused(catalog: Catalog, run: Run) -> None:
    bury(catalog, run, 1, [letter(0, view(0))])
    catalog.drop_table("warehouse.pageviews")
    with pytest.raises(tables.WarehouseError, match=r"there is no table warehouse\.pageviews"):
        redriven(catalog, Registry(s2=EVENT))


def test_a_registry_that_is_away_changes_nothing(catalog: Catalog, run: Run) -> None:
    bury(catalog, run, 1, [letter(0, view(0))])
    registry = Registry(s2=EVENT)
    registry.is_away = True
    with pytest.raises(NotRedrivenError, match="nothing was changed: no registry answers"):
        redriven(catalog, registry)
    assert offsets(catalog) == ([], [0])


def test_expiry_and_leftovers_take_nothing_that_a_redrive_needs(
    catalog: Catalog, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(catalog, run, 0, 3)
    bury(catalog, run, 5, [letter(3, view(3)), letter(4, b"junk")])
    redriven(catalog, Registry(s2=EVENT))
    monkeypatch.setattr(expiry, "NEWEST_KEPT", 2)
    for first in range(5, 10):
        load(catalog, run, first, first + 1)
    for moved in (0, 10 * expiry.DAY_MS):
        monkeypatch.setattr(
            "headrace.load.expiry.time.time", lambda moved=moved: 1_900_000_000 + moved / 1000
        )
        expiry.Expiry(catalog, run, 0).tidy("pageviews")
    for name in ("pageviews", tables.DEAD_LETTER):
        leftovers.remove_dead_data(tables.load_table(catalog, name))
    assert offsets(catalog) == ([*range(4), *range(5, 10)], [4])


def copies(ledger: Ledger) -> tuple[int, int, int]:
    """Return how many copies of events the warehouse has, how many events are dead letters, and rows that wait for times."""
    found = sum(
        item.count
        for counter, parcel in ledger.copies.open_parcels()
        if counter.tier == "warehouse"
        for item in parcel.copies.values()
    )
    waiting = sum(len(item.offset) for item in ledger.latencies.waiting)
    return found, sum(ledger.dead_letters.values()), waiting


def bury_audited(catalog: Catalog, run: Run) -> None:
    """Bury three events, of which one has a schema that never comes."""
    header = {"server": "s", "service": "v", **event(0)["header"]}
    events = [
        framed(known, AUDITED, {"header": {**header, "sequence": at}}) for at, known in enumerate((2, 3, 2))
    ]
    bury(catalog, run, 3, [letter(at, value) for at, value in enumerate(events)])


def test_the_audit_counts_each_once_before_between_and_after(
    catalog: Catalog, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    bury_audited(catalog, run)
    ledger, found = Ledger(), list[tuple[int, int, int]]()

    def look() -> None:
        for each in (ledger, Ledger()):
            Warehouse(catalog).read_into(each)
            found.append(copies(each))

    look()
    meanwhile(monkeypatch, look, on=tables.DEAD_LETTER)
    redriven(catalog, Registry(s2=AUDITED))
    look()
    assert found == [(3, 3, 0)] * 4 + [(3, 1, 0)] * 2


@pytest.mark.parametrize(("is_before", "letters"), [(True, 1), (False, 3)])
def test_the_audit_misses_nothing_that_is_redriven_while_it_reads(
    catalog: Catalog, run: Run, monkeypatch: pytest.MonkeyPatch, is_before: bool, letters: int
) -> None:
    bury_audited(catalog, run)
    real, ledger = Warehouse._dead_letter_files, Ledger()

    def files(*arguments: Any) -> Any:
        if is_before:
            redriven(catalog, Registry(s2=AUDITED))
        found = real(*arguments)
        redriven(catalog, Registry(s2=AUDITED))
        return found

    monkeypatch.setattr(Warehouse, "_dead_letter_files", files)
    Warehouse(catalog).read_into(ledger)
    assert copies(ledger) == (3, letters, 0)


def test_a_window_that_is_settled_stays_as_it_is(
    catalog: Catalog, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    bury_audited(catalog, run)
    ledger, found = Ledger(), list[tuple[int, int, int]]()

    def look() -> None:
        Warehouse(catalog).read_into(ledger)
        found.append(copies(ledger))

    look()
    ledger.facts.gone[Stream("dc-east", "pageviews", "p")] = depth(np.array([[0, 2]]))
    ledger.copies.backlog.clear()
    monkeypatch.setattr(Facts, "until_ms", lambda *_: 2_000_000_000_000)
    meanwhile(monkeypatch, look, on=tables.DEAD_LETTER)
    redriven(catalog, Registry(s2=AUDITED))
    look()
    assert found == [(3, 3, 0), (0, 3, 0), (0, 1, 0)]


def test_letters_and_rows_whose_tables_others_partitioned_are_redriven(catalog: Catalog, run: Run) -> None:
    bury(catalog, run, 2, [letter(0, view(0)), letter(1, b"junk")])
    for name in ("pageviews", tables.DEAD_LETTER):
        with tables.load_table(catalog, name).update_spec() as update:
            update.add_field("_topic_partition", IdentityTransform(), "part")
    letters = tables.load_table(catalog, tables.DEAD_LETTER)
    letters.overwrite(letters.scan().to_arrow())
    redriven(catalog, Registry(s2=EVENT))
    assert offsets(catalog) == ([0], [1])
    load(catalog, run, 2, 4, dead=(3,))
    assert offsets(catalog) == ([0, 2], [1, 3])


def test_the_command_says_what_became_of_each(catalog: Catalog, run: Run, tmp_path: Path) -> None:
    bury(catalog, run, 3, [letter(0, view(0, EVENT_ID)), letter(1, b"junk"), letter(0, view(0, EVENT_ID))])
    with schemas_served({EVENT_ID: EVENT}) as url:
        where = ["--registry", url, "--warehouse", str(tmp_path / "a warehouse, né Ünit")]
        told = CliRunner().invoke(command.redrive, ["pageviews", *where])
        assert (told.exit_code, "dc-east.pageviews: 1 had their rows already" in told.output) == (0, True)
        refused = CliRunner().invoke(command.redrive, ["clicks", *where])
    assert (refused.exit_code, len(refused.output.splitlines())) == (1, 1)
    assert "neither a table nor dead letters of topic clicks" in refused.output
