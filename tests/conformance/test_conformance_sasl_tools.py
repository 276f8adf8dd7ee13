"""Apache Kafka's own tools, which are Java clients, log in to headrace by every mechanism, and manage users and tokens there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from kafka_oracle import run_tool
from processes import eventually
from sasl_broker import MECHANISMS, PASSWORD, USER, SaslBroker
from zookeeper_process import ZooKeeperProcess

from headrace.broker.auth.jaas import MODULES

CONFIGS, TOKENS = "kafka.admin.ConfigCommand", "org.apache.kafka.tools.DelegationTokenCommand"
PRODUCER, CONSUMER = "kafka.tools.ConsoleProducer", "org.apache.kafka.tools.consumer.ConsoleConsumer"
CALLBACK = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
Tool = Callable[..., str]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperProcess) -> Iterator[SaslBroker]:
    home = tmp_path_factory.mktemp("sasl-tools")
    broker = SaslBroker(home, zookeeper.under_chroot(home))
    yield broker
    broker.process.end()


@pytest.fixture
def tool(kafka_jars: Path, broker: SaslBroker) -> Tool:
    def run(name: str, listener: str, *arguments: str, stdin: str | None = None) -> str:
        done = run_tool(
            kafka_jars, name, "--bootstrap-server", broker.bootstrap(listener), *arguments, stdin=stdin
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def client_file(
    broker: SaslBroker,
    listener: str,
    mechanism: str,
    user: str = USER,
    password: str = PASSWORD,
    more: str = "",
) -> str:
    """The settings of a Java client."""
    options = "" if mechanism == "OAUTHBEARER" else f'username="{user}" password="{password}" {more}'
    lines = [
        f"security.protocol={listener}",
        f"sasl.mechanism={mechanism}",
        f"sasl.jaas.config={MODULES[mechanism]} required {options};",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={broker.authority_file}",
    ]
    if mechanism == "OAUTHBEARER":
        token = broker.home / "token.jwt"
        token.write_text(broker.issuer.token())
        lines += [
            f"sasl.login.callback.handler.class={CALLBACK}",
            f"sasl.oauthbearer.token.endpoint.url=file://{token}",
        ]
    file = broker.home / f"{listener}-{mechanism}-{user}.properties"
    file.write_text("\n".join(lines) + "\n")
    return str(file)


def give_credentials(broker: SaslBroker, tool: Tool) -> None:
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        config = f"{mechanism}=[iterations=8192,password={PASSWORD}]"
        users = ("--entity-type", "users", "--entity-name", USER)
        assert "Completed updating" in tool(CONFIGS, "PLAINTEXT", "--alter", "--add-config", config, *users)
    shown = tool(CONFIGS, "PLAINTEXT", "--describe", "--entity-type", "users")
    assert "SCRAM-SHA-512=iterations=8192" in shown


@pytest.mark.long
def test_java_clients_log_in_by_every_mechanism(broker: SaslBroker, tool: Tool) -> None:
    give_credentials(broker, tool)
    for mechanism, listener in zip(MECHANISMS, ("SASL_PLAINTEXT", "SASL_SSL") * 2, strict=True):
        file = client_file(broker, listener, mechanism)
        topic = ("--topic", f"java-{mechanism}")
        tool(PRODUCER, listener, *topic, "--producer.config", file, stdin="value\n")
        read = ("--from-beginning", "--max-messages", "1", "--timeout-ms", "30000", "--consumer.config", file)
        assert tool(CONSUMER, listener, *topic, *read) == "value\n"


@pytest.mark.long
def test_delegation_tokens_are_made_used_and_ended(broker: SaslBroker, tool: Tool) -> None:
    give_credentials(broker, tool)
    file = client_file(broker, "SASL_SSL", "PLAIN")
    tokens = partial(tool, TOKENS, "SASL_SSL", "--command-config", file)
    made = tokens("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    found = re.search(r"^(\S{22})\s+(\S+==)\s+User:alice\s+User:alice\s+\[?User:bob", made, re.MULTILINE)
    assert found is not None, made
    token_id, hmac = found.groups()
    assert token_id in tokens("--describe", "--owner-principal", f"User:{USER}")
    by_token = client_file(broker, "SASL_SSL", "SCRAM-SHA-256", token_id, hmac, 'tokenauth="true"')
    tool(PRODUCER, "SASL_SSL", "--topic", "by-token", "--producer.config", by_token, stdin="value\n")
    assert "Completed" in tokens("--renew", "--renew-time-period", "-1", "--hmac", hmac)
    assert "Completed" in tokens("--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    eventually(lambda: "delegation token expires" in broker.log, what="the token's end")
    assert token_id not in tokens("--describe")
    assert hmac not in broker.log
