output "broker_ports" {
  description = "The ports of brokers that are open, in the order of security."
  value       = [for port in local._open.broker : local._ports[port]]
}

output "broker_route_table_id" {
  description = "The table of the brokers' subnets, where the peering adds its routes."
  value       = aws_route_table.this["broker"].id
}

output "security_group_ids" {
  description = "The security group of each group of hosts, of the endpoints and, where front ends publish, of the load balancer."
  value       = { for name, group in aws_security_group.this : name => group.id }
}

output "subnet_ids" {
  description = "By tier (broker, edge, service) and rack, the subnet."
  value = {
    for tier in ["broker", "edge", "service"] : tier => {
      for rack in keys(var.zones) : rack => aws_subnet.this["${tier}-${rack}"].id
    }
  }

  # What is put into a subnet may count on its routes, endpoints and rules: a first boot needs them.
  depends_on = [
    aws_route_table_association.this,
    aws_vpc_endpoint.interface,
    aws_vpc_endpoint.s3,
    aws_vpc_security_group_egress_rule.flow,
    aws_vpc_security_group_egress_rule.s3,
    aws_vpc_security_group_ingress_rule.door,
    aws_vpc_security_group_ingress_rule.flow,
  ]
}

output "vpc_id" {
  description = "The network."
  value       = aws_vpc.this.id
}

output "zones" {
  description = "By rack, its availability zone, which the account has."
  value       = { for rack, zone in var.zones : rack => zone.availability_zone }

  # Where a zone is missing, that is all there is to say.
  depends_on = [data.aws_availability_zones.offered]
}
