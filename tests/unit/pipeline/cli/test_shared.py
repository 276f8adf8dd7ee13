"""Tables show names as they are, whatever brackets clients put into them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rich.text import Text

from headrace.audit.commands.groups import _print as print_groups
from headrace.cli import groups
from headrace.cli.shared import print_rows
from headrace.mirror.commands import rehearse
from headrace.mirror.verbs import rehearsal

ODD = "[/b][red]<i>"
LOST = {"group": ODD, "topic": "t", "read": 1, "unread": 2, "lost": 3, "whole_up_to_ms": 1000}


def _of_the_mirror() -> None:
    counts = dict.fromkeys(rehearsal.COUNTS, 0)
    names = dict.fromkeys(rehearse.HEADINGS, "")
    rehearse._print([{**names, "group": ODD, "reason": "", **counts}], "dc-east")


@pytest.mark.parametrize(
    "shows",
    [
        lambda: print_rows([{"user": ODD, "": Text("x", "red")}]),
        lambda: groups._print_table(("group",), [(ODD,)], "none"),
        lambda: print_groups([{**LOST, "partitions_without_offset": 0}]),
        _of_the_mirror,
    ],
)
def test_a_name_is_no_markup(shows: Callable[[], None], capsys: pytest.CaptureFixture[str]) -> None:
    shows()
    assert ODD in capsys.readouterr().out
