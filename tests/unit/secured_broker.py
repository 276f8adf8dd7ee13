"""What a scripted broker needs to let clients in by TLS and SASL, and the settings of a client that it lets in."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tls_kit
from scripted_broker import API_VERSIONS, Answer, Script, versions

from headrace.broker.auth.sasl.credentials import credential_for
from headrace.broker.auth.sasl.exchange import Authenticated, RefusedError, ServerExchange
from headrace.broker.auth.sasl.plain import PlainServer
from headrace.broker.auth.sasl.scram import Known, ScramServer
from headrace.broker.client.security import ClientSecurity

HANDSHAKE, AUTHENTICATE = 17, 36
NAME, PASSWORD = "alice", "canary-secret-of-alice"
SCRAM = "SCRAM-SHA-256"
MODULES = {"PLAIN": "plain.PlainLoginModule", SCRAM: "scram.ScramLoginModule"}
REFUSED = {"error_code": 58, "error_message": "no", "auth_bytes": b"", "session_lifetime_ms": 0}


def jaas(mechanism: str, password: str = PASSWORD, name: str = NAME) -> str:
    module = f"org.apache.kafka.common.security.{MODULES[mechanism]}"
    return f'{module} required username="{name}" password="{password}";'


def sasl_settings(
    mechanism: str, protocol: str = "SASL_PLAINTEXT", password: str = PASSWORD
) -> dict[str, str]:
    return {
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas(mechanism, password),
    }


def sasl(mechanism: str, password: str = PASSWORD) -> ClientSecurity:
    return ClientSecurity.of(sasl_settings(mechanism, password=password))


@dataclass
class Gate:
    """A script that lets nobody ask `inner` anything before a log-in; `mechanisms` are those asked for, `refused` requests."""

    inner: Script
    served: dict[int, tuple[int, int]]
    lifetime_ms: int = 0
    mechanisms: list[str] = field(default_factory=list)
    early: list[int] = field(default_factory=list)
    _machine: ServerExchange | None = None
    _is_in: bool = False

    def __call__(self, key: int, message: dict[str, Any]) -> Answer:
        if key == API_VERSIONS:
            self._is_in = False
            return versions({HANDSHAKE: (0, 1), AUTHENTICATE: (0, 2), **self.served})
        if key == HANDSHAKE:
            self.mechanisms.append(message["mechanism"])
            self._machine = _machine(message["mechanism"])
            code = 0 if self._machine else 33
            return {"error_code": code, "mechanisms": [*MODULES]}
        if key == AUTHENTICATE:
            return self._authenticate(bytes(message["auth_bytes"]))
        if not self._is_in:
            self.early.append(key)
            return b""
        return self.inner(key, message)

    def _authenticate(self, data: bytes) -> Answer:
        assert self._machine is not None
        try:
            step = self._machine.step(data, 0)
        except RefusedError:
            return REFUSED
        self._is_in = step.found is not None
        return {"error_code": 0, "auth_bytes": step.answer, "session_lifetime_ms": self.lifetime_ms}


def _machine(mechanism: str) -> ServerExchange | None:
    if mechanism == "PLAIN":
        return PlainServer({NAME: PASSWORD})
    if mechanism == SCRAM:
        credential = credential_for(SCRAM, PASSWORD, b"salt", 4096)
        known = {NAME: Known(credential, Authenticated(NAME))}
        return ScramServer(SCRAM, lambda name, is_token: known.get(name), "nonce-of-the-server")
    return None


def tls_client_settings(folder: Path, authority: tls_kit.Identity) -> dict[str, str]:
    """Trusts an authority, and shows nothing."""
    trust = folder / "trusted.pem"
    trust.write_text(tls_kit.pem_of(authority.certificate))
    return {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trust),
    }
