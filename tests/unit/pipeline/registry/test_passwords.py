"""Hashed passwords: what the command makes, the file that is read again, and what is no user."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.registry.passwords import HashedPassword, Users, hash_password, read_users

SECRET = "canary-secret: with a colon"


def line_of(name: str, password: str = SECRET) -> str:
    done = CliRunner().invoke(hash_password, [name, "--stdin"], input=f"{password}\n")
    assert done.exit_code == 0, done.output
    assert password not in done.output
    return done.output


def test_a_line_of_the_command_lets_in_who_knows_the_password(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text(f"# users\n{line_of('ada')}\n")
    users = read_users(file)
    assert users.is_known("ada", SECRET)
    assert not users.is_known("ada", SECRET + "x")
    assert not users.is_known("bob", SECRET)
    assert not users.is_known("bob", "")
    assert SECRET not in repr(users) + repr(vars(users))


def test_two_lines_of_one_password_differ() -> None:
    assert line_of("ada") != line_of("ada")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no user"),
        (f"ada:{SECRET}", "line 1 is no user"),
        ("ada:scrypt:3:8:1:c2FsdA==:aGFzaA==", "line 1 is no user"),
        ("ada:scrypt:1073741824:8:1:c2FsdA==:aGFzaA==", "line 1 is no user"),
        ("ada:scrypt:16:8:1:c2FsdA==:", "line 1 is no user"),
        (
            "\nada:scrypt:16:8:1:c2FsdA==:aGFzaA==\nada:scrypt:16:8:1:c2FsdA==:aGFzaA==",
            "line 3 is one user too many",
        ),
    ],
)
def test_what_is_no_file_of_users_is_one_sentence_that_quotes_nothing(
    tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "users"
    file.write_text(text)
    with pytest.raises(ValueError, match=said) as raised:
        read_users(file)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("name", ["a:b", "#a", " "])
def test_a_name_that_a_file_could_not_have_is_wrong_use(name: str) -> None:
    assert CliRunner().invoke(hash_password, [name, "--stdin"], input="x\n").exit_code == 2


def test_nobody_is_let_in_where_there_is_no_user() -> None:
    assert not Users({}).is_known("", "")
    assert HashedPassword.of("", b"salt").is_of("")
