"""Every suite that OpenSSL has of TLS 1.2 is known by Java's name."""

from __future__ import annotations

import pytest

from headrace.broker.tls.ciphers import openssl_name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", "ECDHE-RSA-AES128-SHA"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "ECDHE-ECDSA-AES128-SHA256"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("TLS_ECDH_anon_WITH_AES_128_CBC_SHA", None),
        ("SSL_RSA_WITH_RC4_128_MD5", None),
        ("ECDHE-RSA-AES256-GCM-SHA384", None),
        ("", None),
    ],
)
def test_names(name: str, expected: str | None) -> None:
    assert openssl_name(name) == expected
