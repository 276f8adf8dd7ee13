"""Roll-out of real processes: a demo of it ends complete, it serves, it settles, a change restarts only what it concerns, a kill
is survived.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tarfile
import threading
import time
import xmlrpc.client
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from os import kill
from pathlib import Path
from typing import Any

import pytest
from commands import headrace
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from demo_process import SERVICES, eventually, processes
from odd_demo import assert_everything_is_there, assert_latencies_make_sense
from prometheus_process import PrometheusProcess
from prometheus_tools import Query, alert_queries, dashboard_queries
from supervisor.xmlrpc import SupervisorTransport
from watching import Watching

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(sys.executable).parent
# What is asked of faults that a pipeline that is well has none of, as clocks of one machine never contradict each other, and
# of certificates, which this one does without.
EMPTY_WHEN_WELL = {
    "HeadraceCertificateExpires",
    "HeadraceClocksDisagree",
    "HeadraceReplicaRotten",
    "brokers.json: Answers with an error",
}
# No label holds a name that clients choose.
LABELS = {
    *(
        "__name__",
        "job",
        "instance",
        "host",
        "datacenter",
        "version",
        "python",
        "directory",
        "api",
        "error",
        "le",
        "leader",
    ),
    *("topic", "partition", "source", "state", "kind", "what", "hop", "figure", "status"),
}
pytestmark = pytest.mark.long
BROKERS = {name for name in SERVICES if "-broker-" in name}
# What is done one host at a time takes as long as there are hosts, and dc-west has those of dc-east once more.
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
EASTERN_BROKERS = ("--limit", "dc_east:&broker")
# Each host costs a roll-out a second of CPU. Of the two kinds of brokers and of every other service, this has one.
EACH_KIND = (
    "--limit",
    "machine:dc_east:!dc-east-broker-2:!dc-east-audit-1:offline-broker-1:offline-load-1:offline-audit-1",
)
# inventory/local is loaded into one warehouse.
OF_FURTHER_WAREHOUSES = "headrace_audit_further_"


def supervisorctl(deployment: Any, *arguments: str) -> None:
    config = deployment.root / "supervisor" / "supervisord.conf"
    subprocess.run([PROGRAMS / "supervisorctl", "-c", config, *arguments], check=True, capture_output=True)


def plan(deployment: Any, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What `make plan` says of this inventory, as JSON."""
    command = [sys.executable, "scripts/plan.py", "--json", "-i", str(deployment.inventory)]
    return subprocess.run(
        [*command, "-e", f"headrace_root={deployment.root}", *arguments],
        cwd=CHECKOUT,
        env=deployment.environment(),
        capture_output=True,
        text=True,
        check=False,
    )


class Watch(Watching):
    """Looks at some services all the time and keeps how many of them were down together at most."""

    def __init__(self, deployment: Any, names: set[str]) -> None:
        # A service that is restarted is STARTING for a second at least.
        super().__init__(pause_s=0.2)
        socket_path = deployment.root / "supervisor.sock"
        transport = SupervisorTransport(None, None, f"unix://{socket_path}")
        self._supervisor: Any = xmlrpc.client.ServerProxy("http://127.0.0.1", transport=transport).supervisor
        self._names = names
        self.down_together_max = 0

    def look(self) -> None:
        states = {info["name"]: info["statename"] for info in self._supervisor.getAllProcessInfo()}
        down = sum(states[name] != "RUNNING" for name in self._names)
        self.down_together_max = max(self.down_together_max, down)


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that ended and that nobody has waited for yet has no command line."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except FileNotFoundError:
        return False


def changed_hosts(output: str) -> dict[str, int]:
    """How many changes each host reports, for those with any."""
    return {
        host: int(n)
        for host, n in re.findall(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)", output, re.MULTILINE)
        if int(n)
    }


def brokers_behind(bootstrap: str) -> set[int]:
    """The brokers that a client learns of when it starts from that address."""
    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=20).brokers)


@pytest.mark.timeout(420)
def test_a_demo_ends_complete_though_a_broker_and_the_load_are_killed(pipeline: Any) -> None:
    _, demo = pipeline
    demo.wait_until_published(0.2)
    killed = {service: demo.kill(service) for service in ("dc-east-broker-1", "offline-load")}
    for service, pid in killed.items():
        assert demo.is_back(service, pid), service
    assert demo.wait() == 0, demo.text()
    report = demo.report()
    assert_everything_is_there(report)
    assert_latencies_make_sense(report["latency_seconds"])
    assert "Verdict: complete" in demo.text()
    assert "The pipeline goes on running" in demo.text()
    assert "<html" in (demo.output / "report.html").read_text(encoding="utf-8")[:500]


def test_every_service_runs_and_a_second_run_changes_nothing(rolled_out: Any) -> None:
    before = processes(rolled_out.root)
    assert set(before) == SERVICES

    # test_deploy_page.py has all hosts again, and the lab has a plan of all of them that is empty.
    again = rolled_out.play("site.yml", *EACH_KIND)
    assert again.returncode == 0, again.stdout[-4000:]
    assert changed_hosts(again.stdout) == {}
    assert "no host of the inventory has it" not in again.stdout + again.stderr
    assert processes(rolled_out.root) == before


def test_the_questions_of_the_page_are_answered(
    rolled_out: Any, pipeline: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What docs/querying.md asks of a pipeline of its own, asked of the demo's; test_e2e_docs.py runs the whole page."""
    (tmp_path / "warehouse").symlink_to(rolled_out.root / "data" / "warehouse")
    (tmp_path / "report").symlink_to(pipeline[1].output)
    monkeypatch.chdir(tmp_path)
    page = (CHECKOUT / "docs" / "querying.md").read_text(encoding="utf-8")
    # What the audit settled is a later day's.
    page = re.sub(r"^<!-- run by: .*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    questions = re.findall(
        r"^(?:TZ=UTC )?headrace (query (?:.|\n)*?\")(?: > \S+)?$(?=\n(?:TZ|head|```))", page, re.MULTILINE
    )
    assert len(questions) == page.count("headrace query ") - page.count("`headrace query ")
    for question in questions:
        answer = headrace(*shlex.split(question))
        assert (answer.returncode, answer.stderr) == (0, "")
        assert answer.stdout.strip()
    for program in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        exec(program, {})


def configured(deployment: Any, folder: Path) -> Path:
    """What the play writes for Prometheus."""
    written = deployment.play("prometheus.yml", "-e", f"prometheus_dir={folder}")
    assert written.returncode == 0, written.stdout[-4000:]
    return folder


def test_prometheus_scrapes_every_service_and_every_query_has_data(rolled_out: Any, tmp_path: Path) -> None:
    queries = [
        *dashboard_queries(),
        *(Query(each.asker, one) for each in alert_queries() for one in each.selectors),
    ]
    with PrometheusProcess(configured(rolled_out, tmp_path)) as prometheus:

        def without_data() -> list[Query]:
            expected = (each for each in queries if not each.expression.startswith(OF_FURTHER_WAREHOUSES))
            return [each for each in expected if not prometheus.query(each.expression)]

        zookeepers = {name for name in SERVICES if "zookeeper" in name}
        assert eventually(lambda: len(prometheus.query("up == 1")) == len(SERVICES - zookeepers))
        # A rate wants two scrapes.
        assert eventually(lambda: {each.asker for each in without_data()} <= EMPTY_WHEN_WELL), without_data()
        own = prometheus.get("labels", **{"match[]": '{__name__=~"headrace_.*|process_.*"}'})
        assert set(own) <= LABELS


def test_a_drained_host_is_left_alone_until_it_is_restored(rolled_out: Any) -> None:
    """test_deploy_page.py has the same by Fabric."""
    broker, limit = "dc-east-broker-1", ("--limit", "dc-east-broker-1")
    others = {name: pid for name, pid in processes(rolled_out.root).items() if name != broker}
    unsaid = rolled_out.play("drain.yml", *limit)
    assert unsaid.returncode != 0
    assert "Say why, for others to read" in unsaid.stdout
    reason = ("-e", json.dumps({"drain_reason": "its disk is replaced", "drain_by": "ana"}))
    drained = rolled_out.play("drain.yml", *limit, *reason)
    assert drained.returncode == 0, drained.stdout[-4000:]
    assert processes(rolled_out.root) == others

    rolled = rolled_out.play("site.yml", "--limit", "machine:dc-east-broker-1")
    assert rolled.returncode == 0, rolled.stdout[-4000:]
    assert changed_hosts(rolled.stdout) == {}
    said = " ".join((rolled.stdout + rolled.stderr).split())
    assert len(re.findall(f"{broker} is drained since [-0-9T:Z]+ by ana: its disk is replaced", said)) == 1
    assert processes(rolled_out.root) == others

    restored = rolled_out.play("restore.yml", *limit)
    assert restored.returncode == 0, restored.stdout[-4000:]
    assert set(processes(rolled_out.root)) == {*others, broker}
    assert eventually(partial(is_behind_both, "127.77.1.100:9092"))


def serves(connection: socket.socket) -> bool:
    """Whether a broker answers ApiVersions over this connection."""
    connection.sendall(API_VERSIONS)
    (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
    return len(connection.recv(size, socket.MSG_WAITALL)) == int(size)


# The short tests of the lab have the same with systemd.
def test_haproxy_is_changed_by_a_reload_that_cuts_no_connection(rolled_out: Any) -> None:
    before = processes(rolled_out.root)
    file = rolled_out.root / "config" / "dc-east-haproxy" / "haproxy.cfg"
    with socket.create_connection(("127.77.1.100", 9092), timeout=20) as connection:
        assert serves(connection)
        # The second one takes the change back.
        for change, wanted in ((("-e", '{"haproxy_connections_max": 399}'), 399), ((), 400)):
            changed = rolled_out.play("site.yml", "--limit", "dc-east-haproxy-1", *change)
            assert changed.returncode == 0, changed.stdout[-4000:]
            assert changed_hosts(changed.stdout) == {"dc-east-haproxy-1": 1}
            assert f"maxconn {wanted}\n" in file.read_text()
            assert serves(connection)
    assert processes(rolled_out.root) == before


def is_behind_both(bootstrap: str) -> bool:
    return brokers_behind(bootstrap) == {1, 2}


def test_the_topics_have_the_partitions_of_the_inventory(rolled_out: Any) -> None:
    topics = AdminClient({"bootstrap.servers": "127.77.2.100:9092"}).list_topics(timeout=20).topics
    counts = {name: len(topic.partitions) for name, topic in topics.items()}
    expected = {
        "pageviews": 4,
        "pageviews.rejected": 1,
        "headrace.monitoring": 1,
        "headrace.counts": 1,
        "_schemas": 1,
    }
    assert {name: counts.get(name) for name in expected} == expected


def is_behind(broker: int) -> bool:
    """Whether HAProxy has this broker alone behind it."""
    return brokers_behind("127.77.1.100:9092") == {broker}


def test_clients_start_from_haproxy_while_one_broker_behind_it_is_stopped(rolled_out: Any) -> None:
    assert brokers_behind("127.77.1.100:9092") == {1, 2}
    for stopped, left in ((1, 2), (2, 1)):
        supervisorctl(rolled_out, "stop", f"dc-east-broker-{stopped}")
        try:
            assert eventually(partial(is_behind, left))
        finally:
            supervisorctl(rolled_out, "start", f"dc-east-broker-{stopped}")
        assert eventually(lambda: brokers_behind("127.77.1.100:9092") == {1, 2})


def test_a_killed_service_comes_back_as_another_process(rolled_out: Any) -> None:
    before = processes(rolled_out.root)
    victims = ("dc-west-broker-2", "dc-west-registry", "dc-west-haproxy", "dc-west-zookeeper-1")
    for victim in victims:
        kill(before[victim], signal.SIGKILL)
    assert eventually(lambda: set(processes(rolled_out.root)) == SERVICES)
    after = processes(rolled_out.root)
    assert all(after[victim] != before[victim] for victim in victims)
    assert eventually(lambda: brokers_behind("127.77.2.100:9092") == {1, 2})


def of_brokers(found: dict[str, int]) -> dict[str, int]:
    return {name: pid for name, pid in found.items() if name in BROKERS}


def broker_files(deployment: Any) -> dict[str, str]:
    """The server.properties of every broker."""
    return {
        name: (deployment.root / "config" / name / "server.properties").read_text()
        for name in sorted(BROKERS)
    }


def test_a_value_that_no_broker_takes_changes_none_of_them(rolled_out: Any) -> None:
    pids, files = of_brokers(processes(rolled_out.root)), broker_files(rolled_out)
    assert set(pids) == BROKERS
    bad = rolled_out.play(
        "site.yml",
        *("--limit", "broker", "-e", json.dumps({"broker_properties": {"num.partitions": "many"}})),
    )
    assert bad.returncode != 0
    (refused,) = failures(bad.stdout).values()
    assert "num.partitions=many is not allowed: give a whole number from 1 to 2147483647." in refused
    assert changed_hosts(bad.stdout) == {}
    assert of_brokers(processes(rolled_out.root)) == pids
    assert broker_files(rolled_out) == files


def test_more_replicas_in_sync_than_topics_can_have_while_one_restarts_are_refused(rolled_out: Any) -> None:
    pids, files = of_brokers(processes(rolled_out.root)), broker_files(rolled_out)
    change = json.dumps({"broker_properties": {"min.insync.replicas": 2}})
    refused = rolled_out.play("site.yml", *EASTERN_BROKERS, "-e", change)
    assert refused.returncode != 0
    (sentence,) = failures(refused.stdout).values()
    assert "With min.insync.replicas 2 these topics have too few replicas" in sentence
    assert "pageviews" in sentence
    assert of_brokers(processes(rolled_out.root)) == pids
    assert broker_files(rolled_out) == files


def failures(output: str) -> dict[str, str]:
    """The message of each host that failed."""
    return dict(re.findall(r'^fatal: \[([^\]]+)\].*?"msg": "(.*?)"[,}]', output, re.MULTILINE))


def kill_all_of(process: subprocess.Popen[bytes]) -> None:
    """Kill a program with all that it started, workers in sessions of their own included."""
    listing = subprocess.run(
        ["ps", "-e", "-o", "pid=,ppid="], check=True, capture_output=True, text=True
    ).stdout
    parents = {int(pid): int(parent) for pid, parent in map(str.split, listing.splitlines())}
    family = {process.pid}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    for pid in family:
        with suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)
    process.wait()


def looking(condition: Callable[[], bool]) -> bool:
    """Look without a pause worth mentioning: what is looked for is there for the time that a program takes to start."""
    deadline = time.monotonic() + 120
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def looked_at(folder: Path) -> set[str]:
    """The brokers whose new contents a roll-out is having looked at, each in a folder that is gone at once."""
    found = set()
    for file in folder.glob("headrace-*/*-server.properties"):
        with suppress(FileNotFoundError):
            found |= {name for name in BROKERS if name in file.read_text()}
    return found


def interrupt_before_the_restart(deployment: Any, folder: Path, change: str, *arguments: str) -> None:
    """Roll out a change of this line, and kill it once the first broker has its new file and before that broker is stopped.

    Supervisor is halted while the new content is looked at, so that the roll-out cannot get beyond writing files.
    """
    supervisord = int((deployment.root / "supervisor" / "supervisord.pid").read_text())
    first: list[str] = []

    def is_looked_at() -> bool:
        first.extend(looked_at(folder))
        return bool(first)

    run = subprocess.Popen(
        deployment.command("site.yml", *EASTERN_BROKERS, *arguments),
        cwd=CHECKOUT,
        env={**deployment.environment(), "TMPDIR": str(folder)},
        stdout=subprocess.DEVNULL,
    )
    try:
        # Halted before a broker's turn, the roll-out would never get there. Which is the first depends on who controls.
        assert looking(is_looked_at)
        kill(supervisord, signal.SIGSTOP)
        files = [deployment.root / "config" / name / "server.properties" for name in first]
        assert looking(lambda: any(change in file.read_text() for file in files))
    finally:
        kill_all_of(run)
        kill(supervisord, signal.SIGCONT)


def test_a_change_restarts_only_what_it_concerns_one_host_at_a_time(rolled_out: Any, tmp_path: Path) -> None:
    """In two turns, for the brokers of both kinds; the lab has hosts of their own for each."""
    limit, partitions = "all:!dc_west", 5
    concerned = {name for name in BROKERS if not name.startswith("dc-west-")}
    before = processes(rolled_out.root)
    line = f"num.partitions={partitions}"
    properties = {"num.partitions": partitions, "offsets.topic.replication.factor": 1}
    change = ("-e", json.dumps({"broker_properties": properties}))

    planned = plan(rolled_out, "--limit", limit, *change)
    assert planned.returncode == 2, planned.stdout[-4000:] + planned.stderr[-2000:]
    expected = json.loads(planned.stdout)
    assert all(f"+{line}" in file["lines"] for file in expected["files"])
    assert {name: processes(rolled_out.root).get(name) for name in BROKERS} == {
        name: before[name] for name in BROKERS
    }

    interrupt_before_the_restart(rolled_out, tmp_path, line, *change)
    assert of_brokers(processes(rolled_out.root)) == of_brokers(before)

    with Watch(rolled_out, BROKERS) as watch:
        changed = rolled_out.play("site.yml", "--limit", limit, *change)
    assert changed.returncode == 0, changed.stdout[-4000:]
    assert set(changed_hosts(changed.stdout)) == concerned
    restarts = [(each["service"], each["step"], each["reason"]) for each in expected["services"]]
    # First its service is changed, then what was kept to take it back is let go.
    turns = dict.fromkeys(re.findall(r"^changed: \[(\S+-broker-\d)\]", changed.stdout, re.MULTILINE))
    assert restarts == [(name, "restart", "server.properties changes") for name in turns]
    after = processes(rolled_out.root)
    assert {name for name in SERVICES if after.get(name) != before[name]} == concerned
    assert watch.down_together_max == 1


def test_brokers_are_restarted_one_at_a_time_unless_one_is_needed(rolled_out: Any) -> None:
    before = processes(rolled_out.root)
    eastern = {name for name in BROKERS if name.startswith("dc-east-")}
    status = headrace("cluster", "status", "--json", "--bootstrap", "127.77.1.1:9092")
    controller = f"dc-east-broker-{json.loads(status.stdout)['controller']}"

    with Watch(rolled_out, BROKERS) as watch:
        restarted = rolled_out.play("rolling_restart.yml", "--limit", "dc_east", "--tags", "broker")
    assert restarted.returncode == 0, restarted.stdout[-4000:]
    assert changed_hosts(restarted.stdout) == dict.fromkeys(eastern, 1)
    assert watch.down_together_max == 1
    assert re.findall(r"^changed: \[(dc-east-broker-\d)\]", restarted.stdout, re.MULTILINE)[-1] == controller
    after = processes(rolled_out.root)
    assert {name for name in SERVICES if after.get(name) != before[name]} == eastern

    headrace("topics", "create", "single", "--bootstrap", "127.77.1.1:9092")
    refused = rolled_out.play(
        "rolling_restart.yml", "--limit", "dc_east", "--tags", "broker", "-e", "gate_timeout_s=0"
    )
    (sentence,) = failures(refused.stdout).values()
    assert "These have too few replicas to do without any one of them: single-0." in sentence
    assert len(set(processes(rolled_out.root).items()) - set(after.items())) <= 1
    headrace("topics", "delete", "single", "--bootstrap", "127.77.1.1:9092")


@contextmanager
def written_all_the_time(topic: str, bootstrap: str) -> Iterator[None]:
    """A message each few milliseconds."""
    ended = threading.Event()
    producer = Producer({"bootstrap.servers": bootstrap, "acks": 1})

    def publish() -> None:
        while not ended.wait(0.005):
            producer.produce(topic, b"busy")
            producer.poll(0)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        producer.flush(30)


def test_a_change_with_which_replicas_are_never_in_sync_is_taken_back(rolled_out: Any) -> None:
    """A broker that fetches too rarely to catch up: no value of its configuration is wrong, only what comes of it."""
    busy = ("--bootstrap", "127.77.1.2:9092")
    headrace("topics", "create", "busy", "--replication-factor", "2", *busy)
    before, files = processes(rolled_out.root), broker_files(rolled_out)
    rarely = {"replica.fetch.min.bytes": 100_000_000, "replica.fetch.wait.max.ms": 29_000}
    change = json.dumps({"broker_properties": rarely})
    arguments = ("--limit", "dc-east-broker-1", "-e", change, "-e", "gate_timeout_s=20")
    with written_all_the_time("busy", "127.77.1.2:9092"):
        result = rolled_out.play("site.yml", *arguments)
    assert result.returncode != 0
    (sentence,) = failures(result.stdout).values()
    assert "dc-east-broker-1 was taken back, and runs again what it ran before." in sentence
    assert "Partitions with replicas out of sync" in sentence
    assert broker_files(rolled_out) == files
    after = processes(rolled_out.root)
    assert {name for name in SERVICES if after.get(name) != before[name]} == {"dc-east-broker-1"}
    assert not list((rolled_out.root / "config").glob("*/kept"))
    headrace("topics", "delete", "busy", *busy)


def test_a_service_that_does_not_start_is_named_with_its_log(rolled_out: Any) -> None:
    wrong = json.dumps({"haproxy_executable": "/bin/false"})
    result = rolled_out.play(
        "site.yml", "-e", wrong, "-e", "service_timeout_s=5", "--limit", "dc-east-haproxy-1"
    )
    assert result.returncode != 0
    assert (
        "haproxy.cfg was not replaced" in result.stdout or "dc-east-haproxy does not serve" in result.stdout
    )
    assert eventually(lambda: brokers_behind("127.77.1.100:9092") == {1, 2})


def test_a_counter_that_counts_nothing_ends_the_roll_out_with_its_reason(rolled_out: Any) -> None:
    wrong = json.dumps({"audit_counted_topics": ["nothing"], "service_timeout_s": 5})
    result = rolled_out.play("site.yml", "-e", wrong, "--limit", "dc-east-audit-1")
    assert result.returncode != 0
    assert (
        "dc-east-counter does not serve after 5 s: http at 127.77.1.13:9405: GET /ready answers 503: the cluster has no topic "
        "nothing; `headrace topics list` shows those it has. Its log is"
    ) in result.stdout
    assert "datacenter=dc-east topics=nothing" in result.stdout


def holders_of(text: bytes, *patterns: Path) -> list[Path]:
    """The files that match a pattern, can be read and hold the text."""
    found = []
    for pattern in patterns:
        for path in Path("/").glob(str(pattern.relative_to("/"))):
            with suppress(OSError):
                if path.is_file() and text in path.read_bytes():
                    found.append(path)
    return found


@pytest.fixture
def vault(rolled_out: Any) -> Iterator[Path]:
    """A file of the inventory's variables; gone afterwards, since every play would ask for its password."""
    file: Path = rolled_out.inventory / "group_vars" / "offline.yml"
    yield file
    file.unlink(missing_ok=True)


def test_a_secret_is_seen_nowhere_but_in_the_services_own_file(
    rolled_out: Any, vault: Path, tmp_path: Path
) -> None:
    """As docs/rollout.md says; the auditor finds its catalog by the secret alone. The lab has it with systemd, and --check."""
    for name in ("playbooks", "ansible.cfg", ".venv"):
        (tmp_path / name).symlink_to(CHECKOUT / name)
    (tmp_path / "inventory").mkdir()
    (tmp_path / "inventory" / "local").symlink_to(rolled_out.inventory)
    catalog = {"uri": f"sqlite:///{rolled_out.root}/data/warehouse/catalog.db", "s3.session-token": "c4n4ry"}
    variables = {"headrace_catalog_properties": {"type": "sql"}, "headrace_catalog_secret": catalog}
    vault.write_text(json.dumps(variables))
    home = {"HOME": str(tmp_path), "ANSIBLE_VAULT_PASSWORD_FILE": str(tmp_path / ".headrace-vault")}
    options = ("--diff", "-vvv", "--limit", "machine:offline-audit-1")
    script = Path(__file__).with_name("secrets_page.sh")

    before = processes(rolled_out.root)
    changed = subprocess.run(
        ["bash", script, *options, "-e", f"headrace_root={rolled_out.root}"],
        cwd=tmp_path,
        env={**rolled_out.environment(), **home, "PATH": f"{PROGRAMS}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert changed.returncode == 0, changed.stdout[-4000:] + changed.stderr[-2000:]
    assert vault.read_text().startswith("$ANSIBLE_VAULT;1.1;AES256")
    after = processes(rolled_out.root)
    assert {name for name in SERVICES if after[name] != before[name]} == {"offline-auditor"}
    wrong = ("--tags", "inventory", "-e", "headrace_catalog_secret=c4n4ry")
    refused = rolled_out.play("preflight.yml", *options, *wrong, **home)
    assert refused.returncode != 0
    assert "the headrace_catalog_secret: it must be a dictionary." in refused.stdout

    for result in (changed, refused):
        assert "c4n4ry" not in result.stdout.replace("headrace_catalog_secret=c4n4ry", "") + result.stderr
    assert "+a secret\n" in changed.stdout
    file = rolled_out.root / "config" / "offline-auditor" / "catalog.secret"
    assert file.stat().st_mode & 0o777 == 0o640
    root = rolled_out.root
    folders = [root / folder / "**" / "*" for folder in ("config", "supervisor", "log")]
    assert holders_of(b"c4n4ry", *folders, Path("/proc/[0-9]*/cmdline"), Path("/proc/[0-9]*/environ")) == [
        file
    ]
    log = root / "log" / "offline-auditor.log"
    assert processes(root)["offline-auditor"] == after["offline-auditor"], log.read_text()[-2000:]


# The lab has upgrades of all kinds of services under load; that of a change above has one host at a time.
def test_another_release_restarts_what_runs_from_it_one_host_at_a_time(rolled_out: Any) -> None:
    before = processes(rolled_out.root)
    registries = {"dc-east-registry", "dc-west-registry"}
    current = rolled_out.root.parent / "current"
    current.unlink()
    current.symlink_to("release-2")

    with Watch(rolled_out, registries) as watch:
        moved = rolled_out.play(
            "site.yml", "--limit", "machine:dc-east-registry-1:dc-west-registry-1:dc-east-haproxy-1"
        )
    assert moved.returncode == 0, moved.stdout[-4000:]
    after = processes(rolled_out.root)
    assert {name for name in SERVICES if after.get(name) != before[name]} == registries
    assert watch.down_together_max == 1


SERVICE_LEFT = (
    "dc-west-broker-2 runs on ",
    "no host of the inventory has it: stop it there with `supervisorctl ",
)
BROKER_LEFT = ("Broker 2 at 127.77.2.2:9092 is in this cluster and no host of the inventory has it",)


@pytest.mark.parametrize(
    ("arguments", "sentences"),
    [
        (("preflight.yml",), SERVICE_LEFT),
        (("health.yml",), SERVICE_LEFT),
        (("site.yml", "--check"), SERVICE_LEFT + BROKER_LEFT),
    ],
)
def test_services_of_a_host_that_the_inventory_has_no_more_are_named(
    rolled_out: Any, tmp_path: Path, arguments: tuple[str, ...], sentences: tuple[str, ...]
) -> None:
    inventory = tmp_path / "inventory"
    shutil.copytree(rolled_out.inventory, inventory)
    smaller = replace(rolled_out, inventory=inventory)
    hosts = (inventory / "hosts.yml").read_text(encoding="utf-8")
    (inventory / "hosts.yml").write_text(re.sub(r"\n +dc-west-broker-2:.*", "", hosts), encoding="utf-8")

    result = smaller.play(*arguments, "--limit", "machine:dc-west-broker-1")
    assert result.returncode == 0, result.stdout[-4000:]
    said = result.stdout + result.stderr
    assert [sentence for sentence in sentences if sentence not in said] == []


def test_data_are_not_left_behind_in_another_folder(rolled_out: Any, tmp_path: Path) -> None:
    before = processes(rolled_out.root)
    elsewhere = ("-e", f"headrace_data_dir={tmp_path}")
    refused = rolled_out.play("site.yml", "--limit", "machine:dc-east-broker-1", *elsewhere)
    assert refused.returncode != 0
    data = rolled_out.root / "data"
    assert f"has its data in {data}/dc-east-broker-1, and headrace_data_dir is {tmp_path}" in refused.stdout
    assert processes(rolled_out.root) == before
    assert not list(tmp_path.iterdir())


def test_a_preflight_of_all_hosts_names_none_as_left(rolled_out: Any) -> None:
    unlimited = rolled_out.play("preflight.yml")
    assert unlimited.returncode == 0, unlimited.stdout[-4000:]
    assert "no host of the inventory has it" not in unlimited.stdout + unlimited.stderr


def test_health_names_a_stopped_broker(rolled_out: Any) -> None:
    supervisorctl(rolled_out, "stop", "dc-east-broker-2")
    try:
        told = rolled_out.play("health.yml", "--limit", "dc_east")
    finally:
        supervisorctl(rolled_out, "start", "dc-east-broker-2")
    assert told.returncode != 0
    assert "dc-east-broker-2 on dc-east-broker-2 is not well: stopped." in told.stdout
    assert "cluster dc-east is not well: " in told.stdout
    assert re.search(r"^dc-east-broker-1 +dc-east-broker-1 +running .* yes$", told.stdout, re.MULTILINE)
    assert "dc-west" not in told.stdout
    assert eventually(partial(is_behind_both, "127.77.1.100:9092"))


def test_a_support_bundle_holds_no_secret(rolled_out: Any, tmp_path: Path) -> None:
    secret = rolled_out.root / "config" / "dc-east-registry" / "planted.properties"
    secret.touch(mode=0o640)
    secret.write_text("key=c4n4ry-kept\n", encoding="utf-8")
    with (rolled_out.root / "log" / "dc-east-registry.log").open("a", encoding="utf-8") as log:
        log.write("it said c4n4ry-kept, password=c4n4ry-told and http://me:c4n4ry-sent@127.0.0.1/\n")
    made = rolled_out.play("support_bundle.yml", "--limit", "dc_east", "-e", f"support_dir={tmp_path}")
    secret.unlink()
    assert made.returncode == 0, made.stdout[-4000:]
    (archive,) = tmp_path.glob("headrace-*.tar.gz")
    assert f"Support bundle: {archive}" in made.stdout
    assert archive.stat().st_mode & 0o777 == 0o600
    texts = {}
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            file = tar.extractfile(member)
            assert file is not None
            texts[member.name.partition("/")[2].rpartition(str(rolled_out.root))[2]] = file.read().decode()
    assert [name for name, text in texts.items() if "c4n4ry" in text] == []
    assert "broker.id=1" in texts["/config/dc-east-broker-1/server.properties"]
    assert "planted.properties" in next(text for name, text in texts.items() if name.endswith("/not-taken"))
    registry_log = next(text for name, text in texts.items() if name.endswith("logs/dc-east-registry"))
    assert "it said REDACTED, password=REDACTED" in registry_log
    assert "dc-east-broker-2" in texts["health"]
    metrics = next(text for name, text in texts.items() if name.endswith("metrics/dc-east-broker-2"))
    assert "headrace_led_partitions " in metrics


@pytest.mark.timeout(900)
def test_alerts_fire_under_real_faults_and_resolve(rolled_out: Any, tmp_path: Path) -> None:
    """tests/unit/observability has every alert, with series that are made up."""
    stopped = ("dc-west-broker-1", "dc-west-broker-2", "dc-east-counter")
    with PrometheusProcess(configured(rolled_out, tmp_path)) as prometheus:

        def hosts(alert: str) -> set[str]:
            return {each.get("host", each.get("source", "")) for each in prometheus.firing().get(alert, ())}

        def is_over(alert: str) -> bool:
            return not hosts(alert)

        assert eventually(lambda: bool(prometheus.query("up == 1")) and not prometheus.query("up == 0"))
        assert not hosts("HeadraceSourceSilent")
        supervisorctl(rolled_out, "stop", *stopped)
        try:
            down = {"dc-west-broker-1", "dc-west-broker-2", "dc-east-audit-1"}
            assert eventually(lambda: down <= hosts("HeadraceServiceDown"), 120)
            assert eventually(lambda: "dc-west-haproxy-1" in hosts("HeadraceServiceNotReady"), 120)
            assert eventually(lambda: "dc-west" in hosts("HeadraceSourceSilent"), 240)
            told = [each["summary"] for alert in prometheus.firing().values() for each in alert]
            assert any(
                re.fullmatch(r"dc-west has not answered the mirror for \d+m \d+.*s", each) for each in told
            ), told
            assert not [each for each in told if "no value" in each or "  " in each]
        finally:
            supervisorctl(rolled_out, "start", *stopped)
        for alert in ("HeadraceServiceDown", "HeadraceServiceNotReady", "HeadraceSourceSilent"):
            assert eventually(partial(is_over, alert), 240), prometheus.firing()


def test_down_stops_everything_and_removes_only_what_was_asked_for(rolled_out: Any) -> None:
    supervisord = int((rolled_out.root / "supervisor" / "supervisord.pid").read_text())
    pids = [supervisord, *processes(rolled_out.root).values()]

    assert rolled_out.play("down.yml").returncode == 0
    assert not [pid for pid in pids if is_alive(pid)]
    assert (rolled_out.root / "data" / "dc-east-broker-1").is_dir()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.77.1.100", 9092), timeout=2)

    removing = ("-e", "headrace_remove_data=true")
    again = rolled_out.play("down.yml", "--limit", "machine:dc-east-broker-1", *removing)
    assert again.returncode == 0, again.stdout[-4000:]
    assert list(changed_hosts(again.stdout).values()) == [1]
    assert not (rolled_out.root / "data").exists()
    assert (rolled_out.root / "config").is_dir()
    assert (rolled_out.root / "log").is_dir()
