"""Variables of the inventory that nobody would read are named, with what to do, and end the run before its first play."""

from __future__ import annotations

import importlib.util
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.parsing.vault import VaultLib, VaultSecret

PLUGIN = Path(__file__).resolve().parents[3] / "playbooks" / "callback_plugins" / "headrace_variables.py"
specification = importlib.util.spec_from_file_location("headrace_variables", PLUGIN)
assert specification is not None
assert specification.loader is not None
plugin: Any = importlib.util.module_from_spec(specification)
specification.loader.exec_module(plugin)

SECRETS = [("default", VaultSecret(b"the right one"))]
GIVE = "give it in a file that --vault-password-file or ANSIBLE_VAULT_PASSWORD_FILE names, or to --ask-vault-pass."


def told(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    password: bytes | None = None,
    source: str = "",
    variables: dict[str, Any] | None = None,
    good: bool = False,
) -> list[str]:
    """What is said of an inventory with the group `live`, which has `variables`; unless it is good, the run ends."""
    loader = DataLoader()
    loader.set_vault_secrets([("default", VaultSecret(password))] if password else [])
    live = SimpleNamespace(vars=variables or {})
    inventory = SimpleNamespace(
        groups={"all": SimpleNamespace(vars={}), "live": live},
        hosts={"east-1": SimpleNamespace(vars={})},
        _sources=[str(folder / source)],
    )
    manager = SimpleNamespace(_inventory=inventory, _loader=loader)
    callback = plugin.CallbackModule()
    said: list[str] = []
    monkeypatch.setattr(callback._display, "error", lambda text, **_: said.append(text))
    with nullcontext() if good else pytest.raises(SystemExit, match="1"):
        callback.v2_playbook_on_play_start(SimpleNamespace(get_variable_manager=lambda: manager))
    return said


def write(path: Path, text: str, encrypted: bool = False) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(VaultLib(SECRETS).encrypt(text, secret=SECRETS[0][1]) if encrypted else text.encode())
    return path


def test_an_encrypted_file_says_that_it_needs_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "group_vars" / "live.yml", "canary: 1\n", encrypted=True)
    assert told(tmp_path, monkeypatch) == [f"{path} is encrypted with a password, and none was given: {GIVE}"]
    assert told(tmp_path, monkeypatch, b"the wrong one") == [
        f"{path} is encrypted with another password than was given: {GIVE}"
    ]
    assert told(tmp_path, monkeypatch, b"the right one", good=True) == []


def test_every_file_that_is_no_list_of_variables_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = write(tmp_path / "group_vars" / "all.yml", "a: 1\n b: 2\n")
    listed = write(tmp_path / "host_vars" / "east-1", "- a\n")
    assert told(tmp_path, monkeypatch, source="hosts.yml") == [
        f"{broken}, line 2, cannot be read: YAML parsing failed: Mapping values are not allowed in this context.",
        f"{listed} holds no variables: write each as NAME: VALUE.",
    ]


def test_what_ansible_reads_for_nobody_or_finds_empty_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "group_vars" / "gone.yml", "a: 1\n b: 2\n")
    write(tmp_path / "group_vars" / "all.yml", "# nothing yet\n")
    assert told(tmp_path, monkeypatch, good=True) == []


def test_what_follows_from_the_inventory_is_not_set_in_vain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "group_vars" / "all.yml", "headrace_ports: {broker: 19092}\nheadrace_user: kit\n")
    reason = "which follows from the rest of the inventory and is not read there: take it out."
    assert told(tmp_path, monkeypatch, variables={"headrace_tier": "live"}) == [
        f"{path} sets headrace_ports, {reason}",
        f"The group live sets headrace_tier, {reason}",
    ]


def test_what_is_set_where_it_counts_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ansible takes these before the plays' own."""
    write(tmp_path / "group_vars" / "live.yml", "headrace_service_prefix: archive-\n")
    write(tmp_path / "host_vars" / "east-1.yml", "headrace_service_prefix: archive-\n")
    assert told(tmp_path, monkeypatch, good=True) == []


def test_what_follows_from_the_inventory_is_not_set_for_some_hosts_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mirror would ask a datacenter's brokers at the ports of its own."""
    group = write(tmp_path / "group_vars" / "live.yml", "headrace_ports: {broker: 19092}\n")
    host = write(tmp_path / "host_vars" / "east-1.yml", "headrace_broker_port: 19092\n")
    reason = "which follows from the rest of the inventory, and other hosts go by that: take it out."
    assert told(tmp_path, monkeypatch) == [
        f"{group} sets headrace_ports, {reason}",
        f"{host} sets headrace_broker_port, {reason}",
    ]
