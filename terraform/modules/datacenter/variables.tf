variable "hosts" {
  description = "Each host by its name: group, number, rack, address, instance type and the size of its data volume, 0 for none."
  type = map(object({
    address       = string
    group         = string
    instance_type = string
    number        = number
    rack          = string
    volume_gb     = number
  }))
}

variable "image" {
  description = "The public SSM parameter that names the machine image of new hosts."
  type        = string
}

variable "name" {
  description = "What the names of all resources begin with."
  type        = string
}

variable "network" {
  description = "The network's block, who publishes and administers from where, and by rack the availability zone and blocks of the subnets."
  type = object({
    admin_cidrs   = list(string)
    cidr          = string
    dns_zone      = string
    publish_cidrs = list(string)
    zones = map(object({
      availability_zone = string
      broker_cidr       = string
      edge_cidr         = string
      service_cidr      = string
    }))
  })
}

variable "protect_data" {
  description = "Whether Terraform refuses to destroy data volumes, the warehouse's bucket and its database."
  type        = bool
  default     = true
}

variable "region" {
  description = "The datacenter's region."
  type        = string
}

variable "security" {
  description = "How brokers, ZooKeepers and registries are spoken to: plaintext, tls or tls_sasl, or two of them while one takes the place of another."
  type        = list(string)
  default     = ["plaintext"]
}

variable "tier" {
  description = "live, where front ends publish, or offline, where the warehouse is."
  type        = string

  validation {
    condition     = contains(["live", "offline"], var.tier)
    error_message = "The tier of ${var.name} is ${var.tier}: it must be live or offline."
  }
}
