"""Values that stand in other files."""

from __future__ import annotations

import pytest

from headrace.broker.config.keys import ConfigurationError
from headrace.broker.config.providers import FILE_PROVIDER, resolved

SWITCHED_ON = {"config.providers": "file", "config.providers.file.class": FILE_PROVIDER}
FILES = {
    "/secrets/a.secret": "jaas=Plain \\\n  required;\nempty=\n",
    "/secrets/b.secret": "x=${file:/secrets/a.secret:jaas}\n",
}


def read(path: str) -> str:
    if path not in FILES:
        raise FileNotFoundError(2, "No such file or directory")
    return FILES[path]


def test_a_value_comes_from_its_file() -> None:
    given = SWITCHED_ON | {"sasl.jaas.config": "${file:/secrets/a.secret:jaas}", "broker.id": "1"}
    assert resolved(given, read) == {"sasl.jaas.config": "Plain required;", "broker.id": "1"}


def test_a_value_may_be_part_of_another() -> None:
    given = SWITCHED_ON | {"k": "<${file:/secrets/a.secret:empty}|${file:/secrets/a.secret:jaas}>"}
    assert resolved(given, read) == {"k": "<|Plain required;>"}


def test_what_a_file_says_is_not_looked_at_again() -> None:
    assert resolved(SWITCHED_ON | {"k": "${file:/secrets/b.secret:x}"}, read) == {
        "k": "${file:/secrets/a.secret:jaas}"
    }


@pytest.mark.parametrize("text", ["${file:/secrets/a.secret:jaas}", "${env::HOME}", "${x}", "$"])
def test_without_its_provider_a_variable_is_a_text(text: str) -> None:
    assert resolved({"k": text}, read) == {"k": text}


@pytest.mark.parametrize(
    ("variable", "reason"),
    [
        ("${file:/secrets/none:jaas}", "a file that can be read (No such file or directory)"),
        ("${file:/secrets/a.secret:jas}", "a key that /secrets/a.secret has"),
    ],
)
def test_what_is_missing_is_told_without_what_is_there(variable: str, reason: str) -> None:
    with pytest.raises(ConfigurationError) as told:
        resolved(SWITCHED_ON | {"k": variable}, read)
    assert str(told.value) == f"k={variable} is not allowed: give {reason}."


@pytest.mark.parametrize("path", ["/etc/shadow", "/secrets/../etc/shadow", "/secretsb/a"])
def test_only_allowed_files_are_read(path: str) -> None:
    given = SWITCHED_ON | {"config.providers.file.param.allowed.paths": "/secrets, /more"}
    with pytest.raises(ConfigurationError, match=r"a file below /secrets, /more"):
        resolved(given | {"k": f"${{file:{path}:x}}"}, lambda path: pytest.fail(f"{path} was read"))


def test_an_allowed_file_is_read() -> None:
    given = SWITCHED_ON | {"config.providers.file.param.allowed.paths": "/secrets"}
    assert resolved(given | {"k": "${file:/secrets/a.secret:jaas}"}, read)["k"] == "Plain required;"


@pytest.mark.parametrize("given", ["", "com.example.EnvironmentProvider"])
def test_other_providers_are_refused(given: str) -> None:
    with pytest.raises(ConfigurationError, match="FileConfigProvider"):
        resolved({"config.providers": "file", "config.providers.file.class": given}, read)
