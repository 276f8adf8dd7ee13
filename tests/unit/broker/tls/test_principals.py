"""Rules from names to principals: those of Kafka's documentation, case by case, and what is no rule."""

from __future__ import annotations

import pytest
from tls_kit import authority, der_of, signed

from headrace.broker.config.keys import ConfigurationError
from headrace.broker.tls.principals import NoRuleError, PrincipalMapper

DOCUMENTED = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U,"
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("name", "mapped"),
    [
        ("CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "serviceuser"),
        ("CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "adminuser@admin"),
        ("O=Unknown,cn=kafka1", "KAFKA1"),
        ("OU=JavaSSL,ST=Unknown", "OU=JavaSSL,ST=Unknown"),
    ],
)
def test_the_rules_of_the_documentation(name: str, mapped: str) -> None:
    assert PrincipalMapper(DOCUMENTED).mapped(name) == mapped


@pytest.mark.parametrize(
    ("rules", "name", "mapped"),
    [
        ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
        (" RULE:^CN=(.*?),.*$/$1/ , DEFAULT ", "CN=a,O=b", "a"),
        (r"RULE:^CN=(\w+)$/$1\/x/", "CN=a", "a/x"),
        (r"RULE:^CN=(\w+)$/$12/", "CN=a", "a2"),
        (r"RULE:^CN=(\w+)$/$2/", "CN=a", "$2"),
        (r"RULE:^CN=(?<who>\w+)$/${who}/U", "CN=a", "A"),
        ("RULE:^CN=(a)?b$/x$1/", "CN=b", "x"),
        ("RULE:CN=a/x/", "CN=a", "x"),
    ],
)
def test_replacements(rules: str, name: str, mapped: str) -> None:
    assert PrincipalMapper(rules).mapped(name) == mapped


def test_a_pattern_has_to_match_the_whole_name() -> None:
    with pytest.raises(
        NoRuleError, match=r"no rule of ssl\.principal\.mapping\.rules has a name for CN=a,O=b"
    ):
        PrincipalMapper("RULE:CN=a/x/").mapped("CN=a,O=b")


@pytest.mark.parametrize(
    "rules", ["default", "RULE:", "RULE:a", "RULE:a/b", "RULE:a/b/X", "RULE:a/b/LU", "RULE:(/b/", "DEFAULT,x"]
)
def test_what_is_no_rule(rules: str) -> None:
    with pytest.raises(ConfigurationError, match=r"DEFAULT and RULE:pattern/replacement/\[LU\]"):
        PrincipalMapper(rules)


def test_a_certificate_and_none() -> None:
    certificate = der_of(signed(authority(), "CN=alice,OU=front ends").certificate)
    assert PrincipalMapper("DEFAULT").name_of(certificate) == "CN=alice,OU=front ends"
    assert PrincipalMapper("RULE:^CN=(.*?),.*$/$1/U").name_of(certificate) == "ALICE"
    assert PrincipalMapper("RULE:^CN=(.*?),.*$/$1/U").name_of(None) == "ANONYMOUS"
