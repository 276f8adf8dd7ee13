"""Who a client is by its certificate: `ssl.principal.mapping.rules`, as Kafka's SslPrincipalMapper applies them (KIP-371).

Rules are tried in order: `DEFAULT` takes the distinguished name as it is, `RULE:pattern/replacement/[LU]` one that the pattern
matches as a whole, with `$1` and so on in the replacement, in lower or upper case where it says so. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cryptography import x509

from headrace.broker.config.keys import ConfigurationError
from headrace.broker.tls.names import rfc2253

KEY = "ssl.principal.mapping.rules"
ANONYMOUS_NAME = "ANONYMOUS"
_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|.*?"
_SPLITTER = re.compile(rf"\s*(?P<rule>{_RULE})\s*(?:,\s*|$)")
_PARSER = re.compile(_RULE)
_REPLACED = re.compile(r"\\(?P<literal>.)|\$(?P<digits>\d+)|\$\{(?P<name>\w+)\}", re.DOTALL)


class NoRuleError(ValueError):
    """No rule has a name for a client."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One of them; without a pattern it takes any name as it is."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """The name that it makes of one, or None where it does not match."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        found = self.pattern.sub(self._replaced, name)
        return found.lower() if self.case == "L" else found.upper() if self.case == "U" else found

    def _replaced(self, match: re.Match[str]) -> str:
        return _REPLACED.sub(lambda part: _part(part, match), self.replacement)


class PrincipalMapper:
    """The rules of a listener. Raises ConfigurationError for texts that are none."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._rules = tuple(_rules(text))

    def name_of(self, certificate: bytes | None) -> str:
        """The principal's name by a certificate in DER, `ANONYMOUS` without one. Raises NoRuleError."""
        if certificate is None:
            return ANONYMOUS_NAME
        return self.mapped(rfc2253(x509.load_der_x509_certificate(certificate).subject.public_bytes()))

    def mapped(self, name: str) -> str:
        """What the rules make of a distinguished name. Raises NoRuleError."""
        for rule in self._rules:
            found = rule.apply(name)
            if found is not None:
                return found
        raise NoRuleError(f"no rule of {KEY} has a name for {name}")


def _rules(text: str) -> list[Rule]:
    found = []
    for split in _SPLITTER.finditer(text.strip()):
        match = _PARSER.match(split["rule"])
        if match is None or match.end() != len(split["rule"]):
            raise _refused(text)
        default, pattern, replacement, case = match.groups()
        if default is not None:
            found.append(Rule())
        elif pattern is not None:
            found.append(_with_pattern(text, pattern, replacement, case))
    return found


def _with_pattern(text: str, pattern: str, replacement: str, case: str) -> Rule:
    # Java writes named groups without a P.
    translated = re.sub(r"\(\?<(?![=!])", "(?P<", pattern)
    try:
        return Rule(re.compile(translated), replacement, case)
    except re.error:
        raise _refused(text) from None


def _refused(text: str) -> ConfigurationError:
    return ConfigurationError(
        KEY, text, "a comma-separated list of DEFAULT and RULE:pattern/replacement/[LU]"
    )


def _part(part: re.Match[str], match: re.Match[str]) -> str:
    """A piece of a replacement: what a backslash protects, or a group; a number without a group stays, as in Kafka."""
    if part["literal"] is not None:
        return part["literal"]
    if part["name"] is not None:
        return match[part["name"]] or ""
    digits, groups = part["digits"], match.re.groups
    for size in range(len(digits), 0, -1):
        if int(digits[:size]) <= groups:
            return (match[int(digits[:size])] or "") + digits[size:]
    return part[0]
