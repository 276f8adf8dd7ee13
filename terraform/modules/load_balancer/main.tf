# The bootstrap address of a live datacenter: what HAProxy is on hosts. It carries metadata and first connections; a client
# of Kafka then goes on with each partition's leader.

locals {
  # What was there before a second port keeps its name.
  _first = 9092
  _targets = {
    for pair in setproduct(keys(var.brokers), var.ports) :
    pair[1] == local._first ? pair[0] : "${pair[0]} ${pair[1]}" => { address = var.brokers[pair[0]], port = pair[1] }
  }
  # AWS allows 32 characters, so a long name is told by its beginning and its hash.
  _short = length(var.name) <= 27 ? var.name : "${substr(var.name, 0, 18)}-${substr(md5(var.name), 0, 8)}"
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
  for_each = toset([for port in var.ports : tostring(port)])

  name        = each.key == tostring(local._first) ? var.name : "${local._short}-${each.key}"
  port        = each.key
  protocol    = "TCP"
  target_type = "ip"
  vpc_id      = var.vpc_id

  health_check {
    healthy_threshold   = 2
    interval            = 10
    port                = each.key
    protocol            = "TCP"
    unhealthy_threshold = 2
  }
}

resource "aws_lb_target_group_attachment" "broker" {
  for_each = local._targets

  port             = each.value.port
  target_group_arn = aws_lb_target_group.brokers[each.value.port].arn
  target_id        = each.value.address
}

resource "aws_lb_listener" "publish" {
  for_each = aws_lb_target_group.brokers

  load_balancer_arn = aws_lb.this.arn
  port              = each.key
  protocol          = "TCP"

  default_action {
    target_group_arn = each.value.arn
    type             = "forward"
  }
}

moved {
  from = aws_lb_target_group.brokers
  to   = aws_lb_target_group.brokers["9092"]
}

moved {
  from = aws_lb_listener.publish
  to   = aws_lb_listener.publish["9092"]
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
