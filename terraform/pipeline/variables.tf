variable "datacenters" {
  description = "The datacenters by name: any number of live ones, where front ends publish, and one offline one, where the warehouse is."
  type = map(object({
    # Private blocks from which people administer brokers and read metrics; the datacenter's own block by default.
    admin_cidrs = optional(list(string))
    audit = optional(object({
      instance_type = optional(string, "t3.medium")
      volume_gb     = optional(number, 20)
    }), {})
    broker = optional(object({
      count         = optional(number, 3)
      instance_type = optional(string, "m7i.large")
      volume_gb     = optional(number, 500)
    }), {})
    # The network's block: private, from /16 to /20, overlapping no other datacenter's.
    cidr = string
    # In the offline datacenter, and there alone; {} takes the defaults.
    load = optional(object({
      instance_type = optional(string, "m7i.2xlarge")
    }))
    # Private blocks from which front ends publish and consumers read; a live datacenter's own block by default.
    publish_cidrs = optional(list(string))
    region        = string
    registry = optional(object({
      instance_type = optional(string, "t3.small")
    }), {})
    # live or offline.
    tier = string
    # The letters of the region's availability zones; each is a rack. Hosts are dealt out to them by their numbers, so they stay.
    zones = optional(list(string), ["a", "b", "c"])
    zookeeper = optional(object({
      count         = optional(number, 3)
      instance_type = optional(string, "t3.small")
      volume_gb     = optional(number, 20)
    }), {})
  }))
  nullable = false

  # A datacenter that is too wrong for one check is left to another: hence try.
  validation {
    condition = !anytrue([
      for name, datacenter in var.datacenters : try(datacenter.cidr, null) == null || try(datacenter.region, null) == null || try(datacenter.tier, null) == null
    ])
    error_message = join(" ", [
      for name, datacenter in var.datacenters :
      "Datacenter ${name} lacks its cidr, region or tier: say what each is."
      if try(datacenter.cidr, null) == null || try(datacenter.region, null) == null || try(datacenter.tier, null) == null
    ])
  }

  validation {
    condition = !anytrue([
      for name, datacenter in var.datacenters : !can(regex("^[a-z]([a-z0-9-]*[a-z0-9])?$", name))
    ])
    error_message = join(" ", [
      for name, datacenter in var.datacenters :
      "Datacenter ${name == "" ? "without a name" : name} cannot be part of host names: name it with lower-case letters, digits and hyphens, beginning with a letter."
      if !can(regex("^[a-z]([a-z0-9-]*[a-z0-9])?$", name))
    ])
  }

  validation {
    condition = !anytrue([
      for name, datacenter in var.datacenters : length(var.name) + length(name) > 31
    ])
    error_message = join(" ", [
      for name, datacenter in var.datacenters :
      "Datacenter ${name}: ${var.name}-${name} is longer than the 32 characters of a load balancer's name, so shorten one of the two."
      if length(var.name) + length(name) > 31
    ])
  }

  # The inventory's group of dc-east is dc_east, and so would be that of east.
  validation {
    condition = !anytrue([
      for name, datacenter in var.datacenters : startswith(name, "dc-") && contains(keys(var.datacenters), trimprefix(name, "dc-"))
    ])
    error_message = join(" ", [
      for name, datacenter in var.datacenters :
      "Datacenters ${name} and ${trimprefix(name, "dc-")} have the same name but for dc-: rename one of them."
      if startswith(name, "dc-") && contains(keys(var.datacenters), trimprefix(name, "dc-"))
    ])
  }

  validation {
    condition = !anytrue([
      for name, datacenter in var.datacenters : try(!contains(["live", "offline"], datacenter.tier), false)
    ])
    error_message = join(" ", [
      for name, datacenter in var.datacenters :
      "Datacenter ${name} has the tier ${datacenter.tier}: make it live or offline."
      if try(!contains(["live", "offline"], datacenter.tier), false)
    ])
  }

  validation {
    condition     = anytrue([for datacenter in var.datacenters : try(datacenter.tier == "live", false)])
    error_message = "There is no live datacenter: give at least one the tier live."
  }

  validation {
    condition     = anytrue([for datacenter in var.datacenters : try(datacenter.tier == "offline", false)])
    error_message = "There is no offline datacenter: give exactly one the tier offline."
  }

  validation {
    condition     = length([for datacenter in var.datacenters : true if try(datacenter.tier == "offline", false)]) < 2
    error_message = "Datacenters ${join(" and ", [for name, datacenter in var.datacenters : name if try(datacenter.tier == "offline", false)])} are all offline: make all but one of them live."
  }

  validation {
    condition = !anytrue([
      for name, datacenter in var.datacenters : try(!contains(local.regions, datacenter.region), false)
    ])
    error_message = join(" ", [
      for name, datacenter in var.datacenters :
      "Datacenter ${name} is in the region ${datacenter.region}: choose ${join(", ", local.regions)}, or add it to regions.txt and run scripts/terraform_regions.py."
      if try(!contains(local.regions, datacenter.region), false)
    ])
  }

  validation {
    condition = !anytrue([
      for name, datacenter in var.datacenters : try(datacenter.cidr != null, false) && !(can(regex("/(16|17|18|19|20)$", datacenter.cidr)) && can(regex(local.private_block, datacenter.cidr)) && try(cidrsubnet(datacenter.cidr, 0, 0) == datacenter.cidr, false))
    ])
    error_message = join(" ", [
      for name, datacenter in var.datacenters :
      "Datacenter ${name} has the cidr ${datacenter.cidr}: give it a private IPv4 block from /16 to /20 that begins at its first address, like 10.1.0.0/16."
      if try(datacenter.cidr != null, false) && !(can(regex("/(16|17|18|19|20)$", datacenter.cidr)) && can(regex(local.private_block, datacenter.cidr)) && try(cidrsubnet(datacenter.cidr, 0, 0) == datacenter.cidr, false))
    ])
  }

  # Two blocks overlap when they are the same one as far as the larger one tells its addresses apart.
  validation {
    condition = !anytrue([
      for pair in setproduct(keys(var.datacenters), keys(var.datacenters)) :
      sort(pair)[0] == pair[0] && pair[0] != pair[1] && try(length(distinct([for name in pair : cidrhost("${split("/", var.datacenters[name].cidr)[0]}/${min([for side in pair : split("/", var.datacenters[side].cidr)[1]]...)}", 0)])) == 1, false)
    ])
    error_message = join(" ", [
      for pair in setproduct(keys(var.datacenters), keys(var.datacenters)) :
      "Datacenters ${pair[0]} and ${pair[1]} have blocks that overlap, ${var.datacenters[pair[0]].cidr} and ${var.datacenters[pair[1]].cidr}: give one of them another."
      if sort(pair)[0] == pair[0] && pair[0] != pair[1] && try(length(distinct([for name in pair : cidrhost("${split("/", var.datacenters[name].cidr)[0]}/${min([for side in pair : split("/", var.datacenters[side].cidr)[1]]...)}", 0)])) == 1, false)
    ])
  }

  validation {
    condition = alltrue([
      for block in flatten([for datacenter in var.datacenters : try(coalescelist(datacenter.admin_cidrs, []), [])]) :
      can(regex(local.private_block, block)) && try(cidrsubnet(block, 0, 0) == block, false)
    ])
    error_message = join(" ", flatten([
      for name, datacenter in var.datacenters : [
        for block in try(coalescelist(datacenter.admin_cidrs, []), []) :
        "Datacenter ${name} has ${block == null ? "null" : block} among its admin_cidrs: use private IPv4 blocks that begin at their first address, since brokers are for private networks alone."
        if !(can(regex(local.private_block, block)) && try(cidrsubnet(block, 0, 0) == block, false))
      ]
    ]))
  }

  validation {
    condition = alltrue([
      for block in flatten([for datacenter in var.datacenters : try(coalescelist(datacenter.publish_cidrs, []), [])]) :
      can(regex(local.private_block, block)) && try(cidrsubnet(block, 0, 0) == block, false)
    ])
    error_message = join(" ", flatten([
      for name, datacenter in var.datacenters : [
        for block in try(coalescelist(datacenter.publish_cidrs, []), []) :
        "Datacenter ${name} has ${block == null ? "null" : block} among its publish_cidrs: use private IPv4 blocks that begin at their first address, since brokers are for private networks alone."
        if !(can(regex(local.private_block, block)) && try(cidrsubnet(block, 0, 0) == block, false))
      ]
    ]))
  }

  validation {
    condition = !anytrue([
      for name, datacenter in var.datacenters : try(datacenter.tier == "live" && length(datacenter.publish_cidrs) == 0, false)
    ])
    error_message = join(" ", [
      for name, datacenter in var.datacenters :
      "Datacenter ${name} is live and its publish_cidrs are empty: name the blocks of its front ends, or remove the line to take the datacenter's own."
      if try(datacenter.tier == "live" && length(datacenter.publish_cidrs) == 0, false)
    ])
  }

  validation {
    condition = !anytrue([
      for name, datacenter in var.datacenters : try(datacenter.tier == "offline" && datacenter.publish_cidrs != null, false)
    ])
    error_message = join(" ", [
      for name, datacenter in var.datacenters :
      "Datacenter ${name} is offline and has publish_cidrs: remove them, since front ends publish to live datacenters."
      if try(datacenter.tier == "offline" && datacenter.publish_cidrs != null, false)
    ])
  }

  validation {
    condition = !anytrue([
      for name, datacenter in var.datacenters : try(datacenter.tier == "offline" && datacenter.load == null, false)
    ])
    error_message = join(" ", [
      for name, datacenter in var.datacenters :
      "Datacenter ${name} is offline and has no load: add load = {}."
      if try(datacenter.tier == "offline" && datacenter.load == null, false)
    ])
  }

  validation {
    condition = !anytrue([
      for name, datacenter in var.datacenters : try(datacenter.tier == "live" && datacenter.load != null, false)
    ])
    error_message = join(" ", [
      for name, datacenter in var.datacenters :
      "Datacenter ${name} is live and has a load: remove it, since loads run in the offline datacenter."
      if try(datacenter.tier == "live" && datacenter.load != null, false)
    ])
  }

  validation {
    condition = !anytrue([
      for name, datacenter in var.datacenters : try(length(datacenter.zones) == 0 || length(distinct(datacenter.zones)) < length(datacenter.zones) || length(setsubtract(datacenter.zones, local.zone_letters)) > 0, false)
    ])
    error_message = join(" ", [
      for name, datacenter in var.datacenters :
      "Datacenter ${name} has the zones [${join(", ", [for zone in datacenter.zones : zone == null ? "null" : zone])}]: name one or more of ${join(", ", local.zone_letters)}, each once."
      if try(length(datacenter.zones) == 0 || length(distinct(datacenter.zones)) < length(datacenter.zones) || length(setsubtract(datacenter.zones, local.zone_letters)) > 0, false)
    ])
  }

  validation {
    condition = !anytrue([
      for name, datacenter in var.datacenters : try(!contains(local.ensemble_sizes, datacenter.zookeeper.count), false)
    ])
    error_message = join(" ", [
      for name, datacenter in var.datacenters :
      "Datacenter ${name} has ${datacenter.zookeeper.count} ZooKeeper hosts: use an odd count from 1 to 9, since an even ensemble survives no more failures than one host fewer."
      if try(!contains(local.ensemble_sizes, datacenter.zookeeper.count), false)
    ])
  }

  validation {
    condition = !anytrue([
      for name, datacenter in var.datacenters : try(!contains(range(1, 101), datacenter.broker.count), false)
    ])
    error_message = join(" ", [
      for name, datacenter in var.datacenters :
      "Datacenter ${name} has ${datacenter.broker.count} brokers: use a whole number from 1 to 100."
      if try(!contains(range(1, 101), datacenter.broker.count), false)
    ])
  }

  validation {
    condition = alltrue([
      for size in flatten([for datacenter in var.datacenters : try([datacenter.audit.volume_gb, datacenter.broker.volume_gb, datacenter.zookeeper.volume_gb], [])]) :
      size >= 1 && size <= 16384 && floor(size) == size
    ])
    error_message = join(" ", flatten([
      for name, datacenter in var.datacenters : [
        for group, size in try({ audit = datacenter.audit.volume_gb, broker = datacenter.broker.volume_gb, zookeeper = datacenter.zookeeper.volume_gb }, {}) :
        "Datacenter ${name} has a volume_gb of ${size} for ${group}: use a whole number from 1 to 16384."
        if size < 1 || size > 16384 || floor(size) != size
      ]
    ]))
  }

  validation {
    condition = alltrue(flatten([
      for datacenter in var.datacenters : [
        for group in try([datacenter.audit, datacenter.broker, datacenter.load, datacenter.registry, datacenter.zookeeper], []) :
        group == null || can(regex(local.instance_type, group.instance_type))
      ]
    ]))
    error_message = join(" ", flatten([
      for name, datacenter in var.datacenters : [
        for group, settings in try({ audit = datacenter.audit, broker = datacenter.broker, load = datacenter.load, registry = datacenter.registry, zookeeper = datacenter.zookeeper }, {}) :
        "Datacenter ${name} has the instance type ${settings.instance_type} for ${group}: use one of AWS, like m7i.large."
        if settings != null && !can(regex(local.instance_type, settings.instance_type))
      ]
    ]))
  }
}

variable "image" {
  description = "The public SSM parameter that names the machine image of new hosts: an Amazon Linux 2023 for the instance types' architecture."
  type        = string
  default     = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
  nullable    = false

  validation {
    condition     = can(regex("^/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-.*-(arm64|x86_64)$", var.image))
    error_message = "image is ${var.image}: name a standard Amazon Linux 2023 (/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64, or -arm64), which has the SSM agent and finds its packages without the internet."
  }
}

variable "name" {
  description = "The pipeline's name, with which the names of all resources begin."
  type        = string
  default     = "headrace"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,14}[a-z0-9]$", var.name))
    error_message = "name is ${var.name}: use 2 to 16 lower-case letters, digits and hyphens, beginning with a letter."
  }

  # Of load balancers, security groups and buckets, which all begin with it.
  validation {
    condition     = !anytrue([for prefix in local.kept_prefixes : startswith("${var.name}-", prefix)])
    error_message = "name is ${var.name}: use another, since AWS keeps names that begin with ${join(", ", local.kept_prefixes)} for itself."
  }
}

variable "protect_data" {
  description = "Whether Terraform refuses to destroy data volumes, the warehouse's bucket and its database. False only for a pipeline to throw away."
  type        = bool
  default     = true
  nullable    = false
}

variable "security" {
  description = "How brokers, ZooKeepers and registries are spoken to: plaintext, tls or tls_sasl. While one takes the place of another both: that of before, then the new one."
  type        = list(string)
  default     = ["plaintext"]
  nullable    = false

  validation {
    condition     = contains([1, 2], length(var.security)) && length(distinct(var.security)) == length(var.security) && alltrue([for way in var.security : try(contains(["plaintext", "tls", "tls_sasl"], way), false)])
    error_message = "security is [${join(", ", [for way in var.security : way == null ? "null" : way])}]: name plaintext, tls or tls_sasl, or two of them while one takes the place of another: that of before, then the new one."
  }
}

variable "tags" {
  description = "Tags of every resource, beside Pipeline and ManagedBy."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition = alltrue([
      for key, value in var.tags : can(regex("^.{1,128}$", key)) && !startswith(lower(key), "aws:") && can(regex("^.{0,256}$", value))
    ])
    error_message = join(" ", [
      for key, value in var.tags :
      "tags has the key ${key}: use keys of 1 to 128 characters that do not begin with aws:, with values of at most 256."
      if !(can(regex("^.{1,128}$", key)) && !startswith(lower(key), "aws:") && can(regex("^.{0,256}$", value)))
    ])
  }
}
