"""What a command or a service is told of a cluster."""

from __future__ import annotations

import pytest

from headrace.broker.client.bootstrap import Bootstrap, parse_bootstrap


def test_a_bootstrap_is_a_list_of_addresses() -> None:
    assert parse_bootstrap("a:1, [::1]:9092") == (("a", 1), ("::1", 9092))
    for bad in ("", "a", "a:b", ":9092"):
        with pytest.raises(ValueError, match="is no HOST:PORT"):
            parse_bootstrap(bad)


def test_what_is_shown_of_a_bootstrap_is_where_it_is() -> None:
    bootstrap = Bootstrap("a:1,b:2")
    assert str(bootstrap) == "a:1,b:2"
    assert bootstrap.addresses == (("a", 1), ("b", 2))
    with pytest.raises(ValueError, match="is no HOST:PORT"):
        Bootstrap("a").check()
