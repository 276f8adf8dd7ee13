"""Write the tables of docs/compatibility.md: `python scripts/compatibility_page.py`.

The table of API keys is made from the broker's own handlers, that of clients in client_suites.py, that of error codes in
session_coverage.py. A handler's module text says in a paragraph that has
"Deviations:" where it differs from Apache Kafka; keys without a handler have their reason here.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import client_suites
import session_coverage

from headrace.broker import handlers
from headrace.broker.handlers.table import HANDLERS
from headrace.broker.wire.api import APIS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "compatibility.md"
START, END = "<!-- table made by scripts/compatibility_page.py -->\n", "<!-- end of table -->\n"
SESSIONS_START, SESSIONS_END = "<!-- made by scripts/session_coverage.py -->\n", "<!-- end of sessions -->\n"
CLIENTS_START, CLIENTS_END = "<!-- made by scripts/client_suites.py -->\n", "<!-- end of client suites -->\n"

KRAFT = "no part of ZooKeeper mode"
NOT_SERVED = {
    58: KRAFT,
}
"""Keys without a handler, with the reason."""


def deviations(text: str) -> str:
    """What follows `Deviations:` up to the end of the paragraph, as one line; empty when there are none."""
    found = re.search(r"\bDeviations?: (.*?)(?:\n\n|\Z)", text, re.DOTALL)
    line = " ".join(found.group(1).split()) if found else ""
    return line[:1].upper() + line[1:]


def row(key: int) -> str:
    """One line of the table."""
    api, handler = APIS[key], HANDLERS.get(key)
    theirs = f"{api.versions[0]}-{api.versions[1]}"
    if handler is None:
        return f"| {key} | {api.name} | – | {theirs} | Not served: {NOT_SERVED[key]}. |"
    text = sys.modules[module_of(key)].__doc__ or ""
    return f"| {key} | {api.name} | {handler.version_min}-{handler.version_max} | {theirs} | {deviations(text)} |"


def module_of(key: int) -> str:
    """The name of the handler's module, or of its folder."""
    modules = {
        name: module for name, module in sys.modules.items() if name.startswith(f"{handlers.__name__}.")
    }
    found = next(
        name for name, module in modules.items() if hasattr(module, "VERSIONS") and module.API.key == key
    )
    return found.removesuffix(".handler")


def table() -> str:
    """A line for each key that Apache Kafka 3.9 has."""
    head = [
        "",
        "| key | API | headrace | Apache Kafka 3.9 | where headrace differs |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*head, *(row(key) for key in sorted(APIS))]) + "\n\n"


def render(page: str) -> str:
    """The page with its tables made anew."""
    page = between(page, START, END, table())
    page = between(page, SESSIONS_START, SESSIONS_END, session_coverage.section())
    return between(page, CLIENTS_START, CLIENTS_END, client_suites.section())


def between(page: str, start: str, end: str, text: str) -> str:
    """The page with `text` between two of its lines."""
    head, _, rest = page.partition(start)
    _, _, tail = rest.partition(end)
    return head + start + text + end + tail


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text()))
