# Written by scripts/terraform_regions.py from regions.txt: change those.

locals {
  regions = [
    "ap-northeast-1",
    "ap-southeast-1",
    "eu-central-1",
    "eu-west-1",
    "us-east-1",
    "us-east-2",
    "us-west-2",
  ]

  made = merge(
    module.datacenters_ap_northeast_1,
    module.datacenters_ap_southeast_1,
    module.datacenters_eu_central_1,
    module.datacenters_eu_west_1,
    module.datacenters_us_east_1,
    module.datacenters_us_east_2,
    module.datacenters_us_west_2,
  )
  peerings = merge(
    module.peerings_ap_northeast_1,
    module.peerings_ap_southeast_1,
    module.peerings_eu_central_1,
    module.peerings_eu_west_1,
    module.peerings_us_east_1,
    module.peerings_us_east_2,
    module.peerings_us_west_2,
  )
}

module "datacenters_ap_northeast_1" {
  source    = "../modules/datacenter"
  for_each  = { for name, datacenter in local.datacenters : name => datacenter if datacenter.region == "ap-northeast-1" }
  providers = { aws = aws.ap_northeast_1 }

  hosts        = each.value.hosts
  image        = var.image
  name         = "${var.name}-${each.key}"
  network      = each.value.network
  protect_data = var.protect_data
  region       = each.value.region
  security     = var.security
  tier         = each.value.tier
}

module "peerings_ap_northeast_1" {
  source    = "../modules/peering"
  for_each  = { for name, datacenter in local.live : name => datacenter if datacenter.region == "ap-northeast-1" }
  providers = { aws.live = aws.ap_northeast_1, aws.offline = aws.offline }

  live    = local.made[each.key].peer
  name    = "${var.name}-${local.offline_name}-${each.key}"
  offline = local.made[local.offline_name].peer
  ports   = local.made[each.key].peer.broker_ports
}

module "datacenters_ap_southeast_1" {
  source    = "../modules/datacenter"
  for_each  = { for name, datacenter in local.datacenters : name => datacenter if datacenter.region == "ap-southeast-1" }
  providers = { aws = aws.ap_southeast_1 }

  hosts        = each.value.hosts
  image        = var.image
  name         = "${var.name}-${each.key}"
  network      = each.value.network
  protect_data = var.protect_data
  region       = each.value.region
  security     = var.security
  tier         = each.value.tier
}

module "peerings_ap_southeast_1" {
  source    = "../modules/peering"
  for_each  = { for name, datacenter in local.live : name => datacenter if datacenter.region == "ap-southeast-1" }
  providers = { aws.live = aws.ap_southeast_1, aws.offline = aws.offline }

  live    = local.made[each.key].peer
  name    = "${var.name}-${local.offline_name}-${each.key}"
  offline = local.made[local.offline_name].peer
  ports   = local.made[each.key].peer.broker_ports
}

module "datacenters_eu_central_1" {
  source    = "../modules/datacenter"
  for_each  = { for name, datacenter in local.datacenters : name => datacenter if datacenter.region == "eu-central-1" }
  providers = { aws = aws.eu_central_1 }

  hosts        = each.value.hosts
  image        = var.image
  name         = "${var.name}-${each.key}"
  network      = each.value.network
  protect_data = var.protect_data
  region       = each.value.region
  security     = var.security
  tier         = each.value.tier
}

module "peerings_eu_central_1" {
  source    = "../modules/peering"
  for_each  = { for name, datacenter in local.live : name => datacenter if datacenter.region == "eu-central-1" }
  providers = { aws.live = aws.eu_central_1, aws.offline = aws.offline }

  live    = local.made[each.key].peer
  name    = "${var.name}-${local.offline_name}-${each.key}"
  offline = local.made[local.offline_name].peer
  ports   = local.made[each.key].peer.broker_ports
}

module "datacenters_eu_west_1" {
  source    = "../modules/datacenter"
  for_each  = { for name, datacenter in local.datacenters : name => datacenter if datacenter.region == "eu-west-1" }
  providers = { aws = aws.eu_west_1 }

  hosts        = each.value.hosts
  image        = var.image
  name         = "${var.name}-${each.key}"
  network      = each.value.network
  protect_data = var.protect_data
  region       = each.value.region
  security     = var.security
  tier         = each.value.tier
}

module "peerings_eu_west_1" {
  source    = "../modules/peering"
  for_each  = { for name, datacenter in local.live : name => datacenter if datacenter.region == "eu-west-1" }
  providers = { aws.live = aws.eu_west_1, aws.offline = aws.offline }

  live    = local.made[each.key].peer
  name    = "${var.name}-${local.offline_name}-${each.key}"
  offline = local.made[local.offline_name].peer
  ports   = local.made[each.key].peer.broker_ports
}

module "datacenters_us_east_1" {
  source    = "../modules/datacenter"
  for_each  = { for name, datacenter in local.datacenters : name => datacenter if datacenter.region == "us-east-1" }
  providers = { aws = aws.us_east_1 }

  hosts        = each.value.hosts
  image        = var.image
  name         = "${var.name}-${each.key}"
  network      = each.value.network
  protect_data = var.protect_data
  region       = each.value.region
  security     = var.security
  tier         = each.value.tier
}

module "peerings_us_east_1" {
  source    = "../modules/peering"
  for_each  = { for name, datacenter in local.live : name => datacenter if datacenter.region == "us-east-1" }
  providers = { aws.live = aws.us_east_1, aws.offline = aws.offline }

  live    = local.made[each.key].peer
  name    = "${var.name}-${local.offline_name}-${each.key}"
  offline = local.made[local.offline_name].peer
  ports   = local.made[each.key].peer.broker_ports
}

module "datacenters_us_east_2" {
  source    = "../modules/datacenter"
  for_each  = { for name, datacenter in local.datacenters : name => datacenter if datacenter.region == "us-east-2" }
  providers = { aws = aws.us_east_2 }

  hosts        = each.value.hosts
  image        = var.image
  name         = "${var.name}-${each.key}"
  network      = each.value.network
  protect_data = var.protect_data
  region       = each.value.region
  security     = var.security
  tier         = each.value.tier
}

module "peerings_us_east_2" {
  source    = "../modules/peering"
  for_each  = { for name, datacenter in local.live : name => datacenter if datacenter.region == "us-east-2" }
  providers = { aws.live = aws.us_east_2, aws.offline = aws.offline }

  live    = local.made[each.key].peer
  name    = "${var.name}-${local.offline_name}-${each.key}"
  offline = local.made[local.offline_name].peer
  ports   = local.made[each.key].peer.broker_ports
}

module "datacenters_us_west_2" {
  source    = "../modules/datacenter"
  for_each  = { for name, datacenter in local.datacenters : name => datacenter if datacenter.region == "us-west-2" }
  providers = { aws = aws.us_west_2 }

  hosts        = each.value.hosts
  image        = var.image
  name         = "${var.name}-${each.key}"
  network      = each.value.network
  protect_data = var.protect_data
  region       = each.value.region
  security     = var.security
  tier         = each.value.tier
}

module "peerings_us_west_2" {
  source    = "../modules/peering"
  for_each  = { for name, datacenter in local.live : name => datacenter if datacenter.region == "us-west-2" }
  providers = { aws.live = aws.us_west_2, aws.offline = aws.offline }

  live    = local.made[each.key].peer
  name    = "${var.name}-${local.offline_name}-${each.key}"
  offline = local.made[local.offline_name].peer
  ports   = local.made[each.key].peer.broker_ports
}
