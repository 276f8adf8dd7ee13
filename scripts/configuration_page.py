"""Write the tables of docs/configuration.md from the broker's own definitions: `python scripts/configuration_page.py`."""

from __future__ import annotations

from pathlib import Path

from headrace.broker import config
from headrace.broker.config_keys import Key, default_of, keys_of, text_of

PAGE = Path(__file__).resolve().parents[1] / "docs" / "configuration.md"
START, END = "<!-- tables made by scripts/configuration_page.py -->\n", "<!-- end of tables -->\n"


def row(name: str, default: object, key: Key) -> str:
    """One line of a table."""
    shown = text_of(default)
    return f"| `{name}` | {'none' if shown is None else f'`{shown}`' if shown else 'empty'} | {key.allowed()} | {key.doc} |"


def tables() -> str:
    """A table for each section of `server.properties`, and one for a topic's configuration."""
    parts: list[str] = []
    for section in config.SECTIONS.values():
        parts += [f"\n## {section.__name__}\n", f"{section.__doc__}\n"]
        parts += ["| key | default | allowed | meaning |", "|---|---|---|---|"]
        keys = keys_of(section)
        parts += [row(name, default_of(section, name), key) for name, key in keys.items()]
    parts += ["\n## A topic's configuration\n", "| key | default | allowed | meaning |", "|---|---|---|---|"]
    parts += [row(name, topic.default, topic.key) for name, topic in config.TOPIC_CONFIGS.items()]
    return "\n".join(parts) + "\n\n"


def render(page: str) -> str:
    """The page with its tables made anew."""
    head, _, rest = page.partition(START)
    _, _, tail = rest.partition(END)
    return head + START + tables() + END + tail


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text()))
