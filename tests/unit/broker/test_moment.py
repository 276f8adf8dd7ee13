"""Times as people write them."""

from __future__ import annotations

import click
import pytest

from headrace.broker.moment import Moment, now_ms


def test_a_moment_is_a_time_or_how_long_ago() -> None:
    moment = Moment()
    assert moment.convert("2023-11-14T22:13:20Z", None, None) == 1_700_000_000_000
    assert moment.convert("2023-11-14T22:13:20", None, None) == 1_700_000_000_000
    assert moment.convert("2023-11-14T23:13:20.5+01:00", None, None) == 1_700_000_000_500
    assert 0 <= now_ms() - 86_400_000 - moment.convert("1d", None, None) < 60_000
    for wrong in ("yesterday", "5", "-3h", ""):
        with pytest.raises(click.BadParameter, match="is no time: write"):
            moment.convert(wrong, None, None)
