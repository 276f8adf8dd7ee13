output "connection_id" {
  description = "The accepted connection."
  value       = aws_vpc_peering_connection_accepter.this.id
}
