variable "admin_cidrs" {
  description = "Private blocks from which people administer the brokers and read metrics."
  type        = list(string)

  validation {
    condition     = alltrue([for block in var.admin_cidrs : !endswith(block, "/0")])
    error_message = "admin_cidrs of ${var.name} opens the brokers' listeners to the world: name private blocks."
  }
}

variable "cidr" {
  description = "The network's IPv4 block."
  type        = string
}

variable "endpoints" {
  description = "AWS services that the hosts reach inside the network, by the names of their endpoints."
  type        = set(string)
  default     = ["ec2messages", "ssm", "ssmmessages"]
}

variable "groups" {
  description = "The groups of hosts that get a security group: broker, zookeeper, registry, audit and, offline, load."
  type        = set(string)

  validation {
    condition     = length(setsubtract(var.groups, ["broker", "zookeeper", "registry", "audit", "load"])) == 0
    error_message = "groups of ${var.name} names one that no port is known for: use broker, zookeeper, registry, audit and load."
  }
}

variable "name" {
  description = "What the names of all resources begin with."
  type        = string
}

variable "publish_cidrs" {
  description = "Private blocks from which front ends publish and consumers read; empty where nobody publishes, and then there is no door for a load balancer."
  type        = list(string)

  validation {
    condition     = alltrue([for block in var.publish_cidrs : !endswith(block, "/0")])
    error_message = "publish_cidrs of ${var.name} opens the brokers' listeners to the world: name private blocks."
  }
}

variable "region" {
  description = "The region of the network."
  type        = string
}

variable "security" {
  description = "How brokers, ZooKeepers and registries are spoken to: plaintext, tls or tls_sasl, or two of them while one takes the place of another."
  type        = list(string)
  default     = ["plaintext"]

  validation {
    condition     = length(var.security) > 0 && length(setsubtract(var.security, ["plaintext", "tls", "tls_sasl"])) == 0
    error_message = "security of ${var.name} is [${join(", ", var.security)}]: name plaintext, tls or tls_sasl."
  }
}

variable "zones" {
  description = "By rack, the availability zone and the blocks of its three subnets: brokers, the other hosts, and the edge (load balancer and endpoints)."
  type = map(object({
    availability_zone = string
    broker_cidr       = string
    edge_cidr         = string
    service_cidr      = string
  }))

  validation {
    condition     = length(var.zones) > 0
    error_message = "zones of ${var.name} is empty: name at least one availability zone."
  }
}
