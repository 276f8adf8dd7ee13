# One datacenter: a network and its hosts; a live one has a load balancer, the offline one the warehouse.

data "aws_caller_identity" "this" {}

locals {
  live    = var.tier == "live"
  brokers = { for name, host in var.hosts : name => host.address if host.group == "broker" }
  # Brokers and the load of the offline datacenter may write tables, its auditor may read them, and nobody else may do either.
  policies = local.live ? {} : {
    audit  = module.warehouse[0].read_policy
    broker = module.warehouse[0].write_policy
    load   = module.warehouse[0].write_policy
  }
}

module "network" {
  source = "../network"

  admin_cidrs   = var.network.admin_cidrs
  cidr          = var.network.cidr
  endpoints     = concat(["ec2messages", "ssm", "ssmmessages"], local.live ? [] : ["glue"])
  groups        = distinct([for host in var.hosts : host.group])
  name          = var.name
  publish_cidrs = var.network.publish_cidrs
  region        = var.region
  security      = var.security
  zones         = var.network.zones
}

module "cluster" {
  source = "../cluster"

  hosts              = var.hosts
  image              = var.image
  name               = var.name
  policies           = local.policies
  protect_data       = var.protect_data
  security_group_ids = module.network.security_group_ids
  subnet_ids         = module.network.subnet_ids
  zones              = module.network.zones
}

module "load_balancer" {
  source = "../load_balancer"
  count  = local.live ? 1 : 0

  brokers           = local.brokers
  dns_zone          = var.network.dns_zone
  name              = var.name
  ports             = module.network.broker_ports
  security_group_id = module.network.security_group_ids["load_balancer"]
  subnet_ids        = values(module.network.subnet_ids.edge)
  vpc_id            = module.network.vpc_id
}

module "warehouse" {
  source = "../warehouse"
  count  = local.live ? 0 : 1

  bucket       = "${var.name}-warehouse-${data.aws_caller_identity.this.account_id}"
  protect_data = var.protect_data
}
