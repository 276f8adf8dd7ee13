"""What the parts of the audit's page are made of: tables, times, links and numbers, as HTML.

Owns escaping: all that is no `Html` is escaped. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final, Protocol
from urllib.parse import urlencode

ROWS_MAX: Final = 100
"""Findings and reasons on the page; report.json has more."""

Row = Mapping[str, Any]


class Html(str):
    """Text that is HTML already, which a table takes as it is."""

    __slots__ = ()


class Links(Protocol):
    """Names where a part of the page is, narrowed to what a number is made of."""

    def __call__(self, part: str, /, **narrowed: str) -> str: ...


def whole_parts(part: str, /, **_: str) -> str:
    """Links of a page that narrows nothing."""
    return f"#{part}"


def narrowed_parts(part: str, /, **narrowed: str) -> str:
    """Links of the page that is served."""
    return f"./?{urlencode(narrowed)}#{part}"


def number(value: int, link: str = "", word: str = "") -> Html:
    """Return a number, as a link to what it is made of where there is something."""
    text = escape(f"{value:,} {word}".rstrip())
    return Html(f'<a href="{escape(link)}">{text}</a>' if link and value else text)


def moment(at: str | None, otherwise: str = "-") -> Html:
    """Return a time of the report, which a script can write as how long ago."""
    return Html(f'<time datetime="{escape(at)}">{escape(at)}</time>' if at else otherwise)


def more(rows: Sequence[Row]) -> str:
    left = len(rows) - ROWS_MAX
    return f'<p class="nothing">{left:,} more in report.json.</p>' if left > 0 else ""


def table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Iterable[int] = (), kinds: bool = False
) -> str:
    """Return a table; `numbers` are columns set to the right, with `kinds` the first one is marked by its text."""
    right = set(numbers)

    def cell(tag: str, at: int, text: str) -> str:
        style = ' class="number"' if at in right else ""
        content = text if isinstance(text, Html) else escape(str(text))
        if kinds and at == 0 and tag == "td":
            content = f'<span class="kind {content}">{content}</span>'
        return f"<{tag}{style}>{content}</{tag}>"

    head = "".join(cell("th", at, title) for at, title in enumerate(titles))
    body = "".join(f"<tr>{''.join(cell('td', at, text) for at, text in enumerate(row))}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
