"""A renewed certificate keeps its name and alternative names, unless the settings let it change."""

from __future__ import annotations

import pytest
from tls_kit import authority, signed

from headrace.broker.config.keys import ConfigurationError
from headrace.broker.tls.contexts import parsed
from headrace.broker.tls.renewal import check_renewal

CA = authority()
OLD = signed(CA, "broker", ("a", "127.0.0.1")).certificate


def test_the_same_names_and_more() -> None:
    check_renewal(OLD, signed(CA, "broker", ("127.0.0.1", "a", "b")).certificate, parsed({}))


@pytest.mark.parametrize(
    ("name", "hosts", "key", "said"),
    [
        (
            "other",
            ("a", "127.0.0.1"),
            "ssl.allow.dn.changes",
            "a certificate for CN=broker, not for CN=other",
        ),
        ("broker", ("a",), "ssl.allow.san.changes", r"a certificate for 127\.0\.0\.1, too"),
        ("broker", (), "ssl.allow.san.changes", r"a certificate for 127\.0\.0\.1, a, too"),
    ],
)
def test_other_names(name: str, hosts: tuple[str, ...], key: str, said: str) -> None:
    new = signed(CA, name, hosts).certificate
    with pytest.raises(ConfigurationError, match=said):
        check_renewal(OLD, new, parsed({"ssl.keystore.location": "x"}))
    check_renewal(OLD, new, parsed({key: "true"}))
