"""The listeners whose clients log in, from the broker's configuration: their mechanisms, who is known there, what is counted.

Each (listener, mechanism) has its own settings: `listener.name.<listener>.<mechanism>.<key>` before
`listener.name.<listener>.<key>` before `<key>`. Whatever a log-in needs and that is random is drawn here.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace.broker.auth.jaas import MODULES, jaas_key, jaas_of
from headrace.broker.auth.sasl.credentials import HASHES
from headrace.broker.auth.sasl.exchange import MECHANISMS, OAUTHBEARER, PLAIN, ServerExchange
from headrace.broker.auth.sasl.oauthbearer import OAuthBearerServer
from headrace.broker.auth.sasl.plain import PlainServer
from headrace.broker.auth.sasl.scram import Known, ScramServer
from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.keys import ConfigurationError, parse_section
from headrace.broker.config.listeners import Listener, settings_of
from headrace.broker.config.sections import Sasl
from headrace.broker.handlers.log_in import LogIn
from headrace.broker.server.access.issuer_keys import IssuerKeys
from headrace.broker.tasks import Tasks

LOG_IN_SIZE_MAX = 64 * 1024
MECHANISMS_KEY = "sasl.enabled.mechanisms"
SIZE_KEY, HANDLER_KEY = "sasl.server.max.receive.size", "sasl.server.callback.handler.class"
VALIDATORS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
)
NONCE_SIZE = 24
Lookup = Callable[[str, str], Known | None]
"""What is known of a name for a mechanism."""


class LogInFigures:
    """What is counted at one listener: log-ins by (mechanism, whether it went well, whether it renewed a session)."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, bool, bool], int] = {}
        self.expired_count = 0

    def logged_in(self, mechanism: str, *, again: bool) -> None:
        self._count((mechanism, True, again))

    def refused(self, mechanism: str, *, again: bool) -> None:
        self._count((mechanism, False, again))

    def expired(self) -> None:
        self.expired_count += 1

    def _count(self, which: tuple[str, bool, bool]) -> None:
        self.counts[which] = self.counts.get(which, 0) + 1


@dataclass(frozen=True, slots=True)
class _Mechanism:
    exchange: Callable[[], ServerExchange]
    session_ms_max: int


class ListenerMechanisms:
    """Of one listener; `keys` are those of its issuer of bearer tokens, where it takes such."""

    def __init__(self, listener: str, config: BrokerConfig, users: Lookup, tokens: Lookup) -> None:
        """Raises ConfigurationError."""
        self._listener = listener
        self._properties = config.properties
        self._users, self._tokens = users, tokens
        self.keys: IssuerKeys | None = None
        settings = settings_of(config.properties, listener)
        sasl = Sasl(**parse_section(Sasl, settings))
        size_max = sasl.sasl_server_max_receive_size
        self.size_max = size_max if SIZE_KEY in settings else min(size_max, LOG_IN_SIZE_MAX)
        self.names = sasl.sasl_enabled_mechanisms
        if not self.names or not set(self.names) <= set(MECHANISMS):
            allowed = f"for listener {listener} one or more of {', '.join(MECHANISMS)}"
            raise ConfigurationError(MECHANISMS_KEY, ",".join(self.names), allowed)
        self._mechanisms = {name: self._made(name) for name in self.names}

    def exchange(self, mechanism: str) -> ServerExchange:
        return self._mechanisms[mechanism].exchange()

    def session_ms_max(self, mechanism: str) -> int:
        return self._mechanisms[mechanism].session_ms_max

    def _made(self, mechanism: str) -> _Mechanism:
        settings = settings_of_mechanism(self._properties, self._listener, mechanism)
        sasl = Sasl(**parse_section(Sasl, settings))
        handler = sasl.sasl_server_callback_handler_class
        if handler and not (mechanism == OAUTHBEARER and handler in VALIDATORS):
            raise ConfigurationError(HANDLER_KEY, handler, f"no class of Java's for {mechanism}")
        module = jaas_of(self._properties, self._listener, mechanism)
        if module is None and (mechanism == PLAIN or sasl.sasl_jaas_config is not None):
            allowed = f"{MODULES[mechanism]} required …; (sasl.jaas.config without the prefix has no effect)"
            raise ConfigurationError(jaas_key(self._listener, mechanism), "", allowed)
        session_ms_max = sasl.connections_max_reauth_ms
        if mechanism == PLAIN:
            users = {} if module is None else module.users
            return _Mechanism(lambda: PlainServer(users), session_ms_max)
        if mechanism in HASHES:
            return _Mechanism(lambda: self._scram(mechanism), session_ms_max)
        keys = self.keys = IssuerKeys(sasl, {} if module is None else module.options)
        return _Mechanism(lambda: OAuthBearerServer(keys.check), session_ms_max)

    def _scram(self, mechanism: str) -> ServerExchange:
        def lookup(name: str, is_token: bool) -> Known | None:
            return (self._tokens if is_token else self._users)(mechanism, name)

        return ScramServer(mechanism, lookup, secrets.token_urlsafe(NONCE_SIZE))


class LogIns:
    """Of all listeners; a `LogIn` for each new connection of one that asks for it."""

    def __init__(self, config: BrokerConfig, users: Lookup, tokens: Lookup) -> None:
        """Raises ConfigurationError."""
        self._listeners = {
            listener.name: ListenerMechanisms(listener.name, config, users, tokens)
            for listener in config.listeners
            if listener.is_sasl
        }
        _check_between_brokers(config, self._listeners)
        self.figures = {name: LogInFigures() for name in self._listeners}

    def at(self, listener: Listener) -> LogIn | None:
        """How a new client of that listener logs in; None where nobody does."""
        mechanisms = self._listeners.get(listener.name)
        if mechanisms is None:
            return None
        return LogIn(mechanisms, self.figures[listener.name], mechanisms.size_max)

    def start(self, tasks: Tasks) -> None:
        """Keep the keys of issuers fresh."""
        for name, mechanisms in self._listeners.items():
            if mechanisms.keys is not None:
                tasks.start(f"keys of an issuer, {name}", mechanisms.keys.run())


def _check_between_brokers(config: BrokerConfig, listeners: Mapping[str, ListenerMechanisms]) -> None:
    """Brokers can log in to each other where they meet."""
    mechanism, found = (
        config.sasl.sasl_mechanism_inter_broker_protocol,
        listeners.get(config.inter_broker_listener),
    )
    if found is not None and mechanism not in found.names:
        allowed = f"one of sasl.enabled.mechanisms of listener {config.inter_broker_listener}: {', '.join(found.names)}"
        raise ConfigurationError("sasl.mechanism.inter.broker.protocol", mechanism, allowed)


def settings_of_mechanism(properties: Mapping[str, str], listener: str, mechanism: str) -> dict[str, str]:
    """What goes by a mechanism at a listener, by the names without their prefixes."""
    settings = settings_of(properties, listener)
    prefix = f"{mechanism.lower()}."
    own = {name[len(prefix) :]: text for name, text in settings.items() if name.startswith(prefix)}
    return {**settings, **own}
