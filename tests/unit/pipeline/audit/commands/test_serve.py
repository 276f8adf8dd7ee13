"""What `headrace audit serve` refuses before it listens."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.audit.commands import serve
from headrace.load.tables import open_catalog


@pytest.mark.parametrize("missing", ["warehouse", "archive"])
def test_a_warehouse_that_is_not_there_is_refused(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def served(*_: object) -> None:
        pytest.fail("it serves")

    monkeypatch.setattr(serve, "_serve", served)
    for name in {"warehouse", "archive"} - {missing}:
        open_catalog(str(tmp_path / name)).create_namespace("warehouse")
    options = ["--bootstrap", "127.0.0.1:1", "--warehouse", str(tmp_path / "warehouse")]
    further = ["--further-warehouse", f"archive={tmp_path / 'archive'}"]
    done = CliRunner().invoke(serve.serve, [*options, *further])
    assert done.exit_code == 1
    assert f"there is no warehouse in {tmp_path / missing};" in done.stderr
    assert not (tmp_path / missing).exists()
