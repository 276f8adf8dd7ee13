"""A release is built and installed on a host, which here is a folder of this machine: whole or not at all, and never another."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from broken_releases import FAULTS

pytestmark = pytest.mark.acceptance

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(sys.executable).parent
VERSION = "9.8.7"
LOGBACK = CHECKOUT / "playbooks" / "roles" / "zookeeper" / "templates" / "logback.xml.j2"


def make(parent: Path, *arguments: str) -> str:
    command = [sys.executable, "scripts/release.py", "--output", str(parent), *arguments]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout


@dataclass(frozen=True)
class Host:
    """A folder that releases are installed in, by the module alone."""

    home: Path
    python: Path

    def install(self, release: Path, *bundles: str, check: bool = False, **more: str) -> dict[str, Any]:
        """The module's answer; `failed` is in it when it failed."""
        task = {
            "version": VERSION,
            "folder": str(release),
            "bundles": bundles,
            "home": str(self.home),
            "python": str(self.python),
            "keep": 2,
            **more,
        }
        command = [str(PROGRAMS / "ansible"), "localhost", "-m", "headrace_release", "-a", json.dumps(task)]
        environment = {**os.environ, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"), "LC_ALL": "C.UTF-8"}
        local = ["-i", "localhost,", "-c", "local", "-e", f"ansible_python_interpreter={sys.executable}"]
        result = subprocess.run(
            [*command, *local, *(["--check"] if check else [])],
            env=environment | {"ANSIBLE_NOCOLOR": "1"},
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            check=False,
        )
        answer = re.search(r"=> (\{.*\})", result.stdout, re.DOTALL)
        assert answer is not None, result.stdout + result.stderr
        return {"failed": result.returncode != 0, **json.loads(answer[1])}

    def folders(self) -> set[str]:
        return {path.name for path in (self.home / "releases").glob("*")} - {".lock"}

    def program(self) -> Path:
        return self.home / "releases" / VERSION / "bin" / "headrace"


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parent = tmp_path_factory.mktemp("dist")
    said = make(parent, "--version", VERSION, "--bundles", "broker", "zookeeper")
    assert re.search(r"broker\.tar +1[45]\.\d MB", said), said
    assert re.search(r"zookeeper\.tar +[89]\.\d MB", said), said
    return parent / f"headrace-{VERSION}"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    """One whose Python, told to make an environment while the file `deadly` is there, kills who asked it."""
    folder = tmp_path_factory.mktemp("host")
    python = folder / "python"
    deadly = folder / "deadly"
    python.write_text(
        f'#!/bin/sh\nif [ "$2" = venv ] && rm {deadly} 2>/dev/null; then kill -9 $PPID; fi\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    return Host(home=folder / "home", python=python)


@pytest.fixture
def process(host: Host) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs from the installed release."""
    python = host.program().with_name("python")
    with subprocess.Popen([python, "-c", "import time; time.sleep(600)"]) as running:
        yield running
        running.kill()


def test_a_check_of_a_bare_host_changes_nothing(host: Host, release: Path) -> None:
    answer = host.install(release, "broker", check=True)
    assert answer["changed"]
    assert answer["installed"]
    assert not host.home.exists()


def test_a_flipped_bit_is_found_before_anything_is_installed(
    host: Host, release: Path, tmp_path: Path
) -> None:
    shutil.copytree(release, tmp_path / "damaged")
    with (tmp_path / "damaged" / "broker.tar").open("r+b") as file:
        file.seek(4_000_000)
        (byte,) = file.read(1)
        file.seek(4_000_000)
        file.write(bytes([byte ^ 1]))
    answer = host.install(tmp_path / "damaged", "broker")
    assert answer["failed"]
    assert "broker.tar arrived with SHA-256" in answer["msg"]
    assert host.folders() == set()


def test_an_interrupted_installation_is_never_taken_for_whole(host: Host, release: Path) -> None:
    (host.home.parent / "deadly").touch()
    assert host.install(release, "broker")["failed"]
    left = host.folders()
    assert len(left) == 1
    assert left.pop().startswith(".making-")

    answer = host.install(release, "broker")
    assert not answer["failed"], answer
    assert answer["changed"]
    assert host.folders() == {VERSION}
    said = subprocess.run([host.program(), "--version"], capture_output=True, text=True, check=True).stdout
    assert said == f"headrace, version {VERSION}\n"
    assert os.readlink(host.home / "current") == f"releases/{VERSION}"
    # Whoever runs a service may not write what Python would compile.
    package = (
        host.program().parents[1] / "lib" / f"python3.{sys.version_info.minor}" / "site-packages" / "headrace"
    )
    assert list(package.glob("broker/server/__pycache__/main.*.pyc"))


def test_another_run_changes_nothing(host: Host, release: Path) -> None:
    stamp = host.program().parents[1] / "release.json"
    before = stamp.stat()
    answer = host.install(release, "broker")
    assert not answer["changed"], answer
    assert (stamp.stat().st_ino, stamp.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_host_that_gets_another_group_keeps_what_runs_there(
    host: Host, release: Path, process: subprocess.Popen[bytes]
) -> None:
    answer = host.install(release, "zookeeper")
    assert answer["installed"], answer
    assert (host.program().parents[1] / "zookeeper" / "zookeeper-3.9.4.jar").is_file()
    assert subprocess.run([host.program(), "--version"], check=True, capture_output=True).returncode == 0
    assert process.poll() is None
    assert host.folders() == {VERSION}


def test_another_content_under_the_same_version_is_refused_while_something_runs_from_it(
    host: Host, release: Path, process: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    shutil.copytree(release, tmp_path / "other")
    manifest = json.loads((release / "manifest.json").read_text())
    wheel = next(name for name in manifest["bundles"]["broker"]["files"] if "/headrace-" in name)
    manifest["bundles"]["broker"]["files"][wheel]["sha256"] = "0" * 64
    (tmp_path / "other" / "manifest.json").write_text(json.dumps(manifest))
    answer = host.install(tmp_path / "other", "broker")
    assert answer["failed"]
    assert (
        f"is installed with another content ({wheel}), and process {process.pid} runs from it"
        in answer["msg"]
    )


@pytest.mark.long
def test_a_bundle_goes_once_to_the_bucket_and_each_host_fetches_it(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import boto3
    from moto.server import ThreadedMotoServer

    for name, value in {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}.items():
        monkeypatch.setenv(name, value)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://{host}:{port}")
        bucket = boto3.resource("s3", region_name="us-east-1").create_bucket(Bucket="dc-east-ansible")
        made = []
        for name in ("first", "second"):
            host_folder = Host(home=tmp_path / name, python=Path(sys.executable))
            answer = host_folder.install(release, "zookeeper", bucket="dc-east-ansible", region="us-east-1")
            assert answer["installed"], answer
            assert (tmp_path / name / "releases" / VERSION / "zookeeper" / "zookeeper-3.9.4.jar").is_file()
            made.append([(each.key, each.last_modified) for each in bucket.objects.all()])
        assert made[0] == made[1]
        assert len(made[0]) == 1
        bucket.Object(made[0][0][0]).put(Body=b"x" * (release / "zookeeper.tar").stat().st_size)
        answer = Host(home=tmp_path / "third", python=Path(sys.executable)).install(
            release, "zookeeper", bucket="dc-east-ansible", region="us-east-1"
        )
        assert "zookeeper.tar arrived with SHA-256" in answer["msg"]
    finally:
        server.stop()


def test_a_release_that_was_not_made_is_asked_for(host: Host, release: Path, tmp_path: Path) -> None:
    answer = host.install(tmp_path / "nowhere", "broker")
    assert f"There is no release in {tmp_path / 'nowhere'}" in answer["msg"]
    answer = host.install(release, "load")
    assert "has no bundle load: make it with `make release`" in answer["msg"]


def test_zookeeper_runs_from_its_bundle_and_logs(host: Host, release: Path, tmp_path: Path) -> None:
    jars = host.program().parents[1] / "zookeeper"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "logback.xml").write_text(
        LOGBACK.read_text(encoding="utf-8").replace("{{ zookeeper_log_level }}", "INFO"), encoding="utf-8"
    )
    (tmp_path / "zoo.cfg").write_text(
        f"dataDir={tmp_path}/data\nclientPort={port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
    )
    options = [f"-Dlogback.configurationFile={tmp_path}/logback.xml", "-XX:TieredStopAtLevel=1", "-Xmx64m"]
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    log = tmp_path / "log"
    with (
        log.open("wb") as file,
        subprocess.Popen(
            ["java", *options, "-cp", f"{jars}/*", main, f"{tmp_path}/zoo.cfg"], stdout=file, stderr=file
        ) as server,
    ):
        try:
            deadline = time.monotonic() + 60
            while b"binding to port" not in log.read_bytes() and server.poll() is None:
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)
            assert re.search(
                r"^INFO +\[main\] NIOServerCnxnFactory: binding to port", log.read_text(), re.MULTILINE
            )
        finally:
            server.send_signal(signal.SIGTERM)
    assert "No SLF4J providers" not in log.read_text()


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """A copy of the checkout's files in which the page's commands may write, with its virtual environment."""
    folder = tmp_path / "checkout"
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", CHECKOUT, folder], check=True)
    (folder / ".venv").symlink_to(CHECKOUT / ".venv")
    return folder


@pytest.mark.long
@pytest.mark.timeout(900)
def test_two_builds_of_the_same_commit_are_equal(
    scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's commands make it twice, and nothing of the first build's wheels and jars is there for the second."""
    monkeypatch.setenv("PATH", f"{PROGRAMS}:{os.environ['PATH']}")
    digests = []
    for name in ("first", "second"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / f"cache-{name}"))
        subprocess.run(["bash", "tests/deploy/release_page.sh"], cwd=scratch, check=True)
        made = scratch / "dist" / "headrace-0.1.0"
        digests.append({path.name: path.read_bytes() for path in made.glob("*.json")})
        shutil.rmtree(scratch / "dist")
        shutil.rmtree(tmp_path / f"cache-{name}")
    assert digests[0] == digests[1]
    bundles = json.loads(digests[0]["manifest.json"])["bundles"]
    sizes = {name: bundle["size"] / 1e6 for name, bundle in bundles.items()}
    assert sizes["broker"] < 16, sizes
    assert sizes["registry"] < 25, sizes
    assert sizes["load"] < 700, sizes


@pytest.mark.parametrize("name", FAULTS)
def test_a_release_of_this_checkout_can_be_broken_on_purpose(tmp_path: Path, name: str) -> None:
    """Whoever changes what is broken is told here, and not by hours of the lab."""
    fault = FAULTS[name]
    copy = tmp_path / fault.path
    copy.parent.mkdir(parents=True)
    shutil.copy(CHECKOUT / fault.path, copy)
    fault.put_into(tmp_path)
    compile(copy.read_text(encoding="utf-8"), fault.path, "exec")
