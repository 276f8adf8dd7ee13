"""How a client of a broker is let in: Kafka's client settings about security, under Kafka's names.

Owns which settings there are and what may stand beside what. Invariants: a setting that nobody knows is an error, and so is
one that could only be passed over; a secret is in no representation and in no error. Reads no file and opens nothing: that
is `tls_contexts` and `identities`; what librdkafka calls the same is in `librdkafka`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

from headrace.broker.auth.jaas import JaasError, LoginModule, parse_jaas
from headrace.broker.auth.sasl.exchange import MECHANISMS, OAUTHBEARER
from headrace.broker.config.keys import ConfigurationError, keys_of, parse_section
from headrace.broker.config.sections import Tls

PROTOCOL_KEY, MECHANISM_KEY, JAAS_KEY = "security.protocol", "sasl.mechanism", "sasl.jaas.config"
TOKEN_URL_KEY, CALLBACK_KEY = "sasl.oauthbearer.token.endpoint.url", "sasl.login.callback.handler.class"
CONNECT_MS_KEY, READ_MS_KEY = "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms"
PLAINTEXT_PROTOCOL: Final = "PLAINTEXT"
PROTOCOLS: Final = (PLAINTEXT_PROTOCOL, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PREFIXES: Final = ("security.", "ssl.", "sasl.")
HIDDEN: Final = "[hidden]"
_OAUTHBEARER_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
CALLBACKS: Final = tuple(
    f"{_OAUTHBEARER_PACKAGE}.{name}OAuthBearerLoginCallbackHandler" for name in ("", "secured.")
)
"""Kafka's own, now and before 3.5; what it does is done here."""

WITH_EFFECT: Final = frozenset(
    (
        PROTOCOL_KEY,
        MECHANISM_KEY,
        JAAS_KEY,
        TOKEN_URL_KEY,
        CONNECT_MS_KEY,
        READ_MS_KEY,
        CALLBACK_KEY,
        *keys_of(Tls),
    )
)
WITHOUT_EFFECT: Final = frozenset(
    (
        "security.providers",
        "ssl.client.auth",
        "ssl.keymanager.algorithm",
        "ssl.principal.mapping.rules",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.service.name",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.class",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.header.urlencode",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
    )
)
"""Kafka's settings that say nothing to a client that is not Java's, or that brokers alone use."""
_KNOWN: Final = WITH_EFFECT | WITHOUT_EFFECT
_TIMEOUT_MS_HIGH: Final = 600_000


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """Checked settings, by name and in order; none stand for PLAINTEXT. May be pickled, with its secrets."""

    settings: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, properties: Mapping[str, str], prefix: str = "") -> ClientSecurity:
        """What of these properties is about security, behind `prefix`; raises ConfigurationError with the whole name."""
        own = {
            name.removeprefix(prefix): text.strip()
            for name, text in properties.items()
            if name.startswith(prefix) and is_about_security(name.removeprefix(prefix))
        }
        try:
            _check(own)
        except ConfigurationError as error:
            raise ConfigurationError(prefix + error.key, error.value, error.allowed) from None
        return cls(tuple(sorted(own.items())))

    def value(self, name: str, default: str = "") -> str:
        """A setting's text."""
        return dict(self.settings).get(name, default)

    @property
    def protocol(self) -> str:
        return self.value(PROTOCOL_KEY, PLAINTEXT_PROTOCOL)

    @property
    def uses_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol.startswith("SASL")

    @property
    def mechanism(self) -> str:
        return self.value(MECHANISM_KEY)

    @property
    def login_module(self) -> LoginModule:
        """Who a client says that it is; of a security that uses SASL."""
        return parse_jaas(self.value(JAAS_KEY), self.mechanism)

    def timeout_seconds(self, name: str, default_ms: int = 10_000) -> float:
        """One of the two time-outs of asking for a token."""
        return int(self.value(name) or default_ms) / 1000


PLAINTEXT: Final = ClientSecurity()


def is_about_security(name: str) -> bool:
    """Whether a setting without a prefix is one of those here, or would be if it were known."""
    return name.startswith(PREFIXES)


def _check(own: Mapping[str, str]) -> None:
    for name in own:
        if name not in _KNOWN:
            near = get_close_matches(name, _KNOWN, n=1)
            allowed = f"{near[0]} in its place, or nothing" if near else "nothing"
            raise ConfigurationError(name, HIDDEN, f"{allowed}, since clients have no such setting")
    protocol = own.get(PROTOCOL_KEY, PLAINTEXT_PROTOCOL)
    if protocol not in PROTOCOLS:
        raise ConfigurationError(PROTOCOL_KEY, protocol, f"one of {', '.join(PROTOCOLS)}")
    parse_section(Tls, own)
    if own.get(CALLBACK_KEY, CALLBACKS[0]) not in CALLBACKS:
        raise ConfigurationError(
            CALLBACK_KEY, own[CALLBACK_KEY], f"{CALLBACKS[0]}: no other class can be asked"
        )
    for name in (CONNECT_MS_KEY, READ_MS_KEY):
        text = own.get(name, "") or "1"
        if not (text.isdecimal() and 0 < int(text) <= _TIMEOUT_MS_HIGH):
            raise ConfigurationError(name, text, f"a whole number from 1 to {_TIMEOUT_MS_HIGH}")
    if protocol.startswith("SASL"):
        _check_sasl(own, protocol)


def _check_sasl(own: Mapping[str, str], protocol: str) -> None:
    mechanism = own.get(MECHANISM_KEY, "")
    if mechanism not in MECHANISMS:
        allowed = f"one of {', '.join(MECHANISMS)} with {PROTOCOL_KEY}={protocol}"
        raise ConfigurationError(MECHANISM_KEY, mechanism, allowed)
    try:
        module = parse_jaas(own.get(JAAS_KEY, ""), mechanism)
    except JaasError as error:
        shown = HIDDEN if own.get(JAAS_KEY) else ""
        raise ConfigurationError(JAAS_KEY, shown, f"the login module of {mechanism} ({error})") from None
    if mechanism != OAUTHBEARER and not (module.username and module.password):
        raise ConfigurationError(JAAS_KEY, HIDDEN, "a username and a password")
    if mechanism == OAUTHBEARER and not own.get(TOKEN_URL_KEY):
        allowed = f"the http, https or file URL that tokens come from, with {MECHANISM_KEY}={OAUTHBEARER}"
        raise ConfigurationError(TOKEN_URL_KEY, "", allowed)
