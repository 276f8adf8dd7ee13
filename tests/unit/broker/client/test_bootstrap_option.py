"""`--bootstrap` with `--command-config`: one `Bootstrap`, or one sentence."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from secured_broker import PASSWORD, jaas

from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.client.bootstrap_option import bootstrap_option, given_properties

SEEN: list[Bootstrap | None] = []


@click.command()
@bootstrap_option("Brokers.")
@bootstrap_option("Others.", option="--live", config_option="--live-command-config", required=False)
def command(bootstrap: Bootstrap, live: Bootstrap | None) -> None:
    SEEN[:] = [bootstrap, live]
    click.echo(len(given_properties(click.get_current_context())))


def run(*arguments: str) -> str:
    found = CliRunner().invoke(command, arguments)
    assert PASSWORD not in found.output
    return found.output


def test_each_file_is_of_its_own_option_whatever_their_order(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={jaas('PLAIN')}\nclient.id=x\n"
    )
    assert run("--live", "b:2", "--bootstrap", "a:1", "--command-config", str(file)) == "4\n"
    bootstrap, live = SEEN
    assert bootstrap is not None
    assert (bootstrap.servers, bootstrap.security.mechanism) == ("a:1", "PLAIN")
    assert live == Bootstrap("b:2")
    assert run("--bootstrap", "a:1") == "0\n"
    assert [Bootstrap("a:1"), None] == SEEN


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("security.protocol=SASL_SSL\n", "sasl.mechanism= is not allowed"),
        (f"ssl.keystore.pasword={PASSWORD}\n", "give ssl.keystore.password in its place"),
        ("security.protocol=SSL\nssl.truststore.location=/nowhere\n", "ssl.truststore.location=/nowhere"),
        (f"x=\\u{PASSWORD}\n", "it is no properties file in UTF-8"),
    ],
)
def test_what_is_wrong_is_one_sentence_without_a_secret(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text)
    output = run("--bootstrap", "a:1", "--command-config", str(file))
    assert output.splitlines()[-1].startswith("Error: Invalid value for '--command-config': ")
    assert said in output.splitlines()[-1]


def test_a_file_that_is_not_there_and_addresses_that_are_none_are_wrong_use() -> None:
    assert "No such file" in run("--bootstrap", "a:1", "--command-config", "/nowhere")
    assert "name brokers as HOST:PORT" in run("--bootstrap", "nowhere")
