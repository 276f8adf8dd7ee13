# What follows from the map: subnets, and each host with its identity, rack and address. The same map always gives the same.

locals {
  # The inventory's group of dc-east is dc_east, that of offline is dc_offline.
  group_names = { for name in keys(var.datacenters) : name => "dc_${replace(trimprefix(name, "dc-"), "-", "_")}" }

  tags = merge(var.tags, { ManagedBy = "terraform", Pipeline = var.name })

  # Every block is cut into 32 subnets: a letter's subnets have their numbers whatever the other zones are.
  _first_subnet = { broker = 0, service = 8, edge = 16 }

  # The services beside the brokers begin at these addresses of their subnets; brokers, alone in theirs, begin at the tenth.
  _first_address = { broker = 10, zookeeper = 11, registry = 21, audit = 31, load = 41 }

  _groups = {
    for name, datacenter in var.datacenters : name => {
      for group, settings in {
        audit     = merge(datacenter.audit, { count = 1 })
        broker    = datacenter.broker
        load      = datacenter.load == null ? null : merge(datacenter.load, { count = 1, volume_gb = 0 })
        registry  = merge(datacenter.registry, { count = 1, volume_gb = 0 })
        zookeeper = datacenter.zookeeper
      } : group => settings if settings != null
    }
  }

  hosts = {
    for name, datacenter in var.datacenters : name => merge([
      for group, settings in local._groups[name] : {
        for number in range(1, settings.count + 1) : "${name}-${group}-${number}" => {
          group         = group
          instance_type = settings.instance_type
          number        = number
          rack          = datacenter.zones[(number - 1) % length(datacenter.zones)]
          volume_gb     = settings.volume_gb
        }
      }
    ]...)
  }

  datacenters = {
    for name, datacenter in var.datacenters : name => {
      region = datacenter.region
      tier   = datacenter.tier
      hosts = {
        for host, settings in local.hosts[name] : host => merge(settings, {
          address = cidrhost(
            cidrsubnet(datacenter.cidr, 5, local._first_subnet[settings.group == "broker" ? "broker" : "service"] + index(local.zone_letters, settings.rack)),
            local._first_address[settings.group] + settings.number - 1,
          )
        })
      }
      network = {
        admin_cidrs   = coalesce(datacenter.admin_cidrs, [datacenter.cidr])
        cidr          = datacenter.cidr
        dns_zone      = "${name}.${var.name}.internal"
        publish_cidrs = datacenter.tier == "offline" ? [] : coalesce(datacenter.publish_cidrs, [datacenter.cidr])
        zones = {
          for letter in datacenter.zones : letter => {
            availability_zone = "${datacenter.region}${letter}"
            broker_cidr       = cidrsubnet(datacenter.cidr, 5, local._first_subnet.broker + index(local.zone_letters, letter))
            edge_cidr         = cidrsubnet(datacenter.cidr, 5, local._first_subnet.edge + index(local.zone_letters, letter))
            service_cidr      = cidrsubnet(datacenter.cidr, 5, local._first_subnet.service + index(local.zone_letters, letter))
          }
        }
      }
    }
  }
  live           = { for name, datacenter in local.datacenters : name => datacenter if datacenter.tier == "live" }
  offline_name   = one([for name, datacenter in var.datacenters : name if datacenter.tier == "offline"])
  offline_region = local.datacenters[local.offline_name].region
}
