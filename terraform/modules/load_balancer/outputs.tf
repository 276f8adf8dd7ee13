output "dns_zone_id" {
  description = "The private DNS zone, to associate with other networks that publish."
  value       = aws_route53_zone.this.zone_id
}

output "publish_address" {
  description = "Where producers and consumers start: host:port, of two ports the last."
  value       = "${aws_route53_record.publish.name}:${reverse(var.ports)[0]}"

  depends_on = [aws_lb_listener.publish, aws_lb_target_group_attachment.broker]
}
