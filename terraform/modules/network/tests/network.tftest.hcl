mock_provider "aws" {
  mock_data "aws_availability_zones" {
    defaults = { names = ["us-east-1a", "us-east-1b"] }
  }
}

variables {
  name          = "headrace-dc-east"
  region        = "us-east-1"
  cidr          = "10.1.0.0/16"
  admin_cidrs   = ["10.1.0.0/16"]
  publish_cidrs = ["10.1.0.0/16", "10.20.0.0/16"]
  groups        = ["audit", "broker", "registry", "zookeeper"]
  zones = {
    a = { availability_zone = "us-east-1a", broker_cidr = "10.1.0.0/21", service_cidr = "10.1.64.0/21", edge_cidr = "10.1.128.0/21" }
    b = { availability_zone = "us-east-1b", broker_cidr = "10.1.8.0/21", service_cidr = "10.1.72.0/21", edge_cidr = "10.1.136.0/21" }
  }
}

run "a_live_network" {
  command = plan

  assert {
    condition     = length(aws_subnet.this) == 6 && alltrue([for subnet in aws_subnet.this : !subnet.map_public_ip_on_launch])
    error_message = "Each zone has three subnets, and none gives out public addresses."
  }

  assert {
    condition     = length(aws_default_security_group.closed.ingress) == 0 && length(aws_default_security_group.closed.egress) == 0
    error_message = "The network's default security group lets nobody talk."
  }

  assert {
    condition = toset(keys(aws_vpc_security_group_ingress_rule.door)) == toset([
      "audit counter_metrics from 10.1.0.0/16",
      "broker broker from 10.1.0.0/16", "broker broker from 10.20.0.0/16", "broker metrics from 10.1.0.0/16",
      "load_balancer broker from 10.1.0.0/16", "load_balancer broker from 10.20.0.0/16",
      "registry registry from 10.1.0.0/16", "registry registry from 10.20.0.0/16",
    ])
    error_message = "Blocks open the ports of publishing and administering alone, and one that does both opens each once."
  }

  assert {
    condition     = aws_vpc_security_group_ingress_rule.flow["broker to zookeeper zookeeper"].from_port == 2181 && !contains(keys(aws_vpc_security_group_ingress_rule.flow), "registry to zookeeper zookeeper")
    error_message = "Brokers reach ZooKeeper, and nobody else does."
  }

  assert {
    condition     = !contains(keys(aws_vpc_endpoint.interface), "glue") && length(aws_vpc_endpoint.interface) == 3
    error_message = "A live network has the endpoints of SSM alone."
  }
}

run "an_offline_network" {
  command = plan

  variables {
    endpoints     = ["ec2messages", "glue", "ssm", "ssmmessages"]
    groups        = ["audit", "broker", "load", "registry", "zookeeper"]
    publish_cidrs = []
  }

  assert {
    condition     = !contains(keys(aws_security_group.this), "load_balancer")
    error_message = "Where nobody publishes there is no load balancer to protect."
  }

  assert {
    condition     = aws_vpc_security_group_ingress_rule.flow["load to registry registry"].to_port == 8081 && aws_vpc_security_group_ingress_rule.door["load metrics from 10.1.0.0/16"].to_port == 9404
    error_message = "The load reaches the registry and shows its metrics."
  }

  assert {
    condition     = aws_vpc_security_group_ingress_rule.door["audit counter_metrics from 10.1.0.0/16"].to_port == 9405 && aws_vpc_security_group_ingress_rule.door["audit auditor_metrics from 10.1.0.0/16"].to_port == 9406
    error_message = "The offline audit host shows the metrics of its counter and of the auditor."
  }
}

run "a_network_of_log_ins" {
  command = plan

  variables {
    security = ["tls_sasl"]
  }

  assert {
    condition = toset([
      for rule in concat(values(aws_vpc_security_group_ingress_rule.door), values(aws_vpc_security_group_ingress_rule.flow)) : rule.from_port
    ]) == toset([443, 2182, 2888, 3888, 8082, 9094, 9404, 9405])
    error_message = "No port of plaintext is open but those of metrics."
  }

  assert {
    condition     = output.broker_ports == [9094]
    error_message = "Load balancer and peering are told the port of brokers."
  }
}

run "a_network_that_changes" {
  command = plan

  variables {
    security = ["tls", "tls_sasl"]
  }

  assert {
    condition     = aws_vpc_security_group_ingress_rule.flow["broker to broker broker_tls"].from_port == 9093 && aws_vpc_security_group_ingress_rule.flow["broker to broker broker_tls_sasl"].from_port == 9094
    error_message = "Both ways are open."
  }

  assert {
    condition     = length([for key in keys(aws_vpc_security_group_ingress_rule.flow) : key if startswith(key, "broker to zookeeper")]) == 1
    error_message = "And the port that is the same in both is open once."
  }
}

run "a_way_that_is_none" {
  command         = plan
  expect_failures = [var.security]

  variables {
    security = ["tls", "ssl"]
  }
}

run "publishing_from_the_world" {
  command         = plan
  expect_failures = [var.publish_cidrs]

  variables {
    publish_cidrs = ["0.0.0.0/0"]
  }
}

run "administering_from_the_world" {
  command         = plan
  expect_failures = [var.admin_cidrs]

  variables {
    admin_cidrs = ["10.1.0.0/16", "0.0.0.0/0"]
  }
}

run "a_group_without_ports" {
  command         = plan
  expect_failures = [var.groups]

  variables {
    groups = ["broker", "bastion"]
  }
}

run "no_zones" {
  command         = plan
  expect_failures = [var.zones]

  variables {
    zones = {}
  }
}

run "a_zone_that_the_account_lacks" {
  command         = plan
  expect_failures = [data.aws_availability_zones.offered]

  variables {
    zones = {
      c = { availability_zone = "us-east-1c", broker_cidr = "10.1.16.0/21", service_cidr = "10.1.80.0/21", edge_cidr = "10.1.144.0/21" }
    }
  }
}
