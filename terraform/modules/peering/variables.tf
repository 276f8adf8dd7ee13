variable "live" {
  description = "The live side: its network, region, and the subnets, route table and security group of its brokers."
  type = object({
    broker_cidrs             = list(string)
    broker_route_table_id    = string
    broker_security_group_id = string
    region                   = string
    vpc_id                   = string
  })

  validation {
    condition     = length(setintersection(var.live.broker_cidrs, var.offline.broker_cidrs)) == 0
    error_message = "The brokers of both sides of ${var.name} have the same subnets: give the datacenters CIDR blocks that do not overlap."
  }
}

variable "name" {
  description = "The connection's name."
  type        = string
}

variable "offline" {
  description = "The offline side, which pulls: its network, and the subnets, route table and security group of its brokers."
  type = object({
    broker_cidrs             = list(string)
    broker_route_table_id    = string
    broker_security_group_id = string
    vpc_id                   = string
  })
}

variable "ports" {
  description = "The ports of the live brokers that are open."
  type        = list(number)
  default     = [9092]
}
