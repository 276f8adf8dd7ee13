"""A wrong map of datacenters gets the sentence that says which datacenter and what to change, at plan time.

The sentences come from variables.tf alone, so these tests need no provider: they plan a copy of it and of what it refers to.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import terraform_regions
from terraform_kit import TERRAFORM, Workspace, moto_pipeline, needs_provider, needs_terraform

pytestmark = pytest.mark.acceptance

Datacenters = dict[str, Any]

GOOD: Datacenters = {
    "dc-east": {"tier": "live", "region": "us-east-1", "cidr": "10.1.0.0/16"},
    "dc-west": {"tier": "live", "region": "us-west-2", "cidr": "10.2.0.0/16"},
    "offline": {"tier": "offline", "region": "us-east-1", "cidr": "10.9.0.0/16", "load": {}},
}


def with_attributes(name: str, **attributes: Any) -> Callable[[Datacenters], None]:
    def change(datacenters: Datacenters) -> None:
        datacenters.setdefault(name, {"tier": "live", "region": "us-east-1", "cidr": "10.4.0.0/16"})
        datacenters[name] |= attributes

    return change


def without(*names: str) -> Callable[[Datacenters], None]:
    def change(datacenters: Datacenters) -> None:
        for name in names:
            del datacenters[name]

    return change


PRIVATE = (
    "use private IPv4 blocks that begin at their first address, since brokers are for private networks alone."
)
BLOCK = "give it a private IPv4 block from /16 to /20 that begins at its first address, like 10.1.0.0/16."
LACKS = "lacks its cidr, region or tier: say what each is."
NAMED = "cannot be part of host names: name it with lower-case letters, digits and hyphens, beginning with a letter."
ODD = "use an odd count from 1 to 9, since an even ensemble survives no more failures than one host fewer."
BAD: dict[str, tuple[Callable[[Datacenters], None], str]] = {
    "no region": (with_attributes("dc-east", region=None), f"Datacenter dc-east {LACKS}"),
    "nothing": (lambda datacenters: datacenters.update({"dc-east": None}), f"Datacenter dc-east {LACKS}"),
    "no name": (with_attributes(""), f"Datacenter without a name {NAMED}"),
    "a name with capitals": (with_attributes("DC-North"), f"Datacenter DC-North {NAMED}"),
    "a name with an underscore": (with_attributes("dc_north"), f"Datacenter dc_north {NAMED}"),
    "a name too long": (
        with_attributes("dc-with-a-very-long-name"),
        "Datacenter dc-with-a-very-long-name: headrace-dc-with-a-very-long-name is longer than the 32 characters of a load "
        "balancer's name, so shorten one of the two.",
    ),
    "a name twice": (
        with_attributes("east"),
        "Datacenters dc-east and east have the same name but for dc-: rename one of them.",
    ),
    "an unknown tier": (
        with_attributes("dc-east", tier="online"),
        "Datacenter dc-east has the tier online: make it live or offline.",
    ),
    "no live datacenter": (
        without("dc-east", "dc-west"),
        "There is no live datacenter: give at least one the tier live.",
    ),
    "no offline datacenter": (
        without("offline"),
        "There is no offline datacenter: give exactly one the tier offline.",
    ),
    "no datacenter": (
        without("dc-east", "dc-west", "offline"),
        "There is no live datacenter: give at least one the tier live.",
    ),
    "two offline datacenters": (
        with_attributes("dc-west", tier="offline", load={}),
        "Datacenters dc-west and offline are all offline: make all but one of them live.",
    ),
    "an unknown region": (
        with_attributes("dc-west", region="us-west-9"),
        f"Datacenter dc-west is in the region us-west-9: choose {', '.join(terraform_regions.regions())}, or add it to "
        "regions.txt and run scripts/terraform_regions.py.",
    ),
    "no block": (with_attributes("dc-east", cidr="ten"), f"Datacenter dc-east has the cidr ten: {BLOCK}"),
    "a small block": (
        with_attributes("dc-east", cidr="10.1.0.0/24"),
        f"Datacenter dc-east has the cidr 10.1.0.0/24: {BLOCK}",
    ),
    "a public block": (
        with_attributes("dc-east", cidr="8.8.0.0/16"),
        f"Datacenter dc-east has the cidr 8.8.0.0/16: {BLOCK}",
    ),
    "a block from its middle": (
        with_attributes("dc-east", cidr="10.1.7.0/16"),
        f"Datacenter dc-east has the cidr 10.1.7.0/16: {BLOCK}",
    ),
    "equal blocks": (
        with_attributes("dc-west", cidr="10.1.0.0/16"),
        "Datacenters dc-east and dc-west have blocks that overlap, 10.1.0.0/16 and 10.1.0.0/16: give one of them another.",
    ),
    "a block in another": (
        with_attributes("dc-east", cidr="10.9.64.0/20"),
        "Datacenters dc-east and offline have blocks that overlap, 10.9.64.0/20 and 10.9.0.0/16: give one of them another.",
    ),
    "administering from the world": (
        with_attributes("dc-east", admin_cidrs=["0.0.0.0/0"]),
        f"Datacenter dc-east has 0.0.0.0/0 among its admin_cidrs: {PRIVATE}",
    ),
    "publishing from half of the world": (
        with_attributes("dc-west", publish_cidrs=["10.2.0.0/16", "0.0.0.0/1"]),
        f"Datacenter dc-west has 0.0.0.0/1 among its publish_cidrs: {PRIVATE}",
    ),
    "publishing from the world of IPv6": (
        with_attributes("dc-west", publish_cidrs=["::/0"]),
        f"Datacenter dc-west has ::/0 among its publish_cidrs: {PRIVATE}",
    ),
    "publishing from a block too wide": (
        with_attributes("dc-west", publish_cidrs=["10.0.0.0/7"]),
        f"Datacenter dc-west has 10.0.0.0/7 among its publish_cidrs: {PRIVATE}",
    ),
    "publishing from nowhere": (
        with_attributes("dc-west", publish_cidrs=[]),
        "Datacenter dc-west is live and its publish_cidrs are empty: name the blocks of its front ends, or remove the line to "
        "take the datacenter's own.",
    ),
    "publishing from null": (
        with_attributes("dc-west", publish_cidrs=[None]),
        f"Datacenter dc-west has null among its publish_cidrs: {PRIVATE}",
    ),
    "administering from null": (
        with_attributes("dc-west", admin_cidrs=["10.2.0.0/16", None]),
        f"Datacenter dc-west has null among its admin_cidrs: {PRIVATE}",
    ),
    "publishing to the offline datacenter": (
        with_attributes("offline", publish_cidrs=["10.9.0.0/16"]),
        "Datacenter offline is offline and has publish_cidrs: remove them, since front ends publish to live datacenters.",
    ),
    "no load": (
        with_attributes("offline", load=None),
        "Datacenter offline is offline and has no load: add load = {}.",
    ),
    "a load in a live datacenter": (
        with_attributes("dc-east", load={}),
        "Datacenter dc-east is live and has a load: remove it, since loads run in the offline datacenter.",
    ),
    "no zones": (
        with_attributes("dc-east", zones=[]),
        "Datacenter dc-east has the zones []: name one or more of a, b, c, d, e, f, each once.",
    ),
    "a zone twice": (
        with_attributes("dc-east", zones=["a", "a"]),
        "Datacenter dc-east has the zones [a, a]: name one or more of a, b, c, d, e, f, each once.",
    ),
    "a zone that is null": (
        with_attributes("dc-east", zones=["a", None]),
        "Datacenter dc-east has the zones [a, null]: name one or more of a, b, c, d, e, f, each once.",
    ),
    "an unknown zone": (
        with_attributes("dc-east", zones=["us-east-1a"]),
        "Datacenter dc-east has the zones [us-east-1a]: name one or more of a, b, c, d, e, f, each once.",
    ),
    "an even ensemble": (
        with_attributes("dc-west", zookeeper={"count": 4}),
        f"Datacenter dc-west has 4 ZooKeeper hosts: {ODD}",
    ),
    "no brokers": (
        with_attributes("dc-west", broker={"count": 0}),
        "Datacenter dc-west has 0 brokers: use a whole number from 1 to 100.",
    ),
    "half a broker": (
        with_attributes("dc-west", broker={"count": 1.5}),
        "Datacenter dc-west has 1.5 brokers: use a whole number from 1 to 100.",
    ),
    "a volume without a size": (
        with_attributes("dc-west", audit={"volume_gb": 0}),
        "Datacenter dc-west has a volume_gb of 0 for audit: use a whole number from 1 to 16384.",
    ),
    "an instance type that is none": (
        with_attributes("offline", load={"instance_type": "large"}),
        "Datacenter offline has the instance type large for load: use one of AWS, like m7i.large.",
    ),
    "an empty tier": (
        with_attributes("dc-east", tier=""),
        "Datacenter dc-east has the tier : make it live or offline.",
    ),
}


# What only the account knows: data that Terraform reads before it makes anything.
NOT_OFFERED: Datacenters = {
    "dc-east": {"tier": "live", "region": "eu-central-1", "cidr": "10.1.0.0/16", "zones": ["a", "f"]},
    "dc-west": GOOD["dc-west"] | {"zones": ["a", "b"], "broker": {"instance_type": "m7i.huge"}},
    "offline": GOOD["offline"] | {"broker": {"instance_type": "m7g.large"}},
}


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The pipeline's variables with nothing to make of them."""
    folder = tmp_path_factory.mktemp("variables")
    for name in ("variables.tf", "limits.tf"):
        shutil.copy(TERRAFORM / "pipeline" / name, folder)
    shutil.copy(TERRAFORM / "pipeline" / "tests" / "validations" / "validations.tftest.hcl", folder)
    regions = json.dumps(terraform_regions.regions())
    (folder / "regions.tf").write_text(f"locals {{\n  regions = {regions}\n}}\n", encoding="utf-8")
    workspace = Workspace(folder)
    workspace.succeed("init")
    return workspace


def sentences_of(workspace: Workspace, datacenters: Datacenters) -> str:
    """What a plan with this map says, on one line; empty when the map is good."""
    (workspace.folder / "map.tfvars.json").write_text(
        json.dumps({"datacenters": datacenters}), encoding="utf-8"
    )
    done = workspace.run("plan", "-no-color", "-var-file=map.tfvars.json")
    assert (done.returncode == 0) == (done.stderr.count("Error:") == 0)
    return " ".join(done.stderr.split()) if done.returncode else ""


@needs_terraform
def test_a_good_map_has_no_sentence(variables: Workspace) -> None:
    assert sentences_of(variables, GOOD) == ""


@needs_terraform
@pytest.mark.parametrize("name", BAD)
def test_a_bad_map_gets_its_sentence(variables: Workspace, name: str) -> None:
    change, sentence = BAD[name]
    datacenters = deepcopy(GOOD)
    change(datacenters)
    said = sentences_of(variables, datacenters)
    assert said.count(sentence) == 1
    # One wrong thing gets one sentence; a map without datacenters lacks both tiers.
    assert said.count("Datacenter") + said.count("There is no") == (2 if name == "no datacenter" else 1)
    # Whatever is wrong with a map, it is never answered with Terraform's own words for an expression that failed.
    assert said.count("Error:") == said.count("Error: Invalid value for variable")


@needs_terraform
@pytest.mark.parametrize("ways", [[], ["ssl"], ["tls", "tls"], ["plaintext", "tls", "tls_sasl"], [None]])
def test_ways_to_speak_that_are_none_get_their_sentence(variables: Workspace, ways: list[str | None]) -> None:
    (variables.folder / "ways.tfvars.json").write_text(
        json.dumps({"datacenters": GOOD, "security": ways}), encoding="utf-8"
    )
    done = variables.run("plan", "-no-color", "-var-file=ways.tfvars.json")
    assert done.returncode == 1
    said = " ".join(done.stderr.replace("│", " ").split())
    listed = ", ".join("null" if way is None else way for way in ways)
    assert f"security is [{listed}]: name plaintext, tls or tls_sasl, or two of them" in said
    assert said.count("Error:") == said.count("Error: Invalid value for variable") == 1


@needs_terraform
def test_every_validation_fails_when_it_should(variables: Workspace) -> None:
    assert "32 passed, 0 failed" in variables.succeed("test")


@pytest.mark.long
@needs_provider
@pytest.mark.timeout(600)
def test_the_whole_pipeline_stops_at_the_sentence(tmp_path: Path) -> None:
    for workspace in moto_pipeline(tmp_path):
        datacenters = deepcopy(GOOD)
        with_attributes("dc-west", zookeeper={"count": 2})(datacenters)
        assert sentences_of(workspace, datacenters).startswith("Error: Invalid value for variable")
        said = sentences_of(workspace, NOT_OFFERED)
        assert said.count("Error:") == len(NOT_OFFERED)
        for sentence in (
            "headrace-dc-east: this account has no zone eu-central-1f; choose among eu-central-1a, ",
            "headrace-dc-west: AWS offers no m7i.huge in us-west-2a, us-west-2b; choose another instance type or other zones.",
            "headrace-offline: the image is for x86_64, and m7g.large is not; choose other instance types, or another image ",
        ):
            assert said.count(sentence) == 1
