"""The command that starts a ZooKeeper."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.broker import zookeeper_server


def test_options_of_the_environment_come_after_ours_and_before_the_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jars, config = [Path("a.jar"), Path("b.jar")], Path("zoo.cfg")
    monkeypatch.delenv("SERVER_JVMFLAGS", raising=False)
    java, *plain = zookeeper_server.command(jars, config)
    assert plain == [
        *zookeeper_server.JVM_OPTIONS,
        "-cp",
        "a.jar:b.jar",
        zookeeper_server.MAIN_CLASS,
        "zoo.cfg",
    ]
    monkeypatch.setenv("SERVER_JVMFLAGS", "-Xmx64m '-Da=b c'")
    command = zookeeper_server.command(jars, config)
    options = [*zookeeper_server.JVM_OPTIONS, "-Xmx64m", "-Da=b c"]
    assert command == [java, *options, *plain[len(zookeeper_server.JVM_OPTIONS) :]]
