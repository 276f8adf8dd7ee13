output "inventory" {
  description = "The Ansible inventory. Sensitive, since it is a map of the inside: scripts/terraform_inventory.py writes it to a file."
  value       = local.inventory
  sensitive   = true
}

output "peerings" {
  description = "By live datacenter, the connection over which the offline brokers pull."
  value       = { for name, peering in local.peerings : name => peering.connection_id }
}

output "publish_addresses" {
  description = "By live datacenter, where producers and consumers start."
  value       = { for name in keys(local.live) : name => local.made[name].publish_address }
}

output "publish_zone_ids" {
  description = "By live datacenter, the private DNS zone of its publish address, to associate with other networks that publish."
  value       = { for name in keys(local.live) : name => local.made[name].publish_zone_id }
}

output "warehouse" {
  description = "Where the tables are: location and Glue database."
  value       = local._warehouse
}
