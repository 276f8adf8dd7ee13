"""Tables of a warehouse: several loads make them at once, and others set properties of theirs."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from sqlalchemy.exc import IntegrityError

from headrace.load import tables

PAGE = Path(__file__).resolve().parents[4] / "docs" / "tables.md"


def test_a_namespace_that_another_load_makes_in_the_same_moment_is_taken(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both find none, as pyiceberg looks before it writes."""
    catalog.create_namespace(tables.NAMESPACE)
    looks = iter([False])
    monkeypatch.setattr(catalog, "namespace_exists", lambda _: next(looks, True))
    assert tables.ensure_table(catalog, "pageviews").name() == (tables.NAMESPACE, "pageviews")


def test_a_namespace_that_cannot_be_made_is_an_error(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise IntegrityError("INSERT", {}, Exception("refused"))

    monkeypatch.setattr(catalog, "create_namespace", refuse)
    with pytest.raises(IntegrityError):
        tables.ensure_table(catalog, "pageviews")


def test_a_table_keeps_all_properties_but_those_that_the_page_calls_the_loads_own(catalog: Catalog) -> None:
    table = tables.ensure_table(catalog, "pageviews")
    theirs = {"write.target-file-size-bytes": "1000000", "owner": "analysts"}
    other = {"true": "false", "zstd": "snappy"}
    ours = {key: other.get(value, "7") for key, value in tables.TABLE_PROPERTIES.items()}
    table.transaction().set_properties({**ours, **theirs}).commit_transaction()
    properties = tables.ensure_table(catalog, "pageviews").properties
    assert {key: properties[key] for key in theirs} == theirs
    assert {key: properties[key] for key in tables.TABLE_PROPERTIES} == tables.TABLE_PROPERTIES
    page = PAGE.read_text(encoding="utf-8")
    assert [key for key in tables.TABLE_PROPERTIES if f"`{key}`" not in page] == []
