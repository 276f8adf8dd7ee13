"""Distinguished names as Java's X500Principal.getName() writes them (RFC 2253), from their DER. Pure."""

from __future__ import annotations

from collections.abc import Iterator

KEYWORDS = {
    "55 04 03": "CN",
    "55 04 06": "C",
    "55 04 07": "L",
    "55 04 08": "ST",
    "55 04 0a": "O",
    "55 04 0b": "OU",
    "55 04 09": "STREET",
    "09 92 26 89 93 f2 2c 64 01 19": "DC",
    "09 92 26 89 93 f2 2c 64 01 01": "UID",
}
"""Those that RFC 2253 names, by the bytes of their object identifiers; all others are told by number and in hexadecimal."""
# UTF8, Printable, T61, IA5, General, Universal and BMP strings, which Java all reads as UTF-8.
_STRINGS = (0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E)
_ESCAPED = ',=+<>#;"\\'


def rfc2253(name: bytes) -> str:
    """The text of a name in DER (RFC 5280's Name), the last part first."""
    ((_, parts, _),) = _values(name)
    return ",".join(
        reversed(
            ["+".join(_attribute(each) for _, each, _ in _values(part)) for _, part, _ in _values(parts)]
        )
    )


def _attribute(pair: bytes) -> str:
    (_, kind, _), (tag, value, whole) = _values(pair)
    keyword = KEYWORDS.get(kind.hex(" "))
    if keyword is None or tag not in _STRINGS:
        return f"{keyword or _dotted(kind)}=#{whole.hex()}"
    return f"{keyword}={_escaped(value.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    middle = text.strip(" \r")
    start = text.index(middle) if middle else len(text)
    escaped = "".join("\\00" if c == "\0" else f"\\{c}" if c in _ESCAPED else c for c in middle)
    before, after = text[:start], text[start + len(middle) :]
    return "".join(f"\\{c}" for c in before) + escaped + "".join(f"\\{c}" for c in after)


def _dotted(kind: bytes) -> str:
    """An object identifier with its dots."""
    numbers, number = [], 0
    for byte in kind:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _values(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """The values that follow each other: tag, content, and all of it."""
    at = 0
    while at < len(data):
        start, tag, size = at, data[at], data[at + 1]
        at += 2
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[at : at + count], "big")
            at += count
        yield tag, data[at : at + size], data[start : at + size]
        at += size
