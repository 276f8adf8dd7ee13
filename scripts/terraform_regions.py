"""Writes the parts of terraform/pipeline that Terraform wants once a region: provider aliases and module calls.

Terraform 1.11 takes a provider from no expression, so each region of terraform/pipeline/regions.txt gets an alias and calls of
its own, which make the datacenters that the map puts there. To add a region: add its line, in alphabetical order, and run this.
"""

from __future__ import annotations

from pathlib import Path

PIPELINE = Path(__file__).resolve().parents[1] / "terraform" / "pipeline"
HEADER = "# Written by scripts/terraform_regions.py from regions.txt: change those.\n"

PROVIDER = """
provider "aws" {{
  alias  = "{alias}"
  region = {region}

  default_tags {{
    tags = local.tags
  }}
}}
"""

CALLS = """
module "datacenters_{alias}" {{
  source    = "../modules/datacenter"
  for_each  = {{ for name, datacenter in local.datacenters : name => datacenter if datacenter.region == "{region}" }}
  providers = {{ aws = aws.{alias} }}

  hosts        = each.value.hosts
  image        = var.image
  name         = "${{var.name}}-${{each.key}}"
  network      = each.value.network
  protect_data = var.protect_data
  region       = each.value.region
  security     = var.security
  tier         = each.value.tier
}}

module "peerings_{alias}" {{
  source    = "../modules/peering"
  for_each  = {{ for name, datacenter in local.live : name => datacenter if datacenter.region == "{region}" }}
  providers = {{ aws.live = aws.{alias}, aws.offline = aws.offline }}

  live    = local.made[each.key].peer
  name    = "${{var.name}}-${{local.offline_name}}-${{each.key}}"
  offline = local.made[local.offline_name].peer
  ports   = local.made[each.key].peer.broker_ports
}}
"""


def regions() -> list[str]:
    """The regions that a datacenter may be in, from regions.txt."""
    return (PIPELINE / "regions.txt").read_text(encoding="utf-8").split()


def alias(region: str) -> str:
    """The region as a name of Terraform's."""
    return region.replace("-", "_")


def providers_file(names: list[str]) -> str:
    """One provider a region, and one for the offline datacenter's, from which every peering starts."""
    blocks = [PROVIDER.format(alias=alias(name), region=f'"{name}"') for name in names]
    return HEADER + "".join(blocks) + PROVIDER.format(alias="offline", region="local.offline_region")


def regions_file(names: list[str]) -> str:
    """The module calls of each region, and everything that they make in one map."""
    made, peerings = (
        "".join(f"    module.{kind}_{alias(name)},\n" for name in names)
        for kind in ("datacenters", "peerings")
    )
    listed = "".join(f'    "{name}",\n' for name in names)
    head = f"\nlocals {{\n  regions = [\n{listed}  ]\n\n  made = merge(\n{made}  )\n"
    head += f"  peerings = merge(\n{peerings}  )\n}}\n"
    return HEADER + head + "".join(CALLS.format(alias=alias(name), region=name) for name in names)


def files() -> dict[Path, str]:
    """Each generated file with what it must hold."""
    names = regions()
    return {
        PIPELINE / "providers.tf": providers_file(names),
        PIPELINE / "regions.tf": regions_file(names),
    }


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
