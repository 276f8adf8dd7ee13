"""Preflight refuses the values of zoo.cfg that ZooKeeper itself does not start with, and those that it would misread."""

from __future__ import annotations

import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
from inventory_kit import good_inventory
from jinja2 import Environment
from playbooks_kit import PLAYBOOKS

from headrace_inventory.problems import inventory_problems
from headrace_inventory.zookeeper_properties import is_known
from headrace_inventory.zookeeper_values import BOUNDS, CHOICES, NUMBERS, problems

ROLE = PLAYBOOKS / "roles" / "zookeeper"
# ZooKeeper ends with these.
FATAL = {
    "no number": (
        {"tickTime": "fast"},
        "the tickTime 'fast': it must be a whole number from 1 to 2147483647.",
    ),
    "half a number": (
        {"syncLimit": 2.5},
        "the syncLimit '2.5': it must be a whole number from 1 to 2147483647.",
    ),
    "more than Java's int": (
        {"maxClientCnxns": 2**31},
        "the maxClientCnxns '2147483648': it must be a whole number from 0 to 2147483647.",
    ),
    "another election": ({"electionAlg": 0}, "the electionAlg '0': it must be 3."),
    "no truth": ({"standaloneEnabled": "on"}, "the standaloneEnabled 'on': it must be true or false."),
    "a kind of server": (
        {"peerType": "leader"},
        "the peerType 'leader': it must be participant or observer.",
    ),
    "a provider of metrics that is not there": (
        {"metricsProvider.className": "org.example.Metrics"},
        "the metricsProvider.className 'org.example.Metrics', which the release does not have: put its jars and ZooKeeper's into "
        "a folder of the host's that zookeeper_jars_dir names, or use org.apache.zookeeper.metrics.impl.DefaultMetricsProvider "
        "or org.apache.zookeeper.metrics.impl.NullMetricsProvider.",
    ),
    "sessions": (
        {"tickTime": 1000, "minSessionTimeout": 30_000},
        "sessions of at least 30000 ms and at most 20000 ms: minSessionTimeout (2 ticks where it is not set) must not be larger "
        "than maxSessionTimeout (20 ticks).",
    ),
}
MISREAD = {
    "a count that is none": (
        {"snapCount": "100k"},
        "the snapCount '100k': it must be a whole number from -2147483648 to 2147483647.",
    ),
    "too few snapshots": (
        {"autopurge.snapRetainCount": 1},
        "the autopurge.snapRetainCount '1': it must be a whole number from 3 to 2147483647.",
    ),
    "YAML's no": ({"forceSync": False}, "the forceSync 'false': it must be yes or no, in quotes."),
    "words that nobody asks": (
        {"4lw.commands.whitelist": "ruok, srvr"},
        "the 4lw.commands.whitelist 'ruok, srvr': it must be a list with mntr and srvr, which the plays ask, or *.",
    ),
    "a factor": ({"snapshotSizeFactor": "third"}, "the snapshotSizeFactor 'third': it must be a number."),
}
GOOD = {
    "4lw.commands.whitelist": "*",
    "admin.enableServer": False,
    "forceSync": "no",
    "maxSessionTimeout": 60_000,
    "minSessionTimeout": -1,
    "server.9": "10.0.0.9:2888:3888",
    "snapshotSizeFactor": 0.33,
    "tickTime": "3000",
}


@pytest.mark.parametrize(
    ("properties", "problem"), [*FATAL.values(), *MISREAD.values()], ids=[*FATAL, *MISREAD]
)
def test_a_value_that_is_none_gets_a_sentence(properties: dict[str, object], problem: str) -> None:
    groups, hostvars = good_inventory()
    for variables in hostvars.values():
        variables["zookeeper_properties"] = properties
    assert inventory_problems(groups, hostvars) == [
        f"Host east-zookeeper-1 has in zookeeper_properties {problem}"
    ]


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("httpPort", 70_000, "a whole number from 0 to 65535"),
        ("exportJvmInfo", "on", "true or false"),
        ("maxQueueSize", 0, "a whole number from 1 to 2147483647"),
        ("workerShutdownTimeoutMs", "1s", "a whole number from 0 to 9223372036854775807"),
    ],
)
def test_a_value_that_no_provider_of_metrics_takes_gets_a_sentence(
    key: str, value: object, allowed: str
) -> None:
    name = f"metricsProvider.{key}"
    assert list(problems({name: value})) == [f"the {name} '{value}': it must be {allowed}."]


def test_good_values_have_no_problems() -> None:
    assert list(problems(GOOD)) == []


def test_every_key_with_a_rule_is_known_and_has_one_rule() -> None:
    keys = [*BOUNDS, *NUMBERS, *CHOICES]
    assert [key for key in keys if not is_known(key)] == []
    assert len(keys) == len(set(keys))


@pytest.mark.acceptance
@pytest.mark.parametrize("properties", [each for each, _ in FATAL.values()], ids=FATAL)
def test_zookeeper_does_not_start_with_what_is_fatal(properties: dict[str, object], tmp_path: Path) -> None:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    lines = {
        "tickTime": 2000,
        "dataDir": tmp_path,
        "clientPort": 0,
        "admin.enableServer": "false",
        **properties,
    }
    file = tmp_path / "zoo.cfg"
    file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    jars = Path(spec.origin).parent / "jars" / "*"
    server = ["java", "-cp", str(jars), "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(file)]
    assert subprocess.run(server, capture_output=True, timeout=60, check=False).returncode == 2


def test_a_truth_is_written_as_zookeeper_reads_it() -> None:
    """Its admin server starts unless the value is false, in small letters."""
    template = Environment(autoescape=False).from_string(
        (ROLE / "templates" / "zoo.cfg.j2").read_text(encoding="utf-8")
    )
    written = template.render(
        zookeeper_final_properties={"admin.enableServer": False, "tickTime": 1}, zookeeper_ensemble=[]
    )
    assert "admin.enableServer=false\n" in written
    assert "tickTime=1\n" in written
