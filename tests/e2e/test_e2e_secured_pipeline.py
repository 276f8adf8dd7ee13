"""A pipeline whose brokers want passwords over TLS and whose registry wants users over HTTPS: publish, count, load, audit."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import requests
from processes import ForegroundProcess, eventually, free_port
from psutil import Process
from secured_cluster import CANARY, SecuredCluster, headrace, properties_text
from tls_kit import signed
from zookeeper_process import ZooKeeperProcess

REGISTRY_PASSWORD = f"{CANARY}-of-registry"


class Pipeline:
    """One secured cluster with its registry; `file` is the properties file of a client of both."""

    def __init__(self, home: Path, zookeeper: str) -> None:
        self.home = home
        self.cluster = SecuredCluster(
            home, zookeeper, protocol="SASL_SSL", set={"auto.create.topics.enable": "true"}
        )
        self.log = home / "registry.log"
        self.plain_address = f"127.0.0.1:{free_port()}"
        self.registry = ForegroundProcess(self._registry(), self.log)
        self.url = f"https://{self.registry.ready[1]}"
        self.file = home / "pipeline.properties"
        trust = self.cluster.client_settings()
        registry = {
            f"schema.registry.{key}": value
            for key, value in trust.items()
            if key.startswith("ssl.truststore.")
        }
        registry["schema.registry.basic.auth.user.info"] = f"app:{REGISTRY_PASSWORD}"
        self.file.write_text(properties_text({**trust, **registry}))

    def _registry(self) -> list[str]:
        identity = signed(self.cluster.authority, "CN=registry")
        certificate, users = self.home / "registry.pem", self.home / "users"
        certificate.write_text(identity.key_pem() + identity.chain_pem())
        line = headrace("hash-password", "app", "--stdin", text=f"{REGISTRY_PASSWORD}\n")
        users.write_text(line.stdout)
        return [
            "headrace.registry.command",
            *self.cluster.options,
            "--listen",
            "127.0.0.1:0",
            "--plain-listen",
            self.plain_address,
            "--tls-certificate",
            str(certificate),
            "--users",
            str(users),
        ]

    @property
    def options(self) -> list[str]:
        return ["--bootstrap", self.cluster.bootstrap, "--command-config", str(self.file)]

    def end(self) -> None:
        self.registry.end()
        self.cluster.end()


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperProcess) -> Iterator[Pipeline]:
    home = tmp_path_factory.mktemp("secured")
    found = Pipeline(home, zookeeper.under_chroot(home))
    yield found
    found.end()


EVENTS = 200
PUBLISH = """
import json, sys
from headrace.producer import Producer

schema = json.dumps({"type": "record", "name": "Event", "fields": [
    {"name": "header", "type": json.loads(sys.argv[4])}, {"name": "number", "type": "long"}]})
with Producer(bootstrap=sys.argv[1], registry_url=sys.argv[2], security=sys.argv[3], schemas={"numbers": schema},
              server="host", service="tests", datacenter="dc-east", spool="") as producer:
    for number in range(int(sys.argv[5])):
        producer.send("numbers", {"number": number})
counts = producer.counts()["numbers"]
assert (counts.acknowledged, counts.failed, counts.unknown) == (int(sys.argv[5]), 0, 0), counts
assert producer.monitoring_failures == 0
"""


def header_schema() -> str:
    from headrace.events.avro_schemas import schema_text

    fields = json.loads(schema_text("page_view"))["fields"]
    return json.dumps(next(each["type"] for each in fields if each["name"] == "header"))


@pytest.fixture(scope="module")
def published(pipeline: Pipeline) -> None:
    """The topic `numbers`, with its events."""
    arguments = [pipeline.cluster.bootstrap, pipeline.url, str(pipeline.file), header_schema(), str(EVENTS)]
    done = subprocess.run(
        [sys.executable, "-c", PUBLISH, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert CANARY not in done.stdout + done.stderr


@pytest.mark.usefixtures("published")
def test_events_are_published_and_read_with_the_registrys_schemas(pipeline: Pipeline) -> None:
    read = headrace(
        "consume", "numbers", "--registry", pipeline.url, *pipeline.options, "--json", "--max", str(EVENTS)
    )
    assert read.returncode == 0, read.stderr
    values = [json.loads(line)["value"]["number"] for line in read.stdout.splitlines()]
    assert sorted(values) == list(range(EVENTS))


@pytest.fixture(scope="module")
def counted(pipeline: Pipeline, published: None) -> None:
    """What was published is counted, too."""
    arguments = ["--datacenter", "dc-east", "--tier", "live", "--topics", "numbers", "--once"]
    done = headrace("audit", "count", *pipeline.options, *arguments)
    assert done.returncode == 0, done.stderr
    assert CANARY not in done.stderr


@pytest.mark.usefixtures("counted")
def test_a_counter_counts_what_was_published(pipeline: Pipeline) -> None:
    counts = headrace("consume", "headrace.counts", *pipeline.options, "--json", "--max", "1")
    assert counts.returncode == 0, counts.stderr
    assert CANARY not in counts.stderr


@pytest.fixture(scope="module")
def warehouse(pipeline: Pipeline, published: None, tmp_path_factory: pytest.TempPathFactory) -> str:
    """With what was published as a table."""
    warehouse = str(tmp_path_factory.mktemp("tables") / "warehouse")
    loaded = headrace(
        "load", "--once", "--registry", pipeline.url, "--topics", "numbers", "--warehouse", warehouse, "--json",
        *pipeline.options, timeout_s=240,
    )  # fmt: skip
    assert loaded.returncode == 0, loaded.stderr
    assert json.loads(loaded.stdout)["rows"] == EVENTS
    assert CANARY not in loaded.stderr
    return warehouse


@pytest.mark.long
def test_a_load_brings_it_into_a_table(pipeline: Pipeline, warehouse: str) -> None:
    asked = headrace("load", "resume", "numbers", "--warehouse", warehouse, "--json", *pipeline.options)
    assert asked.returncode == 0, asked.stderr
    assert CANARY not in asked.stderr


def is_ready(address: str) -> bool:
    with suppress(requests.ConnectionError):
        return requests.get(f"http://{address}/ready", timeout=10).status_code == 200
    return False


@contextmanager
def auditing(log: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`headrace audit`, until the end of the block."""
    command = [sys.executable, "-m", "headrace.cli", "audit", *arguments]
    with log.open("wb") as stderr:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)
    assert CANARY not in log.read_text()


@pytest.mark.long
@pytest.mark.usefixtures("counted")
def test_the_audit_watches_it_and_shows_it_to_users_alone(
    pipeline: Pipeline, warehouse: str, tmp_path: Path
) -> None:
    address, state = f"127.0.0.1:{free_port()}", str(tmp_path / "ledger")
    own = [*pipeline.options, "--warehouse", warehouse, "--state", state]
    with auditing(tmp_path / "watch.log", "watch", *own, "--metrics-listener", address, "--interval", "1"):
        eventually(lambda: is_ready(address), timeout_s=60, every_s=0.5, what="a round of the ledger")
    entrance = [
        "--tls-certificate",
        str(pipeline.home / "registry.pem"),
        "--users",
        str(pipeline.home / "users"),
    ]
    with auditing(tmp_path / "serve.log", "serve", *own, "--listen", "127.0.0.1:0", *entrance) as page:
        assert page.stdout is not None
        word, url = page.stdout.readline().split()
        assert (word, url.partition(":")[0]) == ("serving", "https")
        trusted = pipeline.cluster.client_settings()["ssl.truststore.location"]
        place = f"{url.rstrip('/')}/report.json"
        assert requests.get(place, verify=trusted, timeout=10).status_code == 401
        user = ("app", REGISTRY_PASSWORD)

        def is_shown() -> bool:
            return requests.get(place, auth=user, verify=trusted, timeout=10).status_code == 200

        eventually(is_shown, timeout_s=60, every_s=0.5, what="a report")


@pytest.mark.long
@pytest.mark.usefixtures("published")
def test_spark_reads_it_by_the_option_command_config(pipeline: Pipeline, tmp_path: Path) -> None:
    from headrace.load.datasource import HeadraceDataSource
    from headrace.load.spark import spark_session

    session = spark_session(1)
    try:
        session.dataSource.register(HeadraceDataSource)
        options = {"bootstrap": pipeline.cluster.bootstrap, "topics": "numbers", "registry": pipeline.url}
        reader = session.read.format("headrace").options(**options)
        rows = reader.option("command.config", str(pipeline.file)).load().select("number").collect()
        assert sorted(row.number for row in rows) == list(range(EVENTS))
        wrong = tmp_path / "wrong.properties"
        wrong.write_text(properties_text(pipeline.cluster.client_settings(password=f"{CANARY}-wrong")))
        with pytest.raises(Exception, match="refused a log-in by PLAIN") as raised:
            reader.option("command.config", str(wrong)).load().collect()
        assert CANARY not in str(raised.value)
    finally:
        session.stop()


def test_a_registry_serves_http_beside_https_while_clients_go_over(pipeline: Pipeline) -> None:
    trusted = pipeline.cluster.client_settings()["ssl.truststore.location"]
    beside = requests.get(f"http://{pipeline.plain_address}/subjects", timeout=10)
    assert beside.status_code == 200
    assert requests.get(f"{pipeline.url}/subjects", timeout=10, verify=trusted).status_code == 401
    user = ("app", REGISTRY_PASSWORD)
    known = requests.get(f"{pipeline.url}/subjects", auth=user, timeout=10, verify=trusted)
    assert known.json() == beside.json()
    page = requests.get(f"{pipeline.url}/metrics", timeout=10, verify=trusted).text
    (told,) = re.findall(r'^headrace_certificate_expires_seconds{listener="HTTPS"} (.+)$', page, re.MULTILINE)
    assert 0 < float(told) - time.time() < 31 * 86400


def test_a_registry_that_does_not_know_the_user_is_one_sentence(pipeline: Pipeline) -> None:
    wrong = pipeline.home / "wrong.properties"
    text = pipeline.file.read_text().replace(f"app:{REGISTRY_PASSWORD}", f"app:{CANARY}-wrong")
    wrong.write_text(text)
    done = headrace(
        "consume",
        "numbers",
        "--registry",
        pipeline.url,
        "--bootstrap",
        pipeline.cluster.bootstrap,
        "--command-config",
        str(wrong),
        "--max",
        "1",
    )
    assert done.returncode == 1
    assert "401" in done.stderr.splitlines()[-1]
    assert CANARY not in done.stderr


def test_a_registry_that_brokers_do_not_let_in_says_why_and_goes_on_trying(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    settings = pipeline.cluster.client_settings(password=f"{CANARY}-wrong")
    file, log = tmp_path / "wrong.properties", tmp_path / "registry.log"
    file.write_text(properties_text(settings))
    command = ["-m", "headrace.registry.command", "--listen", "127.0.0.1:0", "--command-config", str(file)]
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, *command, "--bootstrap", pipeline.cluster.bootstrap], stderr=stderr
        )
    try:
        eventually(lambda: "refused a log-in by PLAIN" in log.read_text(), timeout_s=40, what="the reason")
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
    assert CANARY not in log.read_text()


def test_no_secret_shows_in_logs_or_in_a_list_of_processes(pipeline: Pipeline) -> None:
    broker = pipeline.cluster.brokers[1]
    for log in (pipeline.log, broker.log):
        assert CANARY not in log.read_text()
    for process in (pipeline.registry.process, broker.process):
        assert CANARY not in " ".join(Process(process.pid).cmdline())
