"""What `headrace acls` refuses before it asks a broker."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from headrace.cli.acls import acls


@pytest.mark.parametrize("command", ["add", "remove"])
@pytest.mark.parametrize(("who", "word"), [("allow", "deny"), ("deny", "allow")])
def test_a_host_without_whose_it_is_is_refused(command: str, who: str, word: str) -> None:
    arguments = [f"--{who}-principal", "User:al", f"--{word}-host", "10.0.0.1", "--topic", "t"]
    done = CliRunner().invoke(acls, [command, *arguments, "--bootstrap", "127.0.0.1:1"])
    assert (done.exit_code, f"--{word}-host: name its --{word}-principal, too" in done.output) == (2, True)
