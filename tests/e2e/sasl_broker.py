"""A broker whose clients log in, in plain text and over TLS, by every mechanism; its users, and an issuer of bearer tokens."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from joserfc import jwt
from joserfc.jwk import RSAKey
from processes import BrokerProcess, free_port
from tls_kit import Identity, authority, pem_settings, signed

from headrace.broker.auth.jaas import OAUTHBEARER_MODULE, PLAIN_MODULE, SCRAM_MODULE

NAMES = ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL")
SASL_NAMES = NAMES[1:]
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
USER, PASSWORD = "alice", "alice-canary"
TOKEN_SECRET = "token-canary"


class Issuer:
    """Signs tokens, and leaves its public key in a file."""

    def __init__(self, home: Path) -> None:
        self.key = RSAKey.generate_key(2048, {"kid": "one"})
        self.file = home / "jwks.json"
        self.file.write_text(json.dumps({"keys": [self.key.as_dict(private=False)]}))

    def token(self, subject: str = USER, life_s: int = 3600, **claims: Any) -> str:
        now_s = int(time.time())
        said = {"sub": subject, "aud": "kafka", "iat": now_s, "exp": now_s + life_s, **claims}
        return jwt.encode({"alg": "RS256", "kid": "one"}, said, self.key)


class SaslBroker:
    """One of them below `home`."""

    def __init__(
        self,
        home: Path,
        zookeeper: str,
        set: Mapping[str, str] | None = None,
        *,
        broker_id: int = 1,
        signer: Identity | None = None,
    ) -> None:
        home.mkdir(exist_ok=True)
        self.home = home
        self.issuer = Issuer(home)
        self.ports = {name: free_port() for name in NAMES}
        ours = signer or authority()
        stores = pem_settings(home / "certificates", signed(ours, "broker"), [ours.certificate])
        self.authority_file = home / "certificates" / "trust.pem"
        self.metrics_address = f"127.0.0.1:{free_port()}"
        self.process = BrokerProcess(
            home / "broker",
            broker_id=broker_id,
            zookeeper=zookeeper,
            set={**self.properties(), **stores, **(set or {})},
            # No fork: tests look at its command line.
            inside=["env"],
        )

    def properties(self) -> dict[str, str]:
        found = {
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{name}" for name in NAMES),
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "sasl.oauthbearer.jwks.endpoint.url": f"file://{self.issuer.file}",
            "sasl.oauthbearer.expected.audience": "kafka",
            "delegation.token.secret.key": TOKEN_SECRET,
            "headrace.metrics.listener": self.metrics_address,
        }
        modules = {
            "PLAIN": f'{PLAIN_MODULE} required user_{USER}="{PASSWORD}";',
            "SCRAM-SHA-256": f"{SCRAM_MODULE} required;",
            "SCRAM-SHA-512": f"{SCRAM_MODULE} required;",
            "OAUTHBEARER": f"{OAUTHBEARER_MODULE} required;",
        }
        for name in SASL_NAMES:
            for mechanism, module in modules.items():
                found[f"listener.name.{name.lower()}.{mechanism.lower()}.sasl.jaas.config"] = module
        return found

    def address(self, listener: str) -> tuple[str, int]:
        return "127.0.0.1", self.ports[listener]

    def bootstrap(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    @property
    def log(self) -> str:
        return self.process.log.read_text()

    def librdkafka(
        self, listener: str, mechanism: str = "", *, user: str = USER, password: str = PASSWORD, **more: Any
    ) -> dict[str, Any]:
        """The settings of librdkafka's clients at a listener; those of OAUTHBEARER have a token each time they ask."""
        settings = {"bootstrap.servers": self.bootstrap(listener), **more}
        if listener == "SASL_SSL":
            settings["ssl.ca.location"] = str(self.authority_file)
        if listener == "PLAINTEXT":
            return settings
        settings |= {"security.protocol": listener.lower(), "sasl.mechanism": mechanism}
        if mechanism == "OAUTHBEARER":
            return settings | {"oauth_cb": lambda _: (self.issuer.token(user), time.time() + 3600)}
        return settings | {"sasl.username": user, "sasl.password": password}
