# The mirror's road: offline brokers pull from the brokers of one live datacenter. Only the subnets of brokers are routed, and
# only the offline side may open connections.

locals {
  # What was there before a second port keeps its name.
  _first = 9092
  _roads = {
    for side, cidrs in { live = var.live.broker_cidrs, offline = var.offline.broker_cidrs } : side => {
      for pair in setproduct(cidrs, var.ports) :
      pair[1] == local._first ? pair[0] : "${pair[0]} ${pair[1]}" => { cidr = pair[0], port = pair[1] }
    }
  }
}

resource "aws_vpc_peering_connection" "this" {
  provider = aws.offline

  peer_region = var.live.region
  peer_vpc_id = var.live.vpc_id
  tags        = { Name = var.name }
  vpc_id      = var.offline.vpc_id
}

resource "aws_vpc_peering_connection_accepter" "this" {
  provider = aws.live

  auto_accept               = true
  tags                      = { Name = var.name }
  vpc_peering_connection_id = aws_vpc_peering_connection.this.id
}

resource "aws_route" "to_live" {
  provider = aws.offline
  for_each = toset(var.live.broker_cidrs)

  destination_cidr_block    = each.key
  route_table_id            = var.offline.broker_route_table_id
  vpc_peering_connection_id = aws_vpc_peering_connection_accepter.this.id
}

resource "aws_route" "to_offline" {
  provider = aws.live
  for_each = toset(var.offline.broker_cidrs)

  destination_cidr_block    = each.key
  route_table_id            = var.live.broker_route_table_id
  vpc_peering_connection_id = aws_vpc_peering_connection_accepter.this.id
}

# Security groups of another region cannot be named in a rule, so the rules name the subnets, which hold brokers alone.
resource "aws_vpc_security_group_egress_rule" "mirror" {
  provider = aws.offline
  for_each = local._roads.live

  cidr_ipv4         = each.value.cidr
  description       = "mirror to live brokers of ${var.name}"
  from_port         = each.value.port
  ip_protocol       = "tcp"
  security_group_id = var.offline.broker_security_group_id
  to_port           = each.value.port
}

resource "aws_vpc_security_group_ingress_rule" "mirror" {
  provider = aws.live
  for_each = local._roads.offline

  cidr_ipv4         = each.value.cidr
  description       = "mirror from offline brokers of ${var.name}"
  from_port         = each.value.port
  ip_protocol       = "tcp"
  security_group_id = var.live.broker_security_group_id
  to_port           = each.value.port
}
