"""Write the tables of docs/configuration.md from the broker's own definitions: `python scripts/configuration_page.py`."""

from __future__ import annotations

from pathlib import Path

from headrace.broker.config import broker, foreign, topics
from headrace.broker.config.keys import Key, default_of, keys_of, text_of

PAGE = Path(__file__).resolve().parents[1] / "docs" / "configuration.md"
START, END = "<!-- tables made by scripts/configuration_page.py -->\n", "<!-- end of tables -->\n"


def row(name: str, default: object, key: Key) -> str:
    """One line of a table."""
    text = text_of(default)
    shown = "none" if text is None else f"`{text}`" if text else "empty"
    reason = foreign.reason_without_effect(name)
    doc = key.doc if reason is None else f"{key.doc} No effect: {reason}."
    return f"| `{name}` | {shown} | {key.allowed()} | {doc} |"


def tables() -> str:
    """A table for each section of `server.properties`, and one for a topic's configuration."""
    parts: list[str] = []
    for section in broker.SECTIONS.values():
        parts += [f"\n## {section.__name__}\n", f"{section.__doc__}\n"]
        parts += ["| key | default | allowed | meaning |", "|---|---|---|---|"]
        keys = keys_of(section)
        parts += [row(name, default_of(section, name), key) for name, key in keys.items()]
    parts += ["\n## A topic's configuration\n", "| key | default | allowed | meaning |", "|---|---|---|---|"]
    parts += [row(name, topic.default, topic.key) for name, topic in topics.TOPIC_CONFIGS.items()]
    parts += foreign_keys()
    return "\n".join(parts) + "\n\n"


def foreign_keys() -> list[str]:
    """The keys of Apache Kafka's that have no effect, and those with one kind of value."""
    parts = [
        "\n## Keys of Apache Kafka without effect\n",
        "A warning at the start names those that are given.\n",
    ]
    parts += ["| why | keys |", "|---|---|"]
    reasons = dict.fromkeys([*foreign.WITHOUT_EFFECT, *foreign.PREFIXES_WITHOUT_EFFECT.values()])
    for reason in reasons:
        names = [f"`{name}`" for name in foreign.WITHOUT_EFFECT.get(reason, ())]
        names += [f"`{p}*`" for p, why in foreign.PREFIXES_WITHOUT_EFFECT.items() if why == reason]
        parts.append(f"| {reason} | {', '.join(names)} |")
    parts += ["\n## Keys of Apache Kafka with one kind of value\n", "Any other ends the start.\n"]
    parts += ["| key | allowed |", "|---|---|"]
    return parts + [f"| `{name}` | {allowed} |" for name, (_, allowed) in foreign.CHECKED.items()]


def render(page: str) -> str:
    """The page with its tables made anew."""
    head, _, rest = page.partition(START)
    _, _, tail = rest.partition(END)
    return head + START + tables() + END + tail


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text()))
