"""A bad inventory ends in preflight.yml with a sentence that says what to change, before anything is touched."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deployments import Deployment
from long_runs import first_of

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(sys.executable).parent


def told(output: str) -> list[str]:
    """The lines for people, without those in which Ansible has a whole result."""
    return [line for line in output.splitlines() if not line.startswith("fatal: ")]


def test_preflight_tells_at_once_all_that_is_wrong_with_an_inventory(deployment: Any) -> None:
    deployment.edit("broker_id: 2", "broker_id: 1, headrace_loaded_topic: [pageviews]")
    deployment.edit(
        "    zookeeper:\n      hosts:\n",
        "    brokers: {hosts: {dc-east-broker-1: }}\n    zookeeper:\n      hosts:\n",
    )
    wrong = {
        "headrace_live_topics": [{"name": "page views", "partitions": 0}],
    }
    result = deployment.play("preflight.yml", "-e", json.dumps(wrong))
    assert result.returncode != 0
    for sentence in (
        "dc-east-broker-1 and dc-east-broker-2 in datacenter dc-east have the same broker_id 1",
        "The inventory has a group brokers, which no play reads: rename it to broker",
        "has the variable headrace_loaded_topic, which nothing of the kit reads: the nearest name that is read is "
        "headrace_loaded_topics.",
        "has in headrace_live_topics the topic 'page views' whose name Kafka refuses",
        "has in headrace_live_topics the topic 'page views' with 0 partitions: it must have at least 1.",
        "has in headrace_loaded_topics the topic 'pageviews', which is in no live datacenter's headrace_live_topics",
    ):
        assert sentence in result.stdout
    assert {line.count("has in headrace_") for line in told(result.stdout)} == {0, 1}


@pytest.mark.acceptance
def test_an_inventory_that_cannot_be_read_is_a_failure(deployment: Any) -> None:
    deployment.edit("    zookeeper:\n", "    zookeeper: [\n")
    for playbook in ("site.yml", "down.yml"):
        result = deployment.play(playbook)
        assert result.returncode != 0, playbook
        assert f"Completely failed to parse inventory source {deployment.inventory}" in result.stderr
    assert not deployment.root.exists()


@pytest.mark.acceptance
def test_a_file_of_variables_that_cannot_be_read_is_named(deployment: Any) -> None:
    secret = deployment.inventory / "group_vars" / "offline.yml"
    secret.write_text("$ANSIBLE_VAULT;1.1;AES256\n61\n", encoding="utf-8")
    deployment.edit("    broker:\n", "    zookeeper: {}\n    broker:\n")
    twice = deployment.play("drained.yml")
    assert twice.returncode == 1
    assert "Found duplicate mapping key 'zookeeper'" in twice.stderr
    deployment.edit("    zookeeper: {}\n", "")
    encrypted = deployment.play("drained.yml")
    assert encrypted.returncode == 1
    assert f"{secret} is encrypted with a password, and none was given" in encrypted.stderr


def encrypted_by_the_right_one(password: Path) -> str:
    """A value of a variable, encrypted with the password that is put into that file."""
    password.write_text("the right one\n")
    encrypt = [
        str(PROGRAMS / "ansible-vault"),
        "encrypt_string",
        f"--vault-password-file={password}",
        "canary",
    ]
    return subprocess.run(encrypt, check=True, capture_output=True, text=True).stdout


@pytest.mark.acceptance
def test_a_value_in_a_variable_that_cannot_be_decrypted_is_named(deployment: Any, tmp_path: Path) -> None:
    password = tmp_path / "password"
    locked = encrypted_by_the_right_one(password)
    (deployment.inventory / "group_vars" / "offline.yml").write_text(
        f"registry_users_secret: {locked}\nheadrace_catalog_secret:\n  s3.session-token: {locked}"
    )
    password.write_text("the wrong one\n")
    for options in ((), ("--vault-password-file", str(password))):
        result = deployment.play("preflight.yml", "--tags", "inventory", *options)
        assert result.returncode == 1
        for name in ("registry_users_secret", "headrace_catalog_secret"):
            assert (
                f"has a {name} that is encrypted with another password than was given, or none was: give it in a file that "
                "--vault-password-file or ANSIBLE_VAULT_PASSWORD_FILE names, or to --ask-vault-pass."
            ) in result.stdout
        assert "must be" not in result.stdout


@pytest.mark.acceptance
def test_a_password_of_ansibles_own_that_cannot_be_decrypted_is_named(
    deployment: Any, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    encrypted = encrypted_by_the_right_one(password)
    variables = deployment.inventory / "group_vars" / "offline.yml"
    variables.write_text(f"ansible_become_password: {encrypted}")
    result = deployment.play("down.yml")
    assert result.returncode == 1
    assert (
        f"{variables} has an ansible_become_password that is encrypted with another password than was given, or none was: give "
        "it in a file that --vault-password-file or ANSIBLE_VAULT_PASSWORD_FILE names, or to --ask-vault-pass."
    ) in result.stderr
    assert "canary" not in result.stdout + result.stderr
    given = deployment.play("drained.yml", "--vault-password-file", str(password))
    assert given.returncode == 0, given.stdout


@pytest.mark.acceptance
def test_an_inventory_without_hosts_is_a_failure(deployment: Any) -> None:
    (deployment.inventory / "hosts.yml").write_text("all: {}\n", encoding="utf-8")
    for playbook in ("site.yml", "down.yml"):
        result = deployment.play(playbook)
        assert result.returncode != 0, playbook
        assert "The inventory has no hosts: name one with -i, such as inventory/local." in result.stdout


@pytest.mark.acceptance
def test_a_name_in_an_option_that_is_not_there_is_a_failure(deployment: Any) -> None:
    result = deployment.play("down.yml", "--limit", "dc-east-broker-1,dc-east-broker-9", "--tags", "broker")
    assert result.returncode == 1
    assert "--limit names dc-east-broker-9, which is neither a host nor a group" in result.stderr
    assert "--tags names broker, which is no tag of down.yml: it has none" in result.stderr


# A roll-out does before it begins.
@pytest.mark.long
def test_preflight_accepts_the_local_inventory(deployment: Any) -> None:
    result = deployment.play("preflight.yml")
    assert result.returncode == 0, result.stdout
    assert not deployment.root.exists()


@pytest.mark.parametrize(
    ("connection", "reason"),
    first_of(
        1,
        [
            ("ssh", "(ssh to 127.0.0.1: Data could not be sent to remote host "),
            ("community.docker.docker", "(docker to 127.0.0.1: container this-machine is not running)"),
        ],
    ),
)
@pytest.mark.acceptance
def test_a_machine_that_does_not_answer_is_named_with_what_is_undone(
    deployment: Any, connection: str, reason: str
) -> None:
    programs = deployment.root.parent / "programs"
    programs.mkdir()
    docker = programs / "docker"
    docker.write_text(
        "#!/bin/sh\n"
        "case $1 in\n"
        "  version) echo 26.1.5 ;;\n"
        "  exec) echo 'Error response from daemon: container this-machine is not running' >&2; exit 1 ;;\n"
        "esac\n"
    )
    docker.chmod(0o755)
    to = f"ansible_connection: {connection}, ansible_host: 127.0.0.1, ansible_port: 1"
    deployment.edit("        this-machine:\n", f"        this-machine: {{{to}}}\n")
    result = deployment.play("site.yml", PATH=f"{programs}:{os.environ['PATH']}")
    assert result.returncode != 0
    assert f"Host this-machine does not answer {reason}" in result.stdout
    assert (
        'the play "Check the machines" is unfinished, and nothing was done of: Prepare the machines, Install the release, '
        "Start supervisord, Run ZooKeeper, Run the brokers, Create the topics, "
    ) in result.stdout
    assert "PLAY [Start supervisord]" not in result.stdout
    assert "or leave it out with --limit 'all:!this-machine'." in result.stdout


@pytest.mark.acceptance
def test_preflight_names_a_variable_of_the_wrong_type(deployment: Any) -> None:
    deployment.edit("broker_id: 2", "broker_id: two")
    result = deployment.play("preflight.yml")
    assert result.returncode != 0
    assert "Host dc-east-broker-2 has the broker_id two: it must be a whole number from 0 to" in result.stdout


@pytest.mark.acceptance
def test_preflight_names_the_service_whose_port_is_taken(deployment: Any) -> None:
    with socket.create_server(("127.76.1.2", 9092)), socket.create_server(("127.76.1.2", 9404)):
        result = deployment.play("preflight.yml")
    assert result.returncode != 0
    for port in (9092, 9404):
        sentence = f"dc-east-broker-2 cannot listen at 127.76.1.2:{port}: process {os.getpid()} ("
        assert sentence in result.stdout
        (line,) = [line for line in told(result.stdout) if sentence in line]
        assert line.count("cannot listen") == 1
    assert not deployment.root.exists()


# preflight.yml is a part of site.yml, which others here give the example, and a roll-out runs both with the local one.
@pytest.mark.parametrize(
    ("inventory", "playbook"),
    first_of(
        1, [("example", "down.yml"), ("example", "site.yml"), ("local", "down.yml"), ("local", "site.yml")]
    ),
)
def test_playbooks_are_sound_for_every_inventory(checked_in: Any, playbook: str, inventory: str) -> None:
    result = checked_in(inventory).play(playbook, "--syntax-check")
    assert result.returncode == 0, result.stdout + result.stderr


REASON = ("-e", "drain_reason='its disk is replaced'")
ONE_HOST = ("--limit", "dc-east-broker-1")
CHECKED: list[tuple[str, tuple[str, ...], str]] = [
    ("certificates.yml", (), ""),
    ("down.yml", (), ""),
    ("drain.yml", (*ONE_HOST, *REASON), ""),
    ("drained.yml", (), ""),
    ("health.yml", (), "things are not well, as told above."),
    ("prometheus.yml", (), ""),
    ("restore.yml", ONE_HOST, ""),
    ("rollback.yml", (), "The inventory has no hosts in the group release"),
    ("rolling_restart.yml", (), "tells who is the controller, and nothing was restarted"),
    ("rotate_certificates.yml", (), ""),
    ("support_bundle.yml", (), ""),
    ("upgrade.yml", (), "The inventory has no hosts in the group release"),
]
"""With what each ends where nothing was rolled out. Others tell of site.yml and preflight.yml; members have no such inventory."""


@pytest.mark.parametrize(
    ("playbook", "arguments", "said"), first_of(1, CHECKED), ids=[name for name, _, _ in CHECKED]
)
def test_every_play_can_be_checked_before_anything_was_rolled_out(
    deployment: Deployment, playbook: str, arguments: tuple[str, ...], said: str
) -> None:
    folder = deployment.root.parent
    own = ("-e", f"support_dir={folder}/support", "-e", f"prometheus_dir={folder}/prometheus")
    before = sorted(folder.rglob("*"))
    result = deployment.play(playbook, *arguments, *own, "--check", "--diff")
    assert result.returncode == (1 if said else 0), result.stdout + result.stderr
    assert said in result.stdout
    assert "Traceback" not in result.stdout + result.stderr
    assert sorted(folder.rglob("*")) == before


@pytest.mark.acceptance
def test_topics_are_created_by_another_broker_where_the_first_is_left_out(deployment: Deployment) -> None:
    result = deployment.play("site.yml", "--check", "--limit", "dc_east:!dc-east-broker-1")
    assert result.returncode == 0, result.stdout + result.stderr
    _, _, said = result.stdout.partition("Create the datacenter's topics]")
    assert "changed: [dc-east-broker-2]" in said.partition("PLAY")[0]


@pytest.mark.acceptance
@pytest.mark.parametrize("playbook", ["drain.yml", "restore.yml"])
def test_a_machine_under_services_is_not_drained_or_restored_without_a_word(
    deployment: Deployment, playbook: str
) -> None:
    result = deployment.play(playbook, "--limit", "this-machine", *REASON)
    assert result.returncode == 1
    assert (
        "--limit names no host that runs a service which can be drained: name one of zookeeper, "
        in result.stdout
    )


@pytest.fixture
def example(tmp_path: Path) -> Deployment:
    """A copy of inventory/example with what it leaves to those who copy it: log-ins."""
    inventory = tmp_path / "mine"
    shutil.copytree(CHECKOUT / "inventory" / "example", inventory)
    for tier in ("live", "offline"):
        (inventory / "group_vars" / f"{tier}.yml").write_text(
            "headrace_logins_secret: [{username: kit-1, password: c4n4ry-of-the-kit}]\n"
        )
    return Deployment(inventory=inventory, root=tmp_path / "var")


@pytest.mark.acceptance
def test_the_example_inventory_passes_every_check_that_needs_no_host(example: Deployment) -> None:
    refused = example.play("preflight.yml", "--tags", "inventory")
    assert refused.returncode != 0
    assert "ca.pem holds no certificates to trust (No such file or directory): " in refused.stdout
    assert example.play("certificates.yml", "--check").returncode == 0
    assert not (example.inventory / "certificates").exists()
    made = example.play("certificates.yml")
    assert made.returncode == 0, made.stdout
    result = example.play("preflight.yml", "--tags", "inventory")
    assert result.returncode == 0, result.stdout
    assert "c4n4ry" not in refused.stdout + made.stdout + result.stdout


def test_the_example_asks_for_log_ins(checked_in: Any) -> None:
    result = checked_in("example").play("preflight.yml", "--tags", "inventory")
    assert result.returncode != 0
    assert (
        "headrace_security is tls_sasl and there is no headrace_logins_secret: give it one" in result.stdout
    )


@pytest.mark.long
def test_a_bundle_with_a_flipped_bit_is_refused_before_any_host_is_asked(
    example: Deployment, tmp_path: Path
) -> None:
    assert example.play("certificates.yml").returncode == 0
    bundles = {}
    for name in ("audit", "broker", "load", "registry", "zookeeper"):
        (tmp_path / f"{name}.tar").write_text(name)
        digest = hashlib.sha256(name.encode()).hexdigest()
        bundles[name] = {
            "file": f"{name}.tar",
            "size": len(name),
            "sha256": digest,
            "files": {name: {"sha256": name}},
        }
    manifest = {"version": "0.1.0", "python": "3.11", "machine": "x86_64", "bundles": bundles}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    (tmp_path / "load.tar").write_text("Load")
    result = example.play("site.yml", "-e", f"release_dir={tmp_path}")
    assert result.returncode != 0
    assert f"{tmp_path}/load.tar has the SHA-256 " in result.stdout
    assert "ssh" not in result.stdout
    # Going back needs nothing of what lies here: a preflight of its own asks the hosts.
    back = example.play("rollback.yml", "-e", f"release_dir={tmp_path}", "--limit", "zookeeper[0]")
    assert "has the SHA-256" not in back.stdout
    assert "does not answer (ssh to zk-1.east.example.com" in back.stdout


@pytest.mark.parametrize("name", ["example", "docker-small"])
def test_a_vault_beside_an_inventory_reaches_the_services_that_read_secrets(
    name: str, tmp_path: Path
) -> None:
    """docs/rollout.md names its place, and test_deploy_rollout.py uses it in inventory/local.

    Ansible would pass over group_vars/all.yml if there were a folder of that name.
    """
    inventory = tmp_path / name
    shutil.copytree(CHECKOUT / "inventory" / name, inventory)
    vault, password = inventory / "group_vars" / "offline.yml", tmp_path / "password"
    vault.write_text("headrace_catalog_secret: {s3.session-token: c4n4ry}\n")
    password.write_text("open sesame\n")
    environment = {**os.environ, "ANSIBLE_VAULT_PASSWORD_FILE": str(password), "ANSIBLE_NOCOLOR": "1"}

    def run(*command: Any) -> str:
        return subprocess.run(
            [PROGRAMS / command[0], *command[1:]],
            cwd=CHECKOUT,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    run("ansible-vault", "encrypt", vault)
    assert "c4n4ry" not in vault.read_text()
    found = json.loads(run("ansible-inventory", "-i", inventory, "--list"))
    for host, variables in found["_meta"]["hostvars"].items():
        is_offline = variables.get("headrace_datacenter") == "offline"
        assert variables.get("headrace_catalog_secret") == (
            {"s3.session-token": "c4n4ry"} if is_offline else None
        ), host


def test_every_role_states_its_variables() -> None:
    roles = CHECKOUT / "playbooks" / "roles"
    for role in roles.iterdir():
        assert (role / "meta" / "argument_specs.yml").is_file(), role.name
