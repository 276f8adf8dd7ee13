"""A secret on hosts: in one file and in the process that it is for, and in nothing that anybody else sees."""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from lab_kit import CHECKOUT, PROGRAMS, Lab, Played, eventually

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.timeout(1200)]
HOST = "offline-load-1"
SERVICES = ("headrace-load", "headrace-auditor")
CANARIES = ("c4n4ry-1", "c4n4ry-2", "c4n4ry-3")
WAREHOUSE = "sqlite:////var/lib/headrace/warehouse/catalog.db?timeout=30"
# Where nothing of a secret may be; /run/credentials is the services' own, and looked at by itself.
PLACES = ("/etc", "/var", "/root", "/tmp", "/run/systemd", "/run/log", "/opt/headrace/releases/0.1.0/bin")
# What every process was started with, for root to see.
PROCESSES = "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'"


@dataclass(frozen=True)
class Vault:
    """Files of variables that ansible-vault encrypts."""

    folder: Path

    def options(self, name: str, uri: str, canary: str) -> list[str]:
        """The options of a play that give the hosts such a file; the catalog is found by the secret alone."""
        file, password = self.folder / f"{name}.yml", self.folder / "password"
        password.write_text("open sesame\n")
        variables = {
            "headrace_catalog_properties": {"type": "sql"},
            "headrace_catalog_secret": {"uri": uri, "s3.secret-access-key": canary},
        }
        file.write_text(json.dumps(variables))
        subprocess.run(
            [PROGRAMS / "ansible-vault", "encrypt", "--vault-password-file", password, file],
            check=True,
            capture_output=True,
        )
        return ["-e", f"@{file}", "--vault-password-file", str(password)]


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return Vault(tmp_path)


@pytest.fixture(autouse=True)
def without_a_secret_afterwards(rolled_out: Lab) -> Iterator[None]:
    yield
    after = rolled_out.play("site.yml", "--limit", HOST)
    assert after.returncode == 0, after.output[-6000:]


def process_ids(lab: Lab) -> dict[str, int]:
    return {service: lab.process_id(HOST, service) for service in SERVICES}


def holders(lab: Lab, canary: str) -> set[str]:
    """Where on the host the canary is: files, units, the journal, what processes were started with."""
    files = lab.asked(
        HOST, "grep", "--recursive", "--files-with-matches", "--text", canary, *PLACES
    ).stdout.split()
    texts = {
        "units": lab.on(HOST, "systemctl", "show", *SERVICES) + lab.on(HOST, "systemctl", "cat", *SERVICES),
        "journal": lab.on(HOST, "journalctl", "--no-pager", "--all", "--output=verbose"),
        "processes": lab.on(HOST, "sh", "-c", PROCESSES),
    }
    return {*files, *(name for name, text in texts.items() if canary in text)}


def bundled(lab: Lab, folder: Path) -> bytes:
    """All that a support bundle of the host holds."""
    folder.mkdir()
    played = lab.play("support_bundle.yml", "--limit", HOST, "-e", f"support_dir={folder}")
    assert played.returncode == 0, played.output[-6000:]
    (archive,) = folder.glob("headrace-*.tar.gz")
    with tarfile.open(archive) as tar:
        return b"".join(file.read() for member in tar if (file := tar.extractfile(member)))


def test_a_secret_is_seen_nowhere_but_in_the_services_own_files(rolled_out: Lab, vault: Vault) -> None:
    lab, plays = rolled_out, list[Played]()

    def play(*options: str) -> Played:
        plays.append(lab.play("site.yml", "--limit", HOST, "--diff", "-vvv", *options))
        return plays[-1]

    first = vault.options("first", WAREHOUSE, CANARIES[0])
    assert play("--check", *first).returncode == 0, plays[-1].output[-6000:]
    assert holders(lab, CANARIES[0]) == set()
    assert play(*first).returncode == 0, plays[-1].output[-6000:]
    files = {f"/etc/headrace/{service}/catalog.secret" for service in SERVICES}
    assert holders(lab, CANARIES[0]) == files
    for file in files:
        assert lab.on(HOST, "stat", "--format=%a %U %G", file).strip() == "640 root headrace"

    # The services work with it, and read a copy that is theirs alone.
    before = process_ids(lab)
    assert eventually(lambda: all(lab.is_active(HOST, service) for service in SERVICES))
    for service, pid in before.items():
        own = f"/run/credentials/{service}.service/catalog.secret"
        assert own in lab.on(HOST, "sh", "-c", f"tr '\\0' ' ' </proc/{pid}/cmdline")
        assert CANARIES[0] in lab.on(HOST, "cat", own)
        assert lab.asked(HOST, "setpriv", "--reuid=nobody", "--clear-groups", "cat", own).returncode != 0

    if (CHECKOUT / "playbooks" / "support_bundle.yml").exists():
        assert CANARIES[0].encode() not in bundled(lab, vault.folder / "bundle")

    # A secret with which they cannot work is told of with their logs; another one puts it right.
    wrong = vault.options("wrong", "sqlite:////nowhere/catalog.db", CANARIES[1])
    failed = play(*wrong, "-e", "service_timeout_s=30")
    assert failed.returncode != 0
    assert "does not serve after 30 s" in failed.output
    changed = play(*vault.options("changed", WAREHOUSE, CANARIES[2]))
    assert changed.returncode == 0, changed.output[-6000:]
    assert all(process_ids(lab)[service] not in (0, pid) for service, pid in before.items())
    assert holders(lab, CANARIES[2]) == files
    assert holders(lab, CANARIES[0]) | holders(lab, CANARIES[1]) == set()

    for played in plays:
        assert not [canary for canary in CANARIES if canary in played.output]

    # What nobody wants any more is gone.
    gone = lab.play("site.yml", "--limit", HOST)
    assert gone.returncode == 0, gone.output[-6000:]
    assert holders(lab, CANARIES[2]) == set()
    assert lab.play("site.yml", "--limit", HOST, "--check").changed() == {}


def test_a_flipped_bit_in_a_bundle_is_refused_before_any_host_is_touched(
    rolled_out: Lab, tmp_path: Path
) -> None:
    release = CHECKOUT / "dist" / "headrace-0.1.0"
    for file in release.iterdir():
        (tmp_path / file.name).symlink_to(file)
    bundle = tmp_path / "broker.tar"
    content = bytearray(bundle.read_bytes())
    content[len(content) // 2] ^= 1
    bundle.unlink()
    bundle.write_bytes(content)
    refused = rolled_out.play("site.yml", "-e", f"release_dir={tmp_path}")
    assert refused.returncode != 0
    assert f"{bundle} has the SHA-256 " in refused.output
    assert refused.module_runs.total() == 0
