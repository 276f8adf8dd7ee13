"""Clients in Go (franz-go) and JavaScript (KafkaJS) over TLS, with and without a certificate, logged in by every mechanism."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from sasl_broker import MECHANISMS, PASSWORD, SASL_NAMES, USER, SaslBroker
from tls_broker import NAMES, TlsBroker
from zookeeper_process import ZooKeeperProcess

pytestmark = pytest.mark.long
HERE = Path(__file__).parent
SECONDS_MAX, BUILD_SECONDS_MAX = 90, 600
SCRAM = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
Command = list[str]


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Command]:
    """How each is started; they are built of what their lock files name."""
    missing = [name for name in ("go", "node", "npm") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"Clients in Go and JavaScript need {', '.join(missing)}, which no setup installs.")
    home = tmp_path_factory.mktemp("drivers")
    program = home / "round_trip"
    run(["go", "build", "-o", str(program), "."], HERE / "franz_go", BUILD_SECONDS_MAX)
    shutil.copytree(HERE / "kafkajs", home / "kafkajs", ignore=shutil.ignore_patterns("node_modules"))
    run(["npm", "ci", "--prefer-offline", "--no-audit", "--no-fund"], home / "kafkajs", BUILD_SECONDS_MAX)
    return {"franz-go": [str(program)], "kafkajs": ["node", str(home / "kafkajs" / "round_trip.js")]}


def run(command: Command, folder: Path, seconds_max: int) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=seconds_max, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def tls_broker(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperProcess) -> Iterator[TlsBroker]:
    home = tmp_path_factory.mktemp("tls")
    broker = TlsBroker(home, zookeeper.under_chroot(home))
    yield broker
    broker.process.end()


@pytest.fixture(scope="module")
def sasl_broker(
    tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperProcess
) -> Iterator[SaslBroker]:
    home = tmp_path_factory.mktemp("sasl")
    broker = SaslBroker(home, zookeeper.under_chroot(home))
    admin = AdminClient(broker.librdkafka("PLAINTEXT"))
    for kind in SCRAM:
        upsertion = UserScramCredentialUpsertion(USER, ScramCredentialInfo(kind, 4096), PASSWORD.encode())
        for future in admin.alter_user_scram_credentials([upsertion]).values():
            future.result(30)
    yield broker
    broker.process.end()


def round_trip(
    client: Command, bootstrap: str, topic: str, **said: object
) -> subprocess.CompletedProcess[str]:
    command = [*client, bootstrap, topic, *(f"{name}={value}" for name, value in said.items())]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)


@pytest.mark.parametrize("listener", NAMES)
@pytest.mark.parametrize("name", ["franz-go", "kafkajs"])
def test_it_carries_a_message_over_tls(
    clients: dict[str, Command], tls_broker: TlsBroker, name: str, listener: str
) -> None:
    certificate, key = tls_broker.alice_files
    said = {} if listener == "PLAINTEXT" else {"authority": tls_broker.authority_file}
    said |= {"certificate": certificate, "key": key} if listener == "MUTUAL" else {}
    done = round_trip(clients[name], tls_broker.bootstrap(listener), f"{name}-{listener}", **said)
    assert (done.stdout, done.returncode) == ("value\n", 0), done.stderr


@pytest.mark.parametrize("listener", SASL_NAMES)
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", ["franz-go", "kafkajs"])
def test_it_carries_a_message_once_it_has_logged_in(
    clients: dict[str, Command], sasl_broker: SaslBroker, name: str, mechanism: str, listener: str
) -> None:
    said: dict[str, object] = {"mechanism": mechanism, "user": USER, "password": PASSWORD}
    if mechanism == "OAUTHBEARER":
        said = {"mechanism": mechanism, "token": sasl_broker.issuer.token()}
    if listener == "SASL_SSL":
        said["authority"] = sasl_broker.authority_file
    topic = f"{name}-{listener}-{mechanism}"
    done = round_trip(clients[name], sasl_broker.bootstrap(listener), topic, **said)
    assert (done.stdout, done.returncode) == ("value\n", 0), done.stderr


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
@pytest.mark.parametrize("name", ["franz-go", "kafkajs"])
def test_a_wrong_password_is_refused(
    clients: dict[str, Command], sasl_broker: SaslBroker, name: str, mechanism: str
) -> None:
    who = {"mechanism": mechanism, "user": USER, "password": "another"}
    done = round_trip(clients[name], sasl_broker.bootstrap("SASL_PLAINTEXT"), f"{name}-refused", **who)
    assert (done.stdout, done.returncode) == ("", 1)
    assert "authentication failed" in done.stderr.lower(), done.stderr
