variable "hosts" {
  description = "Each host by its name: its group and number, which are its identity; its rack and address, which it keeps when it is replaced; and its size. A host with a data volume has volume_gb above 0."
  type = map(object({
    address       = string
    group         = string
    instance_type = string
    number        = number
    rack          = string
    volume_gb     = number
  }))

  validation {
    condition     = length(distinct([for host in var.hosts : "${host.group} ${host.number}"])) == length(var.hosts)
    error_message = "Two hosts of ${var.name} have the same group and number: each needs its own."
  }

  validation {
    condition     = length(distinct([for host in var.hosts : host.address])) == length(var.hosts)
    error_message = "Two hosts of ${var.name} have the same address: each needs its own."
  }
}

variable "image" {
  description = "The public SSM parameter that names the machine image of new hosts: an Amazon Linux 2023, which has the SSM agent."
  type        = string
}

variable "name" {
  description = "What the names of all resources begin with."
  type        = string
}

variable "policies" {
  description = "What a group of hosts may do beyond being reached through SSM, as a JSON policy by group."
  type        = map(string)
  default     = {}

  validation {
    condition     = length(setsubtract(keys(var.policies), [for host in var.hosts : host.group])) == 0
    error_message = "policies of ${var.name} names a group without hosts."
  }
}

variable "protect_data" {
  description = "Whether Terraform refuses to destroy the data volumes."
  type        = bool
  default     = true
}

variable "security_group_ids" {
  description = "The security group of each group of hosts."
  type        = map(string)
}

variable "subnet_ids" {
  description = "The subnet of each rack: for brokers, and for the other hosts."
  type = object({
    broker  = map(string)
    service = map(string)
  })
}

variable "zones" {
  description = "The availability zone of each rack."
  type        = map(string)
}
