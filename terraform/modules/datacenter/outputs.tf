output "ansible_bucket" {
  description = "The bucket through which Ansible sends files to the hosts."
  value       = module.cluster.ansible_bucket
}

output "hosts" {
  description = "Each host by its name: machine and data volume."
  value       = module.cluster.hosts
}

output "peer" {
  description = "What a peering needs to know of this side."
  value = {
    broker_cidrs             = [for zone in var.network.zones : zone.broker_cidr]
    broker_ports             = module.network.broker_ports
    broker_route_table_id    = module.network.broker_route_table_id
    broker_security_group_id = module.network.security_group_ids["broker"]
    region                   = var.region
    vpc_id                   = module.network.vpc_id
  }
}

output "publish_address" {
  description = "Where producers of a live datacenter start; null offline."
  value       = one(module.load_balancer[*].publish_address)
}

output "publish_zone_id" {
  description = "The private DNS zone of a live datacenter's publish address; null offline."
  value       = one(module.load_balancer[*].dns_zone_id)
}

output "warehouse" {
  description = "The location of the tables and the Glue database; null in a live datacenter."
  value       = one([for made in module.warehouse : { database = made.database, location = made.warehouse }])
}
