"""An ensemble of real ZooKeepers with what a secured roll-out's zoo.cfg says of its peers: strangers are kept out."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import eventually, free_port

from headrace.broker import zookeeper_server
from headrace_inventory.authority import make_missing
from headrace_inventory.zookeeper_security import peer_properties

SERVERS = {n: f"127.0.41.{n}" for n in (1, 2, 3)}
KEPT_OUT_SECONDS = 5


class Ensemble:
    """Three servers, each with a certificate for its address."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._ports = {n: [free_port(host) for _ in range(3)] for n, host in SERVERS.items()}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        hosts = {
            f"zookeeper-{n}": {
                "headrace_datacenter": "east",
                "headrace_address": host,
                "headrace_security_open": ["tls"],
                "headrace_certificates_from": str(home / "certificates"),
            }
            for n, host in SERVERS.items()
        }
        make_missing({"zookeeper": list(hosts), "broker": [], "registry": []}, hosts, renew=False, dry=False)

    def start(self, number: int, *, in_clear: bool = False) -> None:
        folder, made = self._home / str(number), self._home / "certificates"
        (folder / "data").mkdir(parents=True, exist_ok=True)
        (folder / "data" / "myid").write_text(f"{number}\n")
        (folder / "ca.pem").write_bytes((made / "ca.pem").read_bytes())
        pair = [(made / f"zookeeper-{number}.{ending}").read_bytes() for ending in ("key", "pem")]
        (folder / "keystore.secret").write_bytes(b"".join(pair))
        text = zookeeper_server.config_text(folder / "data", SERVERS[number], self._ports[number][0])
        peers = {} if in_clear else peer_properties(["tls"], "tls", str(folder))
        lines = [f"{key}={value}" for key, value in peers.items()]
        lines += [f"server.{n}={SERVERS[n]}:{ports[1]}:{ports[2]}" for n, ports in self._ports.items()]
        (folder / "zoo.cfg").write_text("\n".join([text, "initLimit=20", "syncLimit=10", *lines, ""]))
        *command, _, path = zookeeper_server.command(
            zookeeper_server.find_jars(), folder / "zoo.cfg", sync=False
        )
        command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", path]
        with (folder / "zookeeper.log").open("ab") as log:
            self._processes[number] = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self, number: int) -> None:
        process = self._processes[number]
        process.kill()
        process.wait()

    def serving(self) -> set[int]:
        return {n for n, host in SERVERS.items() if zookeeper_server.is_serving(host, self._ports[n][0])}

    def end(self) -> None:
        for number in self._processes:
            self.kill(number)


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[Ensemble]:
    ensemble = Ensemble(tmp_path)
    try:
        yield ensemble
    finally:
        ensemble.end()


@pytest.mark.acceptance
def test_who_shows_no_certificate_does_not_come_into_an_ensemble(ensemble: Ensemble) -> None:
    for number in SERVERS:
        ensemble.start(number)
    eventually(lambda: ensemble.serving() == {1, 2, 3}, what="an ensemble that speaks TLS", timeout_s=60)
    ensemble.kill(1)
    ensemble.start(1, in_clear=True)
    until = time.monotonic() + KEPT_OUT_SECONDS
    eventually(
        lambda: ensemble.serving() == {2, 3} and time.monotonic() > until, what="two without the third"
    )
    ensemble.kill(1)
    ensemble.start(1)
    eventually(lambda: ensemble.serving() == {1, 2, 3}, what="the third with its certificate", timeout_s=60)
