"""JKS, down to its bytes: no cut or changed store does harm."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tls_kit import PASSWORD, authority, der_of, jks_store, signed

from headrace.broker.tls import jks

CA = authority()
BROKER = signed(CA)
STORE = jks_store(BROKER, [CA.certificate])


def test_entries_and_a_key() -> None:
    key, trusted = jks.entries(STORE, PASSWORD)
    assert (key.alias, trusted.alias) == ("broker", "ca0")
    assert key.chain == tuple(der_of(each) for each in BROKER.chain)
    assert trusted.chain == (der_of(CA.certificate),)
    assert trusted.protected_key is None
    assert key.protected_key is not None
    assert jks.private_key(key.protected_key, PASSWORD) == BROKER.key_der()
    assert "protected_key" not in repr(key)


@given(st.integers(0, len(STORE) - 1), st.integers(1, 255))
@settings(max_examples=50, deadline=None)
def test_a_changed_byte_is_noticed(index: int, change: int) -> None:
    changed = bytearray(STORE)
    changed[index] ^= change
    with pytest.raises(jks.JksError):
        jks.entries(bytes(changed), PASSWORD)


@given(st.integers(0, len(STORE)), st.binary(max_size=40))
@settings(max_examples=50, deadline=None)
def test_without_a_password_garbage_is_read_or_refused(size: int, tail: bytes) -> None:
    with contextlib.suppress(jks.JksError):
        jks.entries(STORE[:size] + tail, None)


@pytest.mark.parametrize(
    "protected", [b"", b"\x30\x00", bytes.fromhex("300e060a2b060104012a021101010500") + b"\x04"]
)
def test_a_key_with_another_protection(protected: bytes) -> None:
    with pytest.raises(jks.JksError):
        jks.private_key(protected, PASSWORD)
