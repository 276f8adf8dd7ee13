"""Java's properties format, which `server.properties` is written in."""

from __future__ import annotations

from headrace.broker.config.keys import ConfigurationError


def parse_properties(text: str) -> dict[str, str]:
    """Java's properties format: `key=value`, `key: value` or `key value`, `#` and `!` comments, `\\` continues a line."""
    properties: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        line = line.lstrip()
        if not line or line[0] in "#!":
            continue
        while _continues(line):
            line = line[:-1] + next(lines, "").lstrip()
        key, value = _split_pair(line)
        properties[key] = value
    return properties


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split_pair(line: str) -> tuple[str, str]:
    """Cut at the first `=`, `:` or white space that no backslash protects."""
    index, escaped = 0, False
    while index < len(line) and (escaped or line[index] not in "=: \t"):
        escaped = not escaped and line[index] == "\\"
        index += 1
    rest = line[index:].lstrip(" \t")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t")
    return _unescape(line[:index]), _unescape(rest)


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out, characters = [], iter(text)
    for character in characters:
        if character != "\\":
            out.append(character)
            continue
        following = next(characters, "")
        if following == "u":
            digits = "".join(next(characters, "") for _ in range(4))
            try:
                out.append(chr(int(digits, 16)))
            except ValueError:
                raise ConfigurationError("\\u" + digits, text, "four hexadecimal digits after \\u") from None
        else:
            out.append(_ESCAPES.get(following, following))
    return "".join(out)
