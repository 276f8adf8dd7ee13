"""What a lab asks of the machine under it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import containers
from lab.errors import LabError


def test_hosts_whose_watches_do_not_fit_are_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd boots without them, and a unit fails that has nothing to do with it."""
    monkeypatch.setattr(containers, "INSTANCES_MAX", tmp_path / "max_user_instances")
    containers.INSTANCES_MAX.write_text("128\n")
    containers.need_watches(22)
    with pytest.raises(LabError, match=r"30 hosts take 160 .*max_user_instances=160\.$"):
        containers.need_watches(30)
