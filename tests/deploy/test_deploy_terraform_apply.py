"""The small example, really applied and destroyed against moto, and the inventory that comes of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from terraform_kit import CHECKOUT, Workspace, moto_pipeline, needs_provider

# The deeper form of what the modules' tests check with mocks, and test_deploy_terraform_security.py in plans.
pytestmark = [needs_provider, pytest.mark.timeout(1200), pytest.mark.long]

PROGRAMS = Path(sys.executable).parent
SMALL = "-var-file=examples/small.tfvars"
# What moto makes of what it was told, so that a second plan wants to say it again: by resource type, the attributes.
MOTO_FORGETS = {
    # It keeps the groups of a machine's network interface, and answers an empty list for the machine.
    "aws_instance": {"vpc_security_group_ids"},
    # It takes a zone for private only when the request says so beside naming a network, which the provider does not.
    "aws_route53_zone": {"vpc"},
    # It drops the description of a rule that names a group or a prefix list, not of one that names a block.
    "aws_vpc_security_group_egress_rule": {"description"},
    "aws_vpc_security_group_ingress_rule": {"description"},
}


@dataclass(frozen=True)
class Applied:
    """The applied example, and the inventory written from it."""

    folder: Path
    workspace: Workspace
    inventory: Path

    def ansible(self, program: str, *arguments: str) -> str:
        """An Ansible command with this inventory, which has to succeed; its output."""
        done = subprocess.run(
            [str(PROGRAMS / program), "-i", str(self.inventory), *arguments],
            cwd=CHECKOUT,
            env={**os.environ, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        return done.stdout


def run_page(folder: Path, settings: Mapping[str, str], script: str) -> None:
    """The commands of docs/terraform.md, in a folder that looks like a checkout."""
    parallel = {f"TF_CLI_ARGS_{command}": "-parallelism=40" for command in ("apply", "destroy")}
    done = subprocess.run(
        ["bash", "-x", str(CHECKOUT / "tests" / "deploy" / script)],
        cwd=folder,
        env={**settings, **parallel, "PATH": f"{PROGRAMS}:{settings['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-8000:]


@pytest.fixture(scope="module")
def applied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Applied]:
    folder = tmp_path_factory.mktemp("apply")
    for name in ("playbooks", "ansible.cfg"):
        (folder / name).symlink_to(CHECKOUT / name)
    shutil.copytree(CHECKOUT / "scripts", folder / "scripts")
    inventory = folder / "inventory" / "aws"
    shutil.copytree(CHECKOUT / "inventory" / "aws", inventory, ignore=shutil.ignore_patterns("hosts.yml"))
    for workspace in moto_pipeline(folder):
        run_page(folder, workspace.settings, "terraform_page_up.sh")
        yield Applied(folder, workspace, inventory)


def changed_attributes(change: dict[str, Any]) -> set[str]:
    """The attributes that a planned change sets to something else than they are."""
    before, after = change["before"] or {}, change["after"] or {}
    return {name for name in after if before.get(name) != after[name]}


def test_a_second_plan_changes_nothing_but_what_moto_forgets(applied: Applied) -> None:
    plan = applied.workspace.plan_as_data(SMALL)
    forgotten = set()
    for resource in plan["resource_changes"]:
        if resource["change"]["actions"] in (["no-op"], ["read"]):
            continue
        assert resource["change"]["actions"] == ["update"], resource["address"]
        changed = changed_attributes(resource["change"])
        assert changed <= MOTO_FORGETS.get(resource["type"], set()), (resource["address"], changed)
        forgotten |= {(resource["type"], attribute) for attribute in changed}
    assert forgotten == {(kind, name) for kind, names in MOTO_FORGETS.items() for name in names}
    assert all(output["actions"] == ["no-op"] for output in plan["output_changes"].values())


def test_a_replaced_broker_gets_its_identity_and_its_volume_back_whatever_comes_beside_it(
    applied: Applied,
) -> None:
    host, new = '["dc-east-broker-1"]', '["dc-east-broker-2"]'
    datacenter = 'module.datacenters_us_east_1["dc-east"]'
    cluster = f"{datacenter}.module.cluster"
    more = applied.workspace.folder / "more.tfvars"
    small = (applied.workspace.folder / "examples" / "small.tfvars").read_text(encoding="utf-8")
    more.write_text(small.replace("{ count = 1,", "{ count = 2,", 1), encoding="utf-8")
    plan = applied.workspace.plan_as_data(
        "-var-file=more.tfvars", f"-replace={cluster}.aws_instance.this{host}"
    )
    changes = {resource["address"]: resource["change"] for resource in plan["resource_changes"]}
    assert {address for address, change in changes.items() if change["actions"] == ["create"]} == {
        f"{cluster}.aws_instance.this{new}",
        f"{cluster}.aws_ebs_volume.disposable{new}",
        f"{cluster}.aws_volume_attachment.data{new}",
        f"{datacenter}.module.load_balancer[0].aws_lb_target_group_attachment.broker{new}",
    }
    assert not [address for address, change in changes.items() if change["actions"] == ["delete"]]
    replaced = {
        address for address, change in changes.items() if set(change["actions"]) == {"create", "delete"}
    }
    assert replaced == {f"{cluster}.aws_instance.this{host}", f"{cluster}.aws_volume_attachment.data{host}"}
    machine, attachment = (changes[address] for address in sorted(replaced))
    for name in ("private_ip", "subnet_id", "iam_instance_profile", "tags"):
        assert machine["after"][name] == machine["before"][name]
    assert attachment["after"]["volume_id"] == attachment["before"]["volume_id"]
    assert changes[f"{cluster}.aws_ebs_volume.disposable{host}"]["actions"] == ["no-op"]


def test_ansible_reads_the_inventory(applied: Applied) -> None:
    listed = json.loads(applied.ansible("ansible-inventory", "--list"))
    hosts = listed["_meta"]["hostvars"]
    assert sorted(listed["broker"]["hosts"]) == ["dc-east-broker-1", "dc-west-broker-1", "offline-broker-1"]
    assert listed["load"]["hosts"] == ["offline-load-1"]
    assert "haproxy" not in listed or not listed["haproxy"].get("hosts")
    assert sorted(listed["live"]["children"]) == ["dc_east", "dc_west"]
    broker = hosts["dc-west-broker-1"]
    assert (broker["broker_id"], broker["broker_rack"], broker["headrace_address"]) == (1, "a", "10.2.0.10")
    assert broker["headrace_datacenter"] == "dc-west"
    assert broker["headrace_publish_address"] == "publish.dc-west.headrace-small.internal:9092"
    assert broker["ansible_aws_ssm_instance_id"].startswith("i-")
    assert broker["ansible_aws_ssm_region"] == "us-west-2"
    assert "headrace_publish_address" not in hosts["offline-broker-1"]
    assert hosts["offline-load-1"]["headrace_warehouse"].startswith("s3://headrace-small-offline-warehouse-")
    assert hosts["offline-zookeeper-1"]["zookeeper_id"] == 1


def test_the_inventory_has_the_names_of_the_local_one(applied: Applied) -> None:
    listed = json.loads(applied.ansible("ansible-inventory", "--list"))
    local = subprocess.run(
        [str(PROGRAMS / "ansible-inventory"), "-i", str(CHECKOUT / "inventory" / "local"), "--list"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    known = json.loads(local.stdout)
    for group in ("zookeeper", "broker", "registry", "audit", "load"):
        ours, theirs = (
            set(found["_meta"]["hostvars"][found[group]["hosts"][0]]) for found in (listed, known)
        )
        local_only = {"headrace_machine", "headrace_root", "haproxy_connections_max"}
        # Hosts have ZooKeeper from a release; here its jars are PySpark's.
        local_only |= {"zookeeper_jars_dir", "zookeeper_classpath", "zookeeper_java_options"}
        assert theirs - local_only <= ours, group


@pytest.mark.parametrize("playbook", ["preflight.yml", "site.yml", "down.yml"])
def test_playbooks_are_sound_for_the_inventory(applied: Applied, playbook: str) -> None:
    applied.ansible("ansible-playbook", "playbooks/" + playbook, "--syntax-check")


def test_preflight_finds_nothing_wrong_with_groups_and_variables(applied: Applied) -> None:
    applied.ansible("ansible-playbook", "playbooks/preflight.yml", "--tags", "inventory")


def test_services_that_open_tables_are_told_of_the_catalog(applied: Applied) -> None:
    said = applied.ansible(
        *("ansible", "offline-load-1", "--playbook-dir", "playbooks", "-e", "service_name=load"),
        *(
            "-m",
            "ansible.builtin.debug",
            "-a",
            "msg={{ headrace_catalog_options }}:{{ headrace_catalog_files }}",
        ),
    )
    assert " --catalog-properties /etc/headrace/load/catalog.properties:" in said
    for line in ("type=glue", "glue.region=us-east-1", "s3.region=us-east-1"):
        assert line in said


def test_the_inventory_is_yaml_of_one_line_a_host(applied: Applied) -> None:
    text = (applied.inventory / "hosts.yml").read_text(encoding="utf-8")
    assert text.startswith("# Written by scripts/terraform_inventory.py")
    assert set(yaml.safe_load(text)["all"]) == {"children", "vars"}
    assert sum(line.lstrip().startswith("dc-east-broker-1: {ansible_") for line in text.splitlines()) == 1


def test_the_state_and_what_is_shown_hold_no_secret(applied: Applied) -> None:
    state = json.loads((applied.workspace.folder / "terraform.tfstate").read_text(encoding="utf-8"))
    assert state["outputs"]["inventory"]["sensitive"] is True
    secrets = {
        "aws_iam_access_key",
        "aws_secretsmanager_secret_version",
        "random_password",
        "tls_private_key",
    }
    assert not {resource["type"] for resource in state["resources"]} & secrets
    assert applied.workspace.settings["AWS_SECRET_ACCESS_KEY"] not in json.dumps(state["resources"])


def deleted(plan: dict[str, Any]) -> set[str]:
    """The addresses of what a plan takes away or makes anew."""
    return {item["address"] for item in plan["resource_changes"] if "delete" in item["change"]["actions"]}


def test_log_ins_come_beside_plaintext_and_then_take_its_place(applied: Applied) -> None:
    # Planned alone: moto takes no second apply, as it has each zone for a public one, which has no network.
    plan = applied.workspace.plan_as_data(SMALL, '-var=security=["plaintext","tls_sasl"]')
    assert deleted(plan) == set()
    inventory = plan["planned_values"]["outputs"]["inventory"]["value"]
    (applied.inventory / "hosts.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")
    for tier in ("live", "offline"):
        logins = {"headrace_logins_secret": [{"username": "kit-1", "password": "a password of the test"}]}
        file = applied.inventory / "group_vars" / f"{tier}.yml"
        file.write_text(yaml.safe_dump(logins), encoding="utf-8")
    applied.ansible("ansible-playbook", "playbooks/certificates.yml")
    for stage in ("beside", "moved", "whole"):
        applied.ansible(
            *("ansible-playbook", "playbooks/preflight.yml", "--tags", "inventory"),
            *("-e", f"headrace_security_stage={stage}"),
        )
    broker = json.loads(applied.ansible("ansible-inventory", "--host", "dc-east-broker-1"))
    assert broker["headrace_publish_address"] == "publish.dc-east.headrace-small.internal:9094"
    certificate = x509.load_pem_x509_certificate(
        (applied.inventory / "certificates" / "dc-east-broker-1.pem").read_bytes()
    )
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "publish.dc-east.headrace-small.internal" in names.get_values_for_type(x509.DNSName)

    gone = deleted(applied.workspace.plan_as_data(SMALL, '-var=security=["tls_sasl"]'))
    kinds = {address.rsplit("[", 1)[0].rsplit(".", 2)[-2] for address in gone}
    assert kinds == {
        "aws_lb_listener",
        "aws_lb_target_group",
        "aws_lb_target_group_attachment",
        "aws_vpc_security_group_egress_rule",
        "aws_vpc_security_group_ingress_rule",
    }


def test_everything_can_be_destroyed(applied: Applied) -> None:
    run_page(applied.folder, applied.workspace.settings, "terraform_page_down.sh")
    assert applied.workspace.run("state", "list").stdout == ""
