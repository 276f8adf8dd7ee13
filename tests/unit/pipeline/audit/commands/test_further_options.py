"""What names further warehouses on a command line, and the sentences for what does not."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from headrace.audit.commands.further_options import parse
from headrace.audit.further import FURTHER_MAX


def test_options_of_one_name_belong_together(tmp_path: Path) -> None:
    for name, text in (("a", "type=glue\n"), ("b", "token=t\n")):
        (tmp_path / name).write_text(text)
    archive, near = parse(
        ("archive=s3://lake/a=b", "near=/srv/near"),
        (f"archive={tmp_path / 'a'}", f"archive={tmp_path / 'b'}"),
        ("near=dc-east.pageviews", "near=dc-west[.].{1,3}"),
    )
    assert (archive.name, archive.location) == ("archive", "s3://lake/a=b")
    assert archive.properties == {"type": "glue", "token": "t"}
    assert (archive.topics, near.properties) == (None, {})
    assert near.scope == "dc-east.pageviews,dc-west[.].{1,3}"


@pytest.mark.parametrize(
    ("locations", "catalogs", "topics", "sentence"),
    [
        (("archive",), (), (), "'archive' is no NAME=LOCATION."),
        (("=x",), (), (), "'=x' is no NAME=LOCATION."),
        (("Lake=x",), (), (), "'Lake' is no name for a warehouse: take up to 31 lower-case letters"),
        (("a=x", "a=y"), (), (), "a is there twice: each has a name of its own."),
        (
            tuple(f"w{at}=x" for at in range(FURTHER_MAX + 1)),
            (),
            (),
            "more than 8 are too many for one audit.",
        ),
        (("a=x",), ("b=/f",), (), "there is no --further-warehouse b=…."),
        (("a=x",), ("a=/nowhere",), (), "/nowhere cannot be read: No such file or directory."),
        (("a=x",), (), ("b=c",), "there is no --further-warehouse b=…."),
        (("a=x",), (), ("a=(",), "'(' is neither a topic's name nor a regular expression"),
    ],
)
def test_what_names_none_is_refused(
    locations: tuple[str, ...], catalogs: tuple[str, ...], topics: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(click.BadParameter) as raised:
        parse(locations, catalogs, topics)
    assert sentence in raised.value.message
    assert raised.value.param_hint is not None
