"""What `headrace_security` makes of ZooKeepers and of the brokers that ask them: properties, and files of log-ins.

Both ways of TLS share a port. With `tls_sasl` a broker logs in there by a digest, as the first of `headrace_logins_secret`; once
the way of before is closed, nobody else is let in, and its znodes belong to all of these log-ins. ZooKeepers of an ensemble speak
TLS among each other: each shows its certificate, and looks at that of whom it connects to.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace_inventory.security import PLAINTEXT, TLS, TLS_SASL, Login

DIGEST_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"


def server_properties(
    opened: list[str], logins: Iterable[Login], address: str, plain_port: int, tls_port: int, folder: str
) -> dict[str, str]:
    """What zoo.cfg says of its clients; `folder` is where the server's files are."""
    properties: dict[str, str] = {}
    if PLAINTEXT in opened:
        properties |= {"clientPort": str(plain_port), "clientPortAddress": address}
    if opened == [PLAINTEXT]:
        return properties
    properties |= {
        "secureClientPort": str(tls_port),
        "secureClientPortAddress": address,
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.type": "PEM",
        "ssl.keyStore.location": f"{folder}/keystore.secret",
        "ssl.trustStore.type": "PEM",
        "ssl.trustStore.location": f"{folder}/ca.pem",
        # Who asks is known by its log-in.
        "ssl.clientAuth": "none",
    }
    if TLS_SASL in opened:
        properties["authProvider.sasl"] = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
        # Each may write what another one has made, so that a password can be changed.
        properties |= {f"superUser.{n}": str(each["username"]) for n, each in enumerate(logins, 1)}
    if opened == [TLS_SASL]:
        properties |= {"enforce.auth.enabled": "true", "enforce.auth.schemes": "sasl"}
    return properties


def peer_properties(opened: list[str], spoken: str, folder: str) -> dict[str, str]:
    """What zoo.cfg says of the other servers: in which ways they may come, and in which of them this one goes to them."""
    if opened == [PLAINTEXT]:
        return {}
    return {
        "sslQuorum": str(spoken == TLS).lower(),
        "portUnification": str(PLAINTEXT in opened).lower(),
        "ssl.quorum.keyStore.type": "PEM",
        "ssl.quorum.keyStore.location": f"{folder}/keystore.secret",
        "ssl.quorum.trustStore.type": "PEM",
        "ssl.quorum.trustStore.location": f"{folder}/ca.pem",
        # With it no certificate is compared with whom it is for.
        "fips-mode": "false",
        # Who comes in may come from another of his host's addresses.
        "ssl.quorum.clientHostnameVerification": "false",
    }


def server_jaas(opened: Iterable[str], logins: Iterable[Login]) -> str:
    """The file of those who are let in; empty where nobody logs in."""
    if TLS_SASL not in opened:
        return ""
    accounts = "".join(f'\n  user_{each["username"]}="{each["password"]}"' for each in logins)
    return f"Server {{\n  {DIGEST_MODULE} required{accounts};\n}};\n"


def client_jaas(spoken: str, logins: Iterable[Login]) -> str:
    """The file by which a broker logs in as the first of these; empty where it does not."""
    first = next(iter(logins), None)
    if spoken != TLS_SASL or first is None:
        return ""
    login = f'username="{first["username"]}"\n  password="{first["password"]}"'
    return f"Client {{\n  {DIGEST_MODULE} required\n  {login};\n}};\n"


def broker_properties(opened: list[str], spoken: str, folder: str) -> dict[str, str]:
    """What server.properties says of how ZooKeeper is asked, beside where; `folder` is where the broker's files are."""
    if spoken == PLAINTEXT:
        return {}
    properties = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper.ssl.truststore.type": "PEM",
        "zookeeper.ssl.truststore.location": f"{folder}/ca.pem",
    }
    if spoken == TLS_SASL:
        properties["headrace.zookeeper.jaas.file"] = f"{folder}/zookeeper.secret"
    if opened == [TLS_SASL]:
        # Not before all brokers log in: the others could not write what one of these has made.
        properties["zookeeper.set.acl"] = "true"
    return properties
