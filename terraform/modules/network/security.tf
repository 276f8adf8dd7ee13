# Who may reach whom, on the ports of the design and on no other. SSM needs no port of a host: it has none for SSH.
# Names and ports are those of headrace_ports in playbooks/group_vars/all.yml.

locals {
  _ports = {
    auditor_metrics    = 9406
    broker             = 9092
    broker_tls         = 9093
    broker_tls_sasl    = 9094
    counter_metrics    = 9405
    endpoint           = 443
    metrics            = 9404
    registry           = 8081
    registry_tls       = 8082
    zookeeper          = 2181
    zookeeper_election = 3888
    zookeeper_peer     = 2888
    zookeeper_tls      = 2182
  }
  # The ports of what is spoken to in one of several ways. ZooKeepers and registries have one port for both ways of TLS.
  _endings = { plaintext = "", tls = "_tls", tls_sasl = "_tls_sasl" }
  _open = {
    broker    = [for way in var.security : "broker${local._endings[way]}"]
    registry  = distinct([for way in var.security : way == "plaintext" ? "registry" : "registry_tls"])
    zookeeper = distinct([for way in var.security : way == "plaintext" ? "zookeeper" : "zookeeper_tls"])
  }
  _published = length(var.publish_cidrs) > 0
  _members   = setunion(var.groups, ["endpoint"], local._published ? ["load_balancer"] : [])

  # Each makes a rule out of `from` and a rule into `to`.
  _flows = concat(
    [
      { from = "audit", to = "broker", port = "broker" },
      { from = "broker", to = "broker", port = "broker" },
      { from = "broker", to = "zookeeper", port = "zookeeper" },
      { from = "load", to = "broker", port = "broker" },
      { from = "load", to = "registry", port = "registry" },
      { from = "load_balancer", to = "broker", port = "broker" },
      { from = "registry", to = "broker", port = "broker" },
      { from = "zookeeper", to = "zookeeper", port = "zookeeper_election" },
      { from = "zookeeper", to = "zookeeper", port = "zookeeper_peer" },
    ],
    [for group in var.groups : { from = group, to = "endpoint", port = "endpoint" }],
  )
  flows = merge([
    for flow in local._flows : {
      for port in try(local._open[flow.port], [flow.port]) : "${flow.from} to ${flow.to} ${port}" => merge(flow, { port = local._ports[port] })
      if contains(local._members, flow.from) && contains(local._members, flow.to)
    }
  ]...)

  # A client of Kafka starts at the load balancer and goes on with each broker, so publishing needs both.
  _doors = concat(
    [
      for pair in setproduct(["broker", "load_balancer", "registry"], var.publish_cidrs) :
      { to = pair[0], port = pair[0] == "registry" ? "registry" : "broker", cidr = pair[1] }
    ],
    [
      for pair in setproduct(["broker", "registry"], var.admin_cidrs) :
      { to = pair[0], port = pair[0], cidr = pair[1] }
    ],
    [
      for pair in setproduct(["broker", "load"], var.admin_cidrs) :
      { to = pair[0], port = "metrics", cidr = pair[1] }
    ],
    # The auditor is where the load is: in the offline datacenter.
    [
      for pair in setproduct(contains(var.groups, "load") ? ["counter_metrics", "auditor_metrics"] : ["counter_metrics"], var.admin_cidrs) :
      { to = "audit", port = pair[0], cidr = pair[1] }
    ],
  )
  # A block that both publishes and administers is one rule.
  doors = merge([
    for door in local._doors : {
      for port in try(local._open[door.port], [door.port]) : "${door.to} ${port} from ${door.cidr}" => merge(door, { port = local._ports[port] })
      if contains(local._members, door.to)
    }
  ]...)
}

resource "aws_security_group" "this" {
  for_each = local._members

  name        = "${var.name}-${each.key}"
  description = "${each.key} of ${var.name}"
  vpc_id      = aws_vpc.this.id
  tags        = { Name = "${var.name}-${each.key}" }
}

resource "aws_vpc_security_group_ingress_rule" "flow" {
  for_each = local.flows

  description                  = each.key
  from_port                    = each.value.port
  ip_protocol                  = "tcp"
  referenced_security_group_id = aws_security_group.this[each.value.from].id
  security_group_id            = aws_security_group.this[each.value.to].id
  to_port                      = each.value.port
}

resource "aws_vpc_security_group_egress_rule" "flow" {
  for_each = local.flows

  description                  = each.key
  from_port                    = each.value.port
  ip_protocol                  = "tcp"
  referenced_security_group_id = aws_security_group.this[each.value.to].id
  security_group_id            = aws_security_group.this[each.value.from].id
  to_port                      = each.value.port
}

resource "aws_vpc_security_group_ingress_rule" "door" {
  for_each = local.doors

  cidr_ipv4         = each.value.cidr
  description       = each.key
  from_port         = each.value.port
  ip_protocol       = "tcp"
  security_group_id = aws_security_group.this[each.value.to].id
  to_port           = each.value.port
}

data "aws_ec2_managed_prefix_list" "s3" {
  name = "com.amazonaws.${var.region}.s3"
}

resource "aws_vpc_security_group_egress_rule" "s3" {
  for_each = var.groups

  description       = "${each.key} to S3"
  from_port         = 443
  ip_protocol       = "tcp"
  prefix_list_id    = data.aws_ec2_managed_prefix_list.s3.id
  security_group_id = aws_security_group.this[each.key].id
  to_port           = 443
}
