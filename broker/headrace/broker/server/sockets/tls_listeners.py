"""What the listeners with TLS serve with: a context and the rules for principals each, renewed while the broker runs.

A connection keeps what its handshake was made with; `use(config)` is for those that come after. A configuration that cannot be
served with (a store that cannot be read, a certificate for another name) changes nothing. Must not know: sockets, ZooKeeper.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass

from cryptography import x509

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.keys import ConfigurationError
from headrace.broker.config.listeners import Listener, own_name, told_of
from headrace.broker.structured_log import get_logger
from headrace.broker.tls.ciphers import TLS_1_3
from headrace.broker.tls.contexts import check_handshake, client_context, parsed, server_context
from headrace.broker.tls.principals import PrincipalMapper
from headrace.broker.tls.renewal import check_renewal
from headrace.broker.tls.stores import key_store

CLIENT_AUTH = "ssl.client.auth"
logger = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TlsListener:
    """What one listener serves with."""

    name: str
    context: ssl.SSLContext
    principals: PrincipalMapper
    suites: frozenset[str]
    certificate: x509.Certificate

    def refusal(self, cipher: tuple[str, str, int] | None) -> str | None:
        """Why a handshake that ended with this cipher is refused, if it is: OpenSSL is told of no suites of TLS 1.3."""
        if self.suites and cipher is not None and cipher[0] in TLS_1_3 and cipher[0] not in self.suites:
            return f"its cipher suite {cipher[0]} is none of ssl.cipher.suites"
        return None


class TlsListeners:
    """Those of a broker. Raises ConfigurationError when one of them cannot serve."""

    def __init__(self, config: BrokerConfig) -> None:
        self._served: Mapping[str, TlsListener] = _made(config)

    def __getitem__(self, name: str) -> TlsListener:
        return self._served[name]

    def expirations(self) -> dict[str, float]:
        """When the certificate of each listener expires, in seconds since 1970."""
        return {name: tls.certificate.not_valid_after_utc.timestamp() for name, tls in self._served.items()}

    def check(self, config: BrokerConfig) -> None:
        """Raises ConfigurationError unless those after this change could be served with."""
        self._renewed(config)

    def use(self, config: BrokerConfig) -> None:
        """Serve who connects from now on with what the configuration, and the files that it names, say now."""
        try:
            served = self._renewed(config)
        except ConfigurationError as error:
            logger.error("certificates are not usable, the last ones stay", reason=error)
            return
        for name, tls in served.items():
            if tls.certificate != self._served[name].certificate:
                expires = tls.certificate.not_valid_after_utc.isoformat()
                logger.info("certificate renewed", listener=name, expires=expires)
        self._served = served

    def _renewed(self, config: BrokerConfig) -> Mapping[str, TlsListener]:
        served = _made(config)
        for listener in config.listeners:
            if listener.is_tls:
                settings = parsed(config.settings_of(listener.name))
                old, new = self._served[listener.name], served[listener.name]
                try:
                    check_renewal(old.certificate, new.certificate, settings)
                except ConfigurationError as error:
                    raise told_of(config.properties, listener.name, error) from None
        return served


def _made(config: BrokerConfig) -> dict[str, TlsListener]:
    found = {}
    for listener in config.listeners:
        if listener.is_tls:
            try:
                found[listener.name] = _listener(config, listener)
            except ConfigurationError as error:
                raise told_of(config.properties, listener.name, error) from None
    return found


def _listener(config: BrokerConfig, listener: Listener) -> TlsListener:
    settings = config.settings_of(listener.name)
    if (
        listener.security_protocol == "SASL_SSL"
        and own_name(listener.name, CLIENT_AUTH) not in config.properties
    ):
        # Who logs in by SASL shows a certificate only where the listener itself asks for one (KIP-684).
        settings[CLIENT_AUTH] = "none"
    tls = parsed(settings)
    context = server_context(settings)
    keys = key_store(tls)
    assert keys is not None, "a context without a key is refused"
    if listener.name == config.inter_broker_listener:
        _check_own_trust(settings)
    return TlsListener(
        listener.name,
        context,
        PrincipalMapper(tls.ssl_principal_mapping_rules),
        frozenset(tls.ssl_cipher_suites),
        keys.certificate,
    )


def _check_own_trust(settings: Mapping[str, str]) -> None:
    """Brokers reach each other by it, with the same settings: as Kafka does, one is tried with itself."""
    try:
        check_handshake(server_context(settings), client_context(settings))
    except ssl.SSLError as error:
        raise ConfigurationError(
            "ssl.truststore.location",
            settings.get("ssl.truststore.location", ""),
            f"a store that trusts the broker's own certificate, since brokers connect by this listener ({error.reason})",
        ) from None
