"""Tables of a warehouse that several loads make at once."""

from __future__ import annotations

import pytest
from pyiceberg.catalog import Catalog
from sqlalchemy.exc import IntegrityError

from headrace.load import tables


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
