"""The keys of zoo.cfg that preflight lets through are those that ZooKeeper's own classes name, and all that roles write."""

from __future__ import annotations

import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from headrace_inventory.zookeeper_properties import OF_THE_FILE, OF_THE_SERVER, OF_TLS, is_known
from headrace_inventory.zookeeper_security import server_properties


@pytest.fixture(scope="module")
def named() -> bytes:
    """All classes of the ZooKeeper that PySpark comes with, one after the other: constants are in them as they are written."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    (jar,) = Path(spec.origin).parent.glob("jars/zookeeper-3*.jar")
    with zipfile.ZipFile(jar) as classes:
        return b"\0".join(classes.read(name) for name in classes.namelist() if name.endswith(".class"))


def constant(text: str) -> bytes:
    """As a class file has it: a tag, the length and the text."""
    return b"\1" + len(text).to_bytes(2, "big") + text.encode()


def test_zookeepers_classes_have_every_key_that_is_known(named: bytes) -> None:
    wanted = [*OF_THE_FILE, *(f"zookeeper.{key}" for key in OF_THE_SERVER), *OF_TLS]
    assert [text for text in wanted if constant(text) not in named] == []


def test_what_the_role_writes_is_known() -> None:
    logins = [{"username": "kit-1", "password": "a password of kit-1"}]
    for opened in (["plaintext"], ["plaintext", "tls_sasl"], ["tls_sasl"]):
        assert all(map(is_known, server_properties(opened, logins, "10.0.0.1", 2181, 2182, "/etc/headrace")))


def test_a_key_with_javas_prefix_is_none_of_the_files() -> None:
    assert is_known("snapCount")
    assert not is_known("zookeeper.snapCount")
