"""What the plans of both examples open, encrypt and allow, read from the plan itself."""

from __future__ import annotations

import ipaddress
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import pytest
from terraform_kit import CHECKOUT, Workspace, moto_pipeline, needs_provider

pytestmark = [needs_provider, pytest.mark.long, pytest.mark.timeout(900)]

EXAMPLES = ("small", "production")
# The ports of plaintext, and what is in their place where everybody logs in.
SECURED = {9092: 9094, 8081: 8082, 2181: 2182}
# DESIGN section 6: brokers and their load balancer, the registry, metrics, ZooKeeper's three; and the endpoints' HTTPS.
PORTS_BY_GROUP = {
    "audit": {9405, 9406},
    "broker": {9092, 9404},
    "endpoint": {443},
    "load": {9404},
    "load_balancer": {9092},
    "registry": {8081},
    "zookeeper": {2181, 2888, 3888},
}
# Who opens connections to whom: each needs its own rule out and its own rule in.
FLOWS = {
    ("audit", "broker", 9092),
    ("broker", "broker", 9092),
    ("broker", "zookeeper", 2181),
    ("load", "broker", 9092),
    ("load", "registry", 8081),
    ("load_balancer", "broker", 9092),
    ("registry", "broker", 9092),
    ("zookeeper", "zookeeper", 2888),
    ("zookeeper", "zookeeper", 3888),
    *((group, "endpoint", 443) for group in ("audit", "broker", "load", "registry", "zookeeper")),
}
# And on which ports blocks come in, by the attribute that names them.
DOORS = {
    "admin_cidrs": {
        ("audit", 9405),
        ("audit", 9406),
        ("broker", 9092),
        ("broker", 9404),
        ("load", 9404),
        ("registry", 8081),
    },
    "publish_cidrs": {("broker", 9092), ("load_balancer", 9092), ("registry", 8081)},
}
# One auditor, in the offline datacenter, looks at all of them.
DOORS_NOT_IN = {"live": {("audit", 9406), ("load", 9404)}, "offline": {("load_balancer", 9092)}}
INGRESS = "aws_vpc_security_group_ingress_rule"
EGRESS = "aws_vpc_security_group_egress_rule"
WAYS_OUT = {
    "aws_egress_only_internet_gateway",
    "aws_eip",
    "aws_internet_gateway",
    "aws_key_pair",
    "aws_nat_gateway",
    "aws_security_group_rule",
}


class Plan:
    """A plan's resources, and its references as the configuration has them."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.variables = {name: value["value"] for name, value in data["variables"].items()}
        self.is_secured = self.variables["security"] == ["tls_sasl"]
        self.resources = [change for change in data["resource_changes"] if change["mode"] == "managed"]

    def of_type(self, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Address and planned attributes of each resource of a type."""
        for change in self.resources:
            if change["type"] == kind:
                yield change["address"], change["change"]["after"]

    def port(self, of_plaintext: int) -> int:
        """What is open in the place of a port of plaintext."""
        return SECURED.get(of_plaintext, of_plaintext) if self.is_secured else of_plaintext

    def datacenter_of(self, address: str) -> str:
        """The datacenter whose module or peering a resource belongs to."""
        return address.split('["')[1].split('"]')[0]

    def blocks(self, name: str) -> dict[str, set[str]]:
        """By attribute, the blocks that may reach this datacenter."""
        datacenter = self.variables["datacenters"][name]
        offline = datacenter["tier"] == "offline"
        return {
            "admin_cidrs": set(datacenter.get("admin_cidrs") or [datacenter["cidr"]]),
            "publish_cidrs": set()
            if offline
            else set(datacenter.get("publish_cidrs") or [datacenter["cidr"]]),
        }


@pytest.fixture(scope="module")
def plan_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Plan]]:
    """`plan_of(example)`: its plan, made once."""
    for workspace in moto_pipeline(tmp_path_factory.mktemp("security")):

        @cache
        def planned(example: str, workspace: Workspace = workspace) -> Plan:
            return Plan(workspace.plan_as_data(f"-var-file=examples/{example}.tfvars"))

        yield planned


@pytest.fixture(params=EXAMPLES)
def plan(request: pytest.FixtureRequest, plan_of: Callable[[str], Plan]) -> Plan:
    return plan_of(request.param)


def target_of(address: str) -> str:
    """The group that a rule lets somebody into: the first word of its key, or of the flow's end."""
    key = address.rsplit('["', 1)[1].removesuffix('"]')
    if ".mirror[" in address:
        return "broker"
    return key.split(" ")[2] if ".flow[" in address else key.split(" ")[0]


def as_list(value: str | list[str]) -> list[str]:
    """A policy's one or several."""
    return [value] if isinstance(value, str) else value


def test_rules_open_single_ports_that_the_design_names(plan: Plan) -> None:
    rules = list(plan.of_type(INGRESS))
    assert rules
    for address, rule in rules:
        assert rule["ip_protocol"] == "tcp", address
        assert rule["from_port"] == rule["to_port"], address
        assert rule["from_port"] in map(plan.port, PORTS_BY_GROUP[target_of(address)]), address


@pytest.mark.parametrize("kind", [INGRESS, EGRESS])
def test_hosts_reach_those_whom_they_need_and_nobody_else(plan: Plan, kind: str) -> None:
    for name, datacenter in plan.variables["datacenters"].items():
        absent = "load" if datacenter["tier"] == "live" else "load_balancer"
        flows = {
            (*address.rsplit('["', 1)[1].split(" ")[:3:2], rule["from_port"])
            for address, rule in plan.of_type(kind)
            if ".flow[" in address and plan.datacenter_of(address) == name
        }
        assert flows == {(*flow[:2], plan.port(flow[2])) for flow in FLOWS if absent not in flow}


def test_blocks_reach_only_what_is_published_and_administered(plan: Plan) -> None:
    for name, datacenter in plan.variables["datacenters"].items():
        doors = {
            (target_of(address), rule["from_port"], rule["cidr_ipv4"])
            for address, rule in plan.of_type(INGRESS)
            if ".door[" in address and plan.datacenter_of(address) == name
        }
        assert doors == {
            (group, plan.port(port), block)
            for attribute, blocks in plan.blocks(name).items()
            for block in blocks
            for group, port in DOORS[attribute] - DOORS_NOT_IN[datacenter["tier"]]
        }


def test_rules_are_of_hosts_of_blocks_of_the_mirror_or_of_s3(plan: Plan) -> None:
    for kind, names in ((INGRESS, {"door", "flow", "mirror"}), (EGRESS, {"flow", "mirror", "s3"})):
        rules = list(plan.of_type(kind))
        assert {address.rsplit("[", 1)[0].rsplit(".", 1)[1] for address, _ in rules} == names
        for address, rule in rules:
            assert (rule["cidr_ipv4"] is not None) == (".door[" in address or ".mirror[" in address), address


def test_only_offline_brokers_come_from_another_datacenter(plan: Plan) -> None:
    offline = next(dc for dc in plan.variables["datacenters"].values() if dc["tier"] == "offline")
    brokers = ipaddress.IPv4Network(offline["cidr"])
    mirrors = [(address, rule) for address, rule in plan.of_type(INGRESS) if ".mirror[" in address]
    assert {plan.datacenter_of(address) for address, _ in mirrors} == {
        name for name, dc in plan.variables["datacenters"].items() if dc["tier"] == "live"
    }
    for address, rule in mirrors:
        block = ipaddress.IPv4Network(rule["cidr_ipv4"])
        assert block.subnet_of(brokers), address
        assert block.prefixlen == brokers.prefixlen + 5, address
        assert rule["from_port"] == plan.port(9092), address


def test_nothing_leads_to_or_from_the_world(plan: Plan) -> None:
    kinds = {change["type"] for change in plan.resources}
    assert not kinds & WAYS_OUT
    for kind in (INGRESS, EGRESS):
        for address, rule in plan.of_type(kind):
            assert rule["cidr_ipv6"] is None, address
            assert rule["cidr_ipv4"] is None or ipaddress.IPv4Network(rule["cidr_ipv4"]).is_private, address
    for address, subnet in plan.of_type("aws_subnet"):
        assert subnet["map_public_ip_on_launch"] is False, address
    for address, route in plan.of_type("aws_route"):
        assert ipaddress.IPv4Network(route["destination_cidr_block"]).is_private, address
        assert "peerings_" in address, address
    for address, balancer in plan.of_type("aws_lb"):
        assert balancer["internal"] is True, address
    for address, group in plan.of_type("aws_default_security_group"):
        assert not group["ingress"], address
        assert not group["egress"], address
    for address, group in plan.of_type("aws_security_group"):
        assert not group.get("ingress"), address


def test_every_volume_and_bucket_is_encrypted_and_private(plan: Plan) -> None:
    volumes = list(plan.of_type("aws_ebs_volume"))
    assert volumes
    assert all(volume["encrypted"] is True for _, volume in volumes)
    for address, machine in plan.of_type("aws_instance"):
        assert machine["root_block_device"][0]["encrypted"] is True, address
    buckets = {address.rsplit(".", 2)[0] for address, _ in plan.of_type("aws_s3_bucket")}
    assert len(buckets) == len(plan.variables["datacenters"]) + 1
    for kind in ("aws_s3_bucket_server_side_encryption_configuration", "aws_s3_bucket_public_access_block"):
        assert {address.rsplit(".", 2)[0] for address, _ in plan.of_type(kind)} == buckets
    for address, block in plan.of_type("aws_s3_bucket_public_access_block"):
        assert all(
            block[name]
            for name in (
                "block_public_acls",
                "block_public_policy",
                "ignore_public_acls",
                "restrict_public_buckets",
            )
        ), address


def test_machines_ask_for_imdsv2_and_have_no_key(plan: Plan) -> None:
    machines = list(plan.of_type("aws_instance"))
    assert machines
    for address, machine in machines:
        assert machine["metadata_options"][0]["http_tokens"] == "required", address
        assert machine["metadata_options"][0]["http_put_response_hop_limit"] == 1, address
        assert not machine.get("key_name"), address


def test_profiles_allow_what_their_hosts_need(plan: Plan) -> None:
    offline = next(name for name, dc in plan.variables["datacenters"].items() if dc["tier"] == "offline")
    granted: dict[tuple[str, str], set[str]] = {}
    for address, policy in plan.of_type("aws_iam_role_policy"):
        group = address.rsplit('["', 1)[1].removesuffix('"]')
        for statement in json.loads(policy["policy"])["Statement"]:
            actions, resources = (as_list(statement[key]) for key in ("Action", "Resource"))
            assert not any("*" in action for action in actions), address
            if policy["name"] == "sessions":
                assert all(
                    action.split(":")[0] in ("ssm", "ssmmessages", "ec2messages") for action in actions
                )
                continue
            assert all(
                resource.startswith(("arn:aws:s3:::headrace", "arn:aws:glue:")) for resource in resources
            )
            granted.setdefault((plan.datacenter_of(address), group), set()).update(actions)
    writing = {host for host, actions in granted.items() if actions & {"s3:PutObject", "glue:UpdateTable"}}
    assert writing == {(offline, "broker"), (offline, "load")}
    assert set(granted) == writing | {(offline, "audit")}


def test_brokers_are_spread_over_zones_with_volumes_beside_them(plan: Plan) -> None:
    for name, datacenter in plan.variables["datacenters"].items():
        zones = datacenter.get("zones") or ["a", "b", "c"]
        volumes = [
            volume["availability_zone"]
            for address, volume in plan.of_type("aws_ebs_volume")
            if plan.datacenter_of(address) == name and "-broker-" in address.rsplit('["', 1)[1]
        ]
        counts = [volumes.count(f"{datacenter['region']}{zone}") for zone in zones]
        assert sum(counts) == len(volumes) == (datacenter.get("broker") or {}).get("count", 3)
        assert max(counts) - min(counts) <= 1


def test_every_resource_says_whose_it_is(plan: Plan) -> None:
    for change in plan.resources:
        tags = change["change"]["after"].get("tags_all")
        if tags is not None:
            assert tags["Pipeline"] == plan.variables["name"], change["address"]
            assert tags["ManagedBy"] == "terraform", change["address"]


def test_the_page_counts_what_the_examples_make(plan_of: Callable[[str], Plan]) -> None:
    page = (CHECKOUT / "docs" / "terraform.md").read_text(encoding="utf-8")
    rows = {
        row.split("|")[1].strip(): dict(zip(EXAMPLES, row.split("|")[2:4], strict=True))
        for row in page.splitlines()
        if row.startswith("| ")
    }
    for name in EXAMPLES:
        plan = plan_of(name)
        counts = Counter(machine["instance_type"] for _, machine in plan.of_type("aws_instance"))
        machines = rows["machines"][name].strip()
        assert machines.startswith(f"{counts.total()}: ")
        for instance_type, count in counts.items():
            assert f" {count} {instance_type}" in machines or (count == 1 and f" {instance_type}" in machines)
        sizes = [volume["size"] for _, volume in plan.of_type("aws_ebs_volume")]
        assert f"{sum(sizes)} GB on {len(sizes)} volumes" in rows["data volumes (gp3)"][name].replace(",", "")
        assert f"{30 * counts.total()} GB" in rows["root volumes (gp3)"][name].replace(",", "")
        for row, kind in (("network load balancers", "aws_lb"), ("private DNS zones", "aws_route53_zone")):
            assert rows[row][name].split(",")[0].strip() == str(len(list(plan.of_type(kind))))
        endpoints = [
            point
            for _, point in plan.of_type("aws_vpc_endpoint")
            if point["vpc_endpoint_type"] == "Interface"
        ]
        assert rows["interface endpoints"][name].split(",")[0].strip() == str(len(endpoints))


def test_nothing_in_the_plan_is_a_secret(plan: Plan) -> None:
    kinds = {change["type"] for change in plan.resources}
    assert not kinds & {
        "aws_iam_access_key",
        "aws_secretsmanager_secret_version",
        "random_password",
        "tls_private_key",
    }
