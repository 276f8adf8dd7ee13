"""The name of a lab's image follows from its recipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import image


def test_another_recipe_has_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "etc" / "greeting"
    file.parent.mkdir()
    file.write_text("hello")
    monkeypatch.setattr(image, "OVERLAY", tmp_path)
    first = image.image_name()
    assert first == image.image_name()

    file.write_text("good morning")
    second = image.image_name()
    file.chmod(0o755)
    third = image.image_name()
    monkeypatch.setattr(image, "PACKAGES", (*image.PACKAGES, "tcpdump"))
    assert len({first, second, third, image.image_name()}) == 4


def test_what_is_laid_over_the_system_is_text_below_its_root() -> None:
    assert set(image.overlay()) == {"etc/systemd/system/lab-routes.service", "usr/local/sbin/lab-routes"}
    assert [path for path, (is_program, _) in image.overlay().items() if is_program] == [
        "usr/local/sbin/lab-routes"
    ]
