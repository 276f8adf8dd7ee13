"""What an inventory's `headrace_security` makes of brokers and of those who ask them."""

from __future__ import annotations

from pathlib import Path

import pytest
from inventory_kit import good_inventory

from headrace.broker.config.properties import parse_properties
from headrace.broker.config.providers import resolved
from headrace.events.registry_address import RegistryAddress
from headrace.registry.passwords import read_users
from headrace_inventory.properties import properties_text
from headrace_inventory.security import (
    broker_properties,
    broker_secrets,
    client_arguments,
    client_properties,
    logins,
    mirror_client,
    registry_users,
)

LOGINS = [
    {"username": "kit-2", "password": "second password;"},
    {"username": "kit-1", "password": "first password $"},
]
FOLDER = "/etc/headrace/headrace-broker-1"
PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


def test_without_security_a_broker_has_its_one_listener() -> None:
    listener = "PLAINTEXT://10.1.1.1:9092"
    assert broker_properties(["plaintext"], "plaintext", "10.1.1.1", [9092], FOLDER) == {
        "listeners": listener,
        "advertised.listeners": listener,
    }
    assert broker_secrets(["plaintext"], []) == {}
    assert mirror_client("plaintext", FOLDER) == {}


def test_both_ways_are_open_while_one_changes() -> None:
    found = broker_properties(["plaintext", "tls"], "plaintext", "10.1.1.1", [9092, 9093], FOLDER)
    assert found["listeners"] == "PLAINTEXT://10.1.1.1:9092,SSL://10.1.1.1:9093"
    assert found["security.inter.broker.protocol"] == "PLAINTEXT"
    assert found["ssl.keystore.location"] == f"{FOLDER}/keystore.secret"
    assert "authorizer.class.name" not in found


def test_who_comes_in_by_the_way_of_before_is_not_kept_out_before_it_is_closed() -> None:
    opened = broker_properties(["plaintext", "tls_sasl"], "tls_sasl", "10.1.1.1", [9092, 9094], FOLDER)
    closed = broker_properties(["tls_sasl"], "tls_sasl", "10.1.1.1", [9094], FOLDER)
    assert opened["super.users"].endswith(";User:ANONYMOUS")
    assert opened["allow.everyone.if.no.acl.found"] == "true"
    assert "ANONYMOUS" not in closed["super.users"]
    assert closed["allow.everyone.if.no.acl.found"] == "false"


def test_passwords_come_from_a_file_of_their_own() -> None:
    properties = broker_properties(["tls_sasl"], "tls_sasl", "10.1.1.1", [9094], FOLDER)
    assert "password" not in str(properties)
    text = properties_text(broker_secrets(["tls_sasl"], LOGINS))
    found = resolved(parse_properties(properties_text(properties)), lambda path: text)
    jaas = found["listener.name.sasl_ssl.plain.sasl.jaas.config"]
    assert jaas == (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="kit-2" password="second password;"'
        ' user_kit-2="second password;" user_kit-1="first password $";'
    )
    assert found["super.users"] == "User:kit-2;User:kit-1"
    source = resolved(
        {**mirror_client("tls_sasl", FOLDER), **{k: v for k, v in properties.items() if "providers" in k}},
        lambda path: text,
    )
    assert source["sasl.jaas.config"].endswith('required username="kit-2" password="second password;";')


def test_a_client_finds_all_of_it_in_one_file() -> None:
    found = parse_properties(properties_text(client_properties("tls_sasl", PEM, LOGINS)))
    assert found["security.protocol"] == "SASL_SSL"
    assert found["ssl.truststore.certificates"] == PEM.strip()
    assert 'username="kit-2"' in found["sasl.jaas.config"]
    assert "sasl.jaas.config" not in client_properties("tls", PEM, LOGINS)
    registry = RegistryAddress.of("https://10.1.1.12:8082", found)
    assert registry.credentials == "kit-2:second password;"
    assert "schema.registry.basic.auth.user.info" not in client_properties("tls", PEM, LOGINS)
    assert not any("registry" in key for key in client_properties("plaintext", PEM, LOGINS))
    with_sources = client_properties("tls", PEM, LOGINS, ["dc-east"])
    assert with_sources["mirror.dc-east.security.protocol"] == "SSL"
    assert with_sources["mirror.dc-east.ssl.truststore.certificates"] == PEM.strip()


def test_a_registry_lets_in_the_log_ins_once_nobody_asks_without_one(tmp_path: Path) -> None:
    file = tmp_path / "users.secret"
    file.write_text(registry_users(["plaintext", "tls_sasl"], LOGINS))
    users = read_users(file)
    assert all(users.is_known(each["username"], each["password"]) for each in LOGINS)
    assert not users.is_known("kit-1", "second password;")
    assert "password" not in file.read_text()
    assert file.read_text() == registry_users(["tls_sasl"], LOGINS[::-1]), "it does not change by itself"
    for opened in (["plaintext"], ["tls"], ["tls", "tls_sasl"]):
        assert registry_users(opened, LOGINS) == ""


def test_a_command_asks_as_the_service_of_its_host_does() -> None:
    _, hostvars = good_inventory()
    variables = hostvars["east-broker-1"]
    assert client_arguments(variables, "broker") == []
    secured = {**variables, "headrace_security_spoken": "tls"}
    assert client_arguments(secured, "broker") == ["--command-config", f"{FOLDER}/client.secret"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([], "there is no headrace_logins_secret"),
        ([{"username": "a b", "password": "long enough password"}], "Username 1 of headrace_logins_secret"),
        ([*LOGINS, {"username": "x", "password": "canary"}], "Password 3 of headrace_logins_secret"),
        ([{"username": "x", "password": 'canary"canary'}], "Password 1 of headrace_logins_secret"),
    ],
)
def test_log_ins_that_nobody_could_use_are_told_without_a_word_of_them(
    given: list[dict[str, str]], sentence: str
) -> None:
    groups, hostvars = good_inventory()
    for host in groups["broker"]:
        hostvars[host] |= {"headrace_security_open": ["tls_sasl"], "headrace_logins_secret": given}
    (problem,) = logins(groups, hostvars)
    assert sentence in problem
    assert "canary" not in problem


def test_good_log_ins_are_no_problem_and_none_are_needed_without() -> None:
    groups, hostvars = good_inventory()
    assert logins(groups, hostvars) == []
    for host in groups["broker"]:
        hostvars[host] |= {"headrace_security_open": ["tls_sasl"], "headrace_logins_secret": LOGINS}
    assert logins(groups, hostvars) == []
