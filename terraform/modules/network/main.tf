# The network has no way to or from the internet: hosts reach AWS through endpoints, and people reach hosts through SSM.

data "aws_availability_zones" "offered" {
  state = "available"

  lifecycle {
    postcondition {
      condition     = length(setsubtract(values(var.zones)[*].availability_zone, self.names)) == 0
      error_message = "${var.name}: this account has no zone ${join(", ", setsubtract(values(var.zones)[*].availability_zone, self.names))}; choose among ${join(", ", self.names)}."
    }
  }
}

resource "aws_vpc" "this" {
  cidr_block           = var.cidr
  enable_dns_hostnames = true
  enable_dns_support   = true
  tags                 = { Name = var.name }
}

# AWS gives every network a group that lets its members talk to each other; without rules it lets nobody.
resource "aws_default_security_group" "closed" {
  vpc_id  = aws_vpc.this.id
  egress  = []
  ingress = []
  tags    = { Name = "${var.name}-unused" }
}

locals {
  _subnets = merge([
    for rack, zone in var.zones : {
      "broker-${rack}"  = { tier = "broker", zone = zone.availability_zone, cidr = zone.broker_cidr }
      "edge-${rack}"    = { tier = "edge", zone = zone.availability_zone, cidr = zone.edge_cidr }
      "service-${rack}" = { tier = "service", zone = zone.availability_zone, cidr = zone.service_cidr }
    }
  ]...)
}

resource "aws_subnet" "this" {
  for_each = local._subnets

  vpc_id                  = aws_vpc.this.id
  availability_zone       = each.value.zone
  cidr_block              = each.value.cidr
  map_public_ip_on_launch = false
  tags                    = { Name = "${var.name}-${each.key}" }
}

# One table a tier: the peering adds its routes to the brokers' alone.
resource "aws_route_table" "this" {
  for_each = toset(["broker", "edge", "service"])

  vpc_id = aws_vpc.this.id
  tags   = { Name = "${var.name}-${each.key}" }
}

resource "aws_route_table_association" "this" {
  for_each = local._subnets

  route_table_id = aws_route_table.this[each.value.tier].id
  subnet_id      = aws_subnet.this[each.key].id
}

resource "aws_vpc_endpoint" "interface" {
  for_each = var.endpoints

  vpc_id              = aws_vpc.this.id
  service_name        = "com.amazonaws.${var.region}.${each.key}"
  vpc_endpoint_type   = "Interface"
  private_dns_enabled = true
  security_group_ids  = [aws_security_group.this["endpoint"].id]
  subnet_ids          = [for rack in keys(var.zones) : aws_subnet.this["edge-${rack}"].id]
  tags                = { Name = "${var.name}-${each.key}" }
}

# Packages of Amazon Linux, Ansible's files and the warehouse are all in S3.
resource "aws_vpc_endpoint" "s3" {
  vpc_id            = aws_vpc.this.id
  service_name      = "com.amazonaws.${var.region}.s3"
  vpc_endpoint_type = "Gateway"
  route_table_ids   = [aws_route_table.this["broker"].id, aws_route_table.this["service"].id]
  tags              = { Name = "${var.name}-s3" }
}
