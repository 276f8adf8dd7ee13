mock_provider "aws" {
  alias = "live"
}

mock_provider "aws" {
  alias = "offline"
}

variables {
  name = "headrace-offline-dc-west"
  live = {
    broker_cidrs             = ["10.2.0.0/21", "10.2.8.0/21"]
    broker_route_table_id    = "rtb-live"
    broker_security_group_id = "sg-live"
    region                   = "us-west-2"
    vpc_id                   = "vpc-live"
  }
  offline = {
    broker_cidrs             = ["10.9.0.0/21"]
    broker_route_table_id    = "rtb-offline"
    broker_security_group_id = "sg-offline"
    vpc_id                   = "vpc-offline"
  }
}

run "a_road_for_the_mirror" {
  command = plan

  assert {
    condition     = aws_vpc_peering_connection.this.vpc_id == "vpc-offline" && aws_vpc_peering_connection.this.peer_vpc_id == "vpc-live" && aws_vpc_peering_connection.this.peer_region == "us-west-2"
    error_message = "The offline network asks, the live one accepts, whatever its region."
  }

  assert {
    condition     = toset(keys(aws_route.to_live)) == toset(["10.2.0.0/21", "10.2.8.0/21"]) && toset(keys(aws_route.to_offline)) == toset(["10.9.0.0/21"])
    error_message = "The subnets of brokers are routed, and nothing else is."
  }

  assert {
    condition = alltrue([
      for rule in aws_vpc_security_group_ingress_rule.mirror : rule.security_group_id == "sg-live" && rule.cidr_ipv4 == "10.9.0.0/21" && rule.from_port == 9092 && rule.to_port == 9092
    ]) && length(aws_vpc_security_group_ingress_rule.mirror) == 1
    error_message = "Live brokers let offline brokers in at their port, and nobody lets live ones in."
  }
}

run "a_road_of_two_ports" {
  command = plan

  variables {
    ports = [9092, 9093]
  }

  assert {
    condition = { for key, rule in aws_vpc_security_group_egress_rule.mirror : key => "${rule.cidr_ipv4}:${rule.from_port}-${rule.to_port}" } == {
      "10.2.0.0/21"      = "10.2.0.0/21:9092-9092", "10.2.8.0/21" = "10.2.8.0/21:9092-9092",
      "10.2.0.0/21 9093" = "10.2.0.0/21:9093-9093", "10.2.8.0/21 9093" = "10.2.8.0/21:9093-9093"
    }
    error_message = "Both ports are open, and what was there before keeps its place."
  }
}

run "overlapping_sides" {
  command         = plan
  expect_failures = [var.live]

  variables {
    offline = {
      broker_cidrs             = ["10.2.8.0/21"]
      broker_route_table_id    = "rtb-offline"
      broker_security_group_id = "sg-offline"
      vpc_id                   = "vpc-offline"
    }
  }
}
