# The bootstrap address of a live datacenter: what HAProxy is on hosts. It carries metadata and first connections; a client
# of Kafka then goes on with each partition's leader.

locals {
  port = 9092
}

resource "aws_lb" "this" {
  name                             = var.name
  enable_cross_zone_load_balancing = true
  internal                         = true
  load_balancer_type               = "network"
  security_groups                  = [var.security_group_id]
  subnets                          = var.subnet_ids
}

# Addresses and not machines: a broker that is replaced keeps its address.
resource "aws_lb_target_group" "brokers" {
  name        = var.name
  port        = local.port
  protocol    = "TCP"
  target_type = "ip"
  vpc_id      = var.vpc_id

  health_check {
    healthy_threshold   = 2
    interval            = 10
    port                = local.port
    protocol            = "TCP"
    unhealthy_threshold = 2
  }
}

resource "aws_lb_target_group_attachment" "broker" {
  for_each = var.brokers

  port             = local.port
  target_group_arn = aws_lb_target_group.brokers.arn
  target_id        = each.value
}

resource "aws_lb_listener" "publish" {
  load_balancer_arn = aws_lb.this.arn
  port              = local.port
  protocol          = "TCP"

  default_action {
    target_group_arn = aws_lb_target_group.brokers.arn
    type             = "forward"
  }
}

resource "aws_route53_zone" "this" {
  name    = var.dns_zone
  comment = "Publish address of ${var.name}"

  vpc {
    vpc_id = var.vpc_id
  }
}

resource "aws_route53_record" "publish" {
  name    = "publish.${var.dns_zone}"
  type    = "A"
  zone_id = aws_route53_zone.this.zone_id

  alias {
    evaluate_target_health = false
    name                   = aws_lb.this.dns_name
    zone_id                = aws_lb.this.zone_id
  }
}
