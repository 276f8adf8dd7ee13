"""Where a load goes on in a table that others maintain, too."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from load_kit import TOPIC, load, offsets_in
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headrace.broker.wire.partitions import TopicPartition
from headrace.load import history, tables
from headrace.load.leftovers import Run
from headrace.load.storage import local_path
from headrace.load.tables import WarehouseError

PLACE = TopicPartition(TOPIC, 0)


def deleted_and_expired(catalog: Catalog, name: str, offsets: Iterable[int]) -> Table:
    """Delete rows in a snapshot each, and expire all but the last, as a job of the night does after it compacted."""
    table = tables.load_table(catalog, name)
    for offset in offsets:
        table.delete(f"_offset = {offset}")
    current = table.metadata.current_snapshot_id
    expiring = table.maintenance.expire_snapshots()
    expiring.by_ids([item.snapshot_id for item in table.snapshots() if item.snapshot_id != current]).commit()
    return table.refresh()


def test_a_load_goes_on_where_it_stood_though_others_expired_its_snapshots(
    catalog: Catalog, run: Run
) -> None:
    load(catalog, run, 0, 6, dead=(2, 3))
    table = deleted_and_expired(catalog, "pageviews", (0, 1))
    letters = deleted_and_expired(catalog, tables.DEAD_LETTER, (2,))
    assert len(table.snapshots()) == len(letters.snapshots()) == 1
    assert history.positions(table) == {PLACE: 6}
    load(catalog, run, 6, 8, dead=(7,))
    assert offsets_in(catalog, "pageviews") == [4, 5, 6]
    assert offsets_in(catalog, tables.DEAD_LETTER) == [3, 7]


def test_what_was_rolled_back_stays_so(catalog: Catalog, run: Run) -> None:
    load(catalog, run, 0, 3)
    first = tables.load_table(catalog, "pageviews").metadata.current_snapshot_id
    assert first is not None
    load(catalog, run, 3, 6)
    table = tables.load_table(catalog, "pageviews")
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    assert history.positions(deleted_and_expired(catalog, "pageviews", (0, 1))) == {PLACE: 3}


def test_a_table_that_no_metadata_tells_positions_of_is_not_begun_anew(catalog: Catalog, run: Run) -> None:
    load(catalog, run, 0, 3)
    table = deleted_and_expired(catalog, "pageviews", (0, 1))
    for entry in table.metadata.metadata_log:
        path = local_path(entry.metadata_file)
        assert path is not None
        path.unlink(missing_ok=True)
    with pytest.raises(WarehouseError, match="roll it back"):
        history.positions(table)
