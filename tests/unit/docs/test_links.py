"""Each link of a page to a file of this repository, or to a heading of a page, leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "terraform").rglob("*.md")])
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
CITED = re.compile(r"`((?:playbooks|scripts|terraform|tests|inventory)/[\w./-]+|fabfile\.py)`")
"""How docs/kits.md names files of ours, which stand in its rows about headrace alone."""


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives a page's headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead_links(page: Path) -> list[str]:
    dead = []
    for path, anchor in LINK.findall(prose(page)):
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(f"{path}#{anchor}" if anchor else path)
    return dead


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert dead_links(page) == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `b` heading, too\n[x](#a-b-heading-too) [y](#gone) [z](page.md#a) [w](gone.md)\n")
    assert dead_links(page) == ["#gone", "page.md#a", "gone.md"]


def test_what_the_comparison_says_of_headrace_names_files_that_are_there() -> None:
    rows = re.findall(
        r"^\| headrace \|.*$", (ROOT / "docs" / "kits.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    cited = {path for row in rows for path in CITED.findall(row)}
    assert len(cited) > 10
    assert [path for path in sorted(cited) if not (ROOT / path).exists()] == []
