"""Takes secrets out of texts before they leave a host: by the names that they stand behind, by their form, and by their values.

Rather too much than too little: what stands behind a telling name goes up to the end of its line. Lines without a telling word,
which are almost all, cost a look for each of them alone. Only the standard library.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote

REDACTED = "REDACTED"
# Shorter values, such as yes or sql, stand in every text.
VALUE_LENGTH_MIN = 6
# A line that has none of these, in small letters, has nothing that RULES look for.
WORDS = (
    *(
        "secret",
        "passw",
        "passphrase",
        "token",
        "credential",
        "access",
        "private",
        "api",
        "jaas",
        "signature",
    ),
    *("authorization", "cookie", "bearer", "basic", "://", "akia", "asia"),
)
# What a telling name has in it; how it begins is not looked at, and its end is bounded, so that a long word costs little.
NAME = (
    r"(?:secret|passw(?:or)?d|passphrase|token|credential|access[-_.]?key|private[-_.]?key|api[-_.]?key|jaas"
    r"|signature|authorization|cookie)[\w.\-]{0,64}"
)
# A private key, whole or cut off.
KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
RULES = (
    # name=value, "name": "value", <name>value
    (re.compile(rf"""({NAME}["']?\s*[=:>]\s*)[^\n]+""", re.IGNORECASE), rf"\1{REDACTED}"),
    # --name value
    (re.compile(rf"(?<!\S)(-[\w.\-]*{NAME}\s+)\S+", re.IGNORECASE), rf"\1{REDACTED}"),
    (re.compile(r"\b((?:Bearer|Basic)\s+)[\w.~+/=\-]{6,}", re.IGNORECASE), rf"\1{REDACTED}"),
    # scheme://user:password@host, to the last @ of the word
    (re.compile(r"(\w://)[^\s@/:]*:[^\s]+@"), rf"\1{REDACTED}@"),
    # The identifiers of AWS's keys.
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), REDACTED),
)


def redacted(text: str, values: Iterable[str] = ()) -> str:
    """The text without what is secret by a rule, and without these values."""
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, REDACTED)
    if "PRIVATE KEY-----" in text:
        text = KEY.sub(REDACTED, text)
    return "".join(map(redacted_line, text.splitlines(keepends=True)))


def redacted_line(line: str) -> str:
    small = line.lower()
    if not any(word in small for word in WORDS):
        return line
    for pattern, replacement in RULES:
        line = pattern.sub(replacement, line)
    return line


def values_of(text: str) -> set[str]:
    """What a secret file holds that must not be seen elsewhere: all of it, its lines, what stands behind names; in URLs, too."""
    lines = [line.strip() for line in text.splitlines() if not line.lstrip().startswith("#")]
    parts = [text.strip(), *lines]
    parts += [value.strip().strip("\"'") for line in lines for _, mark, value in [partition(line)] if mark]
    found = {part for part in parts if len(part) >= VALUE_LENGTH_MIN}
    return found | {quote(part, safe="") for part in found}


def partition(line: str) -> tuple[str, str, str]:
    """name, sign and value of a line, at its first = or :"""
    match = re.search(r"[=:]", line)
    return (line, "", "") if match is None else (line[: match.start()], match.group(), line[match.end() :])
