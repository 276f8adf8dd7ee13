"""What `sasl.jaas.config` says: one login module of Kafka's, with its options.

    org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="alice-secret";

Only Kafka's three modules are known, by name, and nothing is ever loaded by a name: a module that asks a directory, a name
service or Kerberos is refused (CVE-2023-25194 is what comes of loading them). A text of an error has no option's value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.broker.auth.sasl.credentials import HASHES
from headrace.broker.auth.sasl.exchange import OAUTHBEARER, PLAIN
from headrace.broker.config.keys import ConfigurationError

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
MODULES = {PLAIN: PLAIN_MODULE, **dict.fromkeys(HASHES, SCRAM_MODULE), OAUTHBEARER: OAUTHBEARER_MODULE}
"""The module of each mechanism."""
_FLAGS = ("required", "requisite", "sufficient", "optional")
_USER_PREFIX = "user_"
_TEXT_SIZE_MAX = 1 << 20

# A quoted text, a sign that stands alone, or a word; comments are Java's.
_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
    | "(?P<double>(?:[^"\\\n]|\\.)*)" | '(?P<single>(?:[^'\\\n]|\\.)*)'
    | (?P<sign>[=;]) | (?P<word>[^\s"'=;]+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class _Token(NamedTuple):
    text: str
    is_sign: bool


_EQUALS, _END = _Token("=", True), _Token(";", True)


class JaasError(ValueError):
    """One sentence that says what is wrong, and nothing of a secret."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """`options` by their names; what they say is secret."""

    name: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def username(self) -> str:
        """With what a client logs in; empty where nothing is said."""
        return self.options.get("username", "")

    @property
    def password(self) -> str:
        return self.options.get("password", "")

    @property
    def is_token(self) -> bool:
        """Whether a delegation token is shown in the place of a password."""
        return self.options.get("tokenauth", "").lower() == "true"

    @property
    def users(self) -> dict[str, str]:
        """The passwords of PLAIN's users: `user_NAME="PASSWORD"`."""
        start = len(_USER_PREFIX)
        return {key[start:]: value for key, value in self.options.items() if key.startswith(_USER_PREFIX)}


def parse_jaas(text: str, mechanism: str | None = None) -> LoginModule:
    """One entry; of the mechanism's own module, where one is named. Raises JaasError."""
    if len(text) > _TEXT_SIZE_MAX:
        raise JaasError(f"sasl.jaas.config is longer than {_TEXT_SIZE_MAX} characters.")
    tokens = iter(_tokens(text))
    name, flag = next(tokens, _END).text, next(tokens, _END).text
    _check_module(name, mechanism)
    if flag.lower() not in _FLAGS:
        raise JaasError(
            f"sasl.jaas.config needs a flag after the login module: give one of {', '.join(_FLAGS)}."
        )
    options: dict[str, str] = {}
    for key in tokens:
        if key == _END:
            break
        equals, value = next(tokens, _END), next(tokens, _END)
        if key.is_sign or value.is_sign or equals != _EQUALS:
            raise JaasError("sasl.jaas.config needs its options as NAME=VALUE, and a semicolon at its end.")
        options[key.text] = value.text
    else:
        raise JaasError("sasl.jaas.config does not end with a semicolon.")
    if next(tokens, None) is not None:
        raise JaasError("sasl.jaas.config names more than one login module: give one only.")
    return LoginModule(name, options)


def _check_module(name: str, mechanism: str | None) -> None:
    known = tuple(dict.fromkeys(MODULES.values()))
    if name not in known:
        raise JaasError(
            f"the login module {name[:200]!r} is not allowed in sasl.jaas.config: give one of {', '.join(known)}."
        )
    if mechanism is not None and MODULES.get(mechanism) != name:
        raise JaasError(
            f"the login module of {mechanism} is {MODULES.get(mechanism, 'unknown')}, not {name}."
        )


def _tokens(text: str) -> list[_Token]:
    found, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise JaasError("sasl.jaas.config has a quotation or a comment that does not end.")
        position = match.end()
        quoted = match["double"] if match["double"] is not None else match["single"]
        if quoted is not None:
            unescaped = _ESCAPED.sub(lambda each: _ESCAPES.get(each[1], each[1]), quoted)
            found.append(_Token(unescaped, False))
        elif match["sign"] or match["word"]:
            found.append(_Token(match["sign"] or match["word"], match["sign"] is not None))
    return found


def jaas_of(properties: Mapping[str, str], listener: str, mechanism: str) -> LoginModule | None:
    """The login module of a mechanism at a broker's listener: its users, and with what the broker logs in to others there.

    Raises ConfigurationError, which has nothing of what is given.
    """
    key = jaas_key(listener, mechanism)
    text = properties.get(key, "")
    if not text.strip():
        return None
    try:
        return parse_jaas(text, mechanism)
    except JaasError as error:
        raise ConfigurationError(key, "[hidden]", f"what a login module takes ({error})") from None


def jaas_key(listener: str, mechanism: str) -> str:
    """Under which name a broker has the login module of a mechanism at a listener."""
    return f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
