"""`sasl.jaas.config`."""

from __future__ import annotations

import pytest

from headrace.broker.auth.jaas import OAUTHBEARER_MODULE, PLAIN_MODULE, SCRAM_MODULE, JaasError, parse_jaas


def test_a_clients_entry_has_name_and_password() -> None:
    module = parse_jaas(
        f'{SCRAM_MODULE} required username="alice" password="a;l=i\\"ce" tokenauth=true;', "SCRAM-SHA-256"
    )
    assert (module.username, module.password, module.is_token) == ("alice", 'a;l=i"ce', True)
    assert "ce" not in repr(module).replace("ScramLoginModule", "")


def test_a_listeners_entry_of_plain_has_its_users() -> None:
    text = f"""
        {PLAIN_MODULE} required // who may come
            username='admin' /* the broker
            itself */ password='admin-secret'
            user_admin="admin-secret"
            user_alice=";" ;
    """
    module = parse_jaas(text, "PLAIN")
    assert module.users == {"admin": "admin-secret", "alice": ";"}
    assert (module.username, module.is_token) == ("admin", False)


def test_a_module_may_have_no_options() -> None:
    assert not parse_jaas(f"{OAUTHBEARER_MODULE} REQUIRED;", "OAUTHBEARER").options


@pytest.mark.parametrize(
    "name",
    [
        "com.sun.security.auth.module.JndiLoginModule",
        "com.sun.security.auth.module.LdapLoginModule",
        "com.sun.security.auth.module.Krb5LoginModule",
        "org.example.Anything",
        "PlainLoginModule",
    ],
)
def test_modules_other_than_kafkas_are_refused(name: str) -> None:
    """CVE-2023-25194, CVE-2025-27818, CVE-2025-27819: no module is loaded by its name, so none can ask a directory."""
    with pytest.raises(JaasError, match="is not allowed in") as refused:
        parse_jaas(f'{name} required user.provider.url="ldap://evil" password="canary";')
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        PLAIN_MODULE,
        f"{PLAIN_MODULE} required",
        f'{PLAIN_MODULE} needed password="canary";',
        f'{PLAIN_MODULE} required password="canary"',
        f'{PLAIN_MODULE} required password="canary;',
        f'{PLAIN_MODULE} required password "canary";',
        f"{PLAIN_MODULE} required password=;",
        f"{PLAIN_MODULE} required =canary;",
        f"{PLAIN_MODULE} required password==canary;",
        f"{PLAIN_MODULE} required /* canary ;",
        f'{PLAIN_MODULE} required password="canary"; {PLAIN_MODULE} required;',
        f'{PLAIN_MODULE} required password="canary"; }};',
    ],
)
def test_what_is_no_entry_is_refused_without_its_secret(text: str) -> None:
    with pytest.raises(JaasError) as refused:
        parse_jaas(text)
    assert "canary" not in str(refused.value)


def test_a_mechanism_has_its_own_module() -> None:
    with pytest.raises(JaasError, match="login module of PLAIN"):
        parse_jaas(f"{SCRAM_MODULE} required;", "PLAIN")
    with pytest.raises(JaasError, match="unknown"):
        parse_jaas(f"{SCRAM_MODULE} required;", "GSSAPI")
