variable "brokers" {
  description = "The address of each broker, by host name."
  type        = map(string)

  validation {
    condition     = length(var.brokers) > 0
    error_message = "brokers of ${var.name} is empty: a publish address needs at least one broker behind it."
  }
}

variable "dns_zone" {
  description = "The private DNS zone that the publish address is a name of."
  type        = string
}

variable "name" {
  description = "The load balancer's name."
  type        = string

  validation {
    condition     = length(var.name) <= 32
    error_message = "The load balancer's name ${var.name} has ${length(var.name)} characters: AWS allows 32."
  }
}

variable "ports" {
  description = "The ports of the brokers that are open."
  type        = list(number)
  default     = [9092]

  validation {
    condition     = length(var.ports) > 0
    error_message = "ports of ${var.name} is empty: a publish address needs at least one port."
  }
}

variable "security_group_id" {
  description = "The security group that says who may publish."
  type        = string
}

variable "subnet_ids" {
  description = "One subnet a zone."
  type        = list(string)
}

variable "vpc_id" {
  description = "The network of the brokers."
  type        = string
}
