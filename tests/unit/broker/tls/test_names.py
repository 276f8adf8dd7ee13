"""Names as Java writes them; the expected texts are those of X500Principal.getName() of OpenJDK 17."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from headrace.broker.tls.names import rfc2253


def name(*attributes: tuple[x509.ObjectIdentifier, str]) -> bytes:
    return x509.Name([x509.NameAttribute(*each) for each in attributes]).public_bytes()


@pytest.mark.parametrize(
    ("der", "expected"),
    [
        (
            name(
                (NameOID.COUNTRY_NAME, "DE"),
                (NameOID.ORGANIZATION_NAME, 'A, B + "C" <d>;e\\f=g#h'),
                (NameOID.COMMON_NAME, " x y "),
            ),
            r"CN=\ x y\ ,O=A\, B \+ \"C\" \<d\>\;e\\f\=g\#h,C=DE",
        ),
        (
            name(
                (NameOID.DOMAIN_COMPONENT, "org"),
                (NameOID.USER_ID, "me"),
                (NameOID.EMAIL_ADDRESS, "a@b.c"),
                (NameOID.SERIAL_NUMBER, "12"),
                (NameOID.STREET_ADDRESS, "st"),
                (NameOID.STATE_OR_PROVINCE_NAME, "Bayern"),
                (NameOID.LOCALITY_NAME, "München"),
                (NameOID.TITLE, "x"),
                (NameOID.COMMON_NAME, "#lead"),
            ),
            "CN=\\#lead,2.5.4.12=#0c0178,L=München,ST=Bayern,STREET=st,2.5.4.5=#13023132,"
            "1.2.840.113549.1.9.1=#16056140622e63,UID=me,DC=org",
        ),
        (
            x509.Name(
                [
                    x509.RelativeDistinguishedName(
                        [
                            x509.NameAttribute(NameOID.COMMON_NAME, "a"),
                            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "b"),
                        ]
                    )
                ]
            ).public_bytes(),
            "CN=a+OU=b",
        ),
        (name((NameOID.COMMON_NAME, "   ")), r"CN=\ \ \ "),
        (name((NameOID.COMMON_NAME, "日本 𝒳")), "CN=日本 𝒳"),
        (
            name((NameOID.COMMON_NAME, "x" * 60), (NameOID.ORGANIZATION_NAME, "ö" * 60)),
            "O=" + "ö" * 60 + ",CN=" + "x" * 60,
        ),
        (name(), ""),
    ],
)
def test_names(der: bytes, expected: str) -> None:
    assert rfc2253(der) == expected
