"""What an inventory's `headrace_security` makes of ZooKeepers and of the brokers that ask them."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.broker.zk.access import ZooKeeperAccess
from headrace_inventory.zookeeper_security import (
    broker_properties,
    client_jaas,
    peer_properties,
    server_jaas,
    server_properties,
)

LOGINS = [
    {"username": "kit-2", "password": "second password;"},
    {"username": "kit-1", "password": "first password $"},
]
FOLDER = "/etc/headrace/headrace-zookeeper-1"
BESIDE, WHOLE = ["plaintext", "tls_sasl"], ["tls_sasl"]


def server(opened: list[str]) -> dict[str, str]:
    return server_properties(opened, LOGINS, "10.1.1.11", 2181, 2182, FOLDER)


def test_without_security_a_server_has_its_one_port() -> None:
    assert server(["plaintext"]) == {"clientPort": "2181", "clientPortAddress": "10.1.1.11"}
    assert server_jaas(["plaintext"], LOGINS) == client_jaas("plaintext", LOGINS) == ""
    assert broker_properties(["plaintext"], "plaintext", FOLDER) == {}


def test_both_ports_are_open_to_everybody_while_brokers_change_over() -> None:
    found = server(BESIDE)
    assert (found["clientPort"], found["secureClientPort"]) == ("2181", "2182")
    assert "enforce.auth.enabled" not in found
    assert broker_properties(BESIDE, "plaintext", FOLDER) == {}
    moved = broker_properties(BESIDE, "tls_sasl", FOLDER)
    assert moved["zookeeper.ssl.client.enable"] == "true"
    assert "zookeeper.set.acl" not in moved


def test_in_the_end_only_log_ins_are_let_in_and_own_what_they_write() -> None:
    found = server(WHOLE)
    assert "clientPort" not in found
    assert (found["enforce.auth.enabled"], found["enforce.auth.schemes"]) == ("true", "sasl")
    assert (found["superUser.1"], found["superUser.2"]) == ("kit-2", "kit-1")
    assert broker_properties(WHOLE, "tls_sasl", FOLDER)["zookeeper.set.acl"] == "true"
    assert "password" not in str(found) + str(broker_properties(WHOLE, "tls_sasl", FOLDER))


def test_tls_alone_asks_nobody_who_he_is() -> None:
    found = server(["tls"])
    assert found["secureClientPort"] == "2182"
    assert not any("auth" in key for key in found if key != "ssl.clientAuth")
    assert server_jaas(["tls"], LOGINS) == client_jaas("tls", LOGINS) == ""
    assert set(broker_properties(["tls"], "tls", FOLDER)) == {
        "zookeeper.ssl.client.enable",
        "zookeeper.clientCnxnSocket",
        "zookeeper.ssl.truststore.type",
        "zookeeper.ssl.truststore.location",
    }


@pytest.mark.parametrize("logins", [LOGINS, LOGINS[::-1]])
def test_a_broker_logs_in_as_the_first_of_those_that_are_let_in(
    logins: list[dict[str, str]], tmp_path: Path
) -> None:
    file = tmp_path / "zookeeper.secret"
    file.write_text(client_jaas("tls_sasl", logins))
    access = ZooKeeperAccess.of({"headrace.zookeeper.jaas.file": str(file)}, {})
    assert (access.user, access.password) == (logins[0]["username"], logins[0]["password"])
    for each in logins:
        assert f'user_{each["username"]}="{each["password"]}"' in server_jaas(WHOLE, logins)


def test_an_ensemble_s_servers_go_over_to_tls_one_by_one() -> None:
    assert peer_properties(["plaintext"], "plaintext", FOLDER) == {}
    stages = [(["plaintext", "tls"], "plaintext"), (["plaintext", "tls"], "tls"), (["tls"], "tls")]
    found = [peer_properties(*stage, FOLDER) for stage in stages]
    ways = [(each["sslQuorum"], each["portUnification"]) for each in found]
    assert ways == [("false", "true"), ("true", "true"), ("true", "false")]
    assert found[0]["ssl.quorum.keyStore.location"] == server(WHOLE)["ssl.keyStore.location"]
    assert found[0]["ssl.quorum.trustStore.location"] == server(WHOLE)["ssl.trustStore.location"]
