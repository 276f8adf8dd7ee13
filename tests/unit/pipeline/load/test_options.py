"""Where a catalog's properties come from."""

from __future__ import annotations

from pathlib import Path

import click
from click.testing import CliRunner

from headrace.load.options import warehouse_options


@click.command()
@click.argument("word")
@warehouse_options
def command(word: str, warehouse: str, catalog_properties: dict[str, str]) -> None:
    click.echo(f"{word} {warehouse} {sorted(catalog_properties.items())}")


def said(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(command, ["w", *arguments])
    return result.exit_code, result.output


def test_options_override_what_a_file_says(tmp_path: Path) -> None:
    file = tmp_path / "catalog.properties"
    file.write_text("# keys\ntype=glue\ns3.secret-access-key=a\\\\b=c\n")
    where = ("--catalog-properties", str(file))
    assert said() == (0, "w warehouse []\n")
    assert said(*where) == (0, "w warehouse [('s3.secret-access-key', 'a\\\\b=c'), ('type', 'glue')]\n")
    assert said(*where, "--catalog-property", "type=rest")[1].endswith("('type', 'rest')]\n")


def test_a_later_file_overrides_an_earlier_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("type=glue\nuri=here\n")
    (tmp_path / "b").write_text("uri=there\n")
    where = [word for name in ("a", "b") for word in ("--catalog-properties", str(tmp_path / name))]
    assert said(*where) == (0, "w warehouse [('type', 'glue'), ('uri', 'there')]\n")


def test_a_file_that_cannot_be_read_is_named_and_not_quoted(tmp_path: Path) -> None:
    code, output = said("--catalog-properties", str(tmp_path / "none"))
    assert code == 2
    assert "none cannot be read: No such file or directory." in output
    file = tmp_path / "odd"
    file.write_text("key=\\uzzzz-secret")
    code, output = said("--catalog-properties", str(file))
    assert code == 2
    assert "it is no properties file in UTF-8" in output
    assert "secret" not in output
