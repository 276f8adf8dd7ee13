mock_provider "aws" {
  mock_resource "aws_lb" {
    defaults = { arn = "arn:aws:elasticloadbalancing:us-east-1:123456789012:loadbalancer/net/publish/1" }
  }
  mock_resource "aws_lb_target_group" {
    defaults = { arn = "arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/publish/1" }
  }
}

variables {
  name              = "headrace-dc-east"
  brokers           = { dc-east-broker-1 = "10.1.0.10", dc-east-broker-2 = "10.1.8.11" }
  dns_zone          = "dc-east.headrace.internal"
  security_group_id = "sg-1"
  subnet_ids        = ["subnet-1", "subnet-2"]
  vpc_id            = "vpc-1"
}

run "a_publish_address" {
  command = apply

  assert {
    condition     = aws_lb.this.internal && aws_lb.this.enable_cross_zone_load_balancing && aws_lb.this.load_balancer_type == "network"
    error_message = "It is an internal network load balancer over all zones."
  }

  assert {
    condition     = { for name, target in aws_lb_target_group_attachment.broker : name => "${target.target_id}:${target.port}" } == { dc-east-broker-1 = "10.1.0.10:9092", dc-east-broker-2 = "10.1.8.11:9092" }
    error_message = "Every broker is behind it, by its address."
  }

  assert {
    condition     = alltrue([for group in aws_lb_target_group.brokers : one(group.health_check).protocol == "TCP" && one(group.health_check).port == "9092"])
    error_message = "A broker that does not answer gets no connections."
  }

  assert {
    condition     = output.publish_address == "publish.dc-east.headrace.internal:9092"
    error_message = "The publish address is a name that stays."
  }
}

run "two_ports" {
  command = apply

  variables {
    ports = [9092, 9094]
  }

  assert {
    condition = { for name, target in aws_lb_target_group_attachment.broker : name => "${target.target_id}:${target.port}" } == {
      dc-east-broker-1        = "10.1.0.10:9092", dc-east-broker-2 = "10.1.8.11:9092",
      "dc-east-broker-1 9094" = "10.1.0.10:9094", "dc-east-broker-2 9094" = "10.1.8.11:9094"
    }
    error_message = "Every broker is behind each of them."
  }

  assert {
    condition     = { for port, listener in aws_lb_listener.publish : port => listener.port } == { "9092" = 9092, "9094" = 9094 }
    error_message = "Each of them listens."
  }

  assert {
    condition     = { for port, group in aws_lb_target_group.brokers : port => group.name } == { "9092" = "headrace-dc-east", "9094" = "headrace-dc-east-9094" }
    error_message = "What was there before keeps its name."
  }

  assert {
    condition     = output.publish_address == "publish.dc-east.headrace.internal:9094"
    error_message = "Clients start by the new way."
  }
}

run "a_long_name" {
  command = apply

  variables {
    name  = "headrace-with-a-long-datacenter1"
    ports = [9093]
  }

  assert {
    condition     = alltrue([for group in aws_lb_target_group.brokers : length(group.name) == 32 && endswith(group.name, "-9093")])
    error_message = "The name of a group of targets is one that AWS takes."
  }
}

run "no_ports" {
  command         = plan
  expect_failures = [var.ports]

  variables {
    ports = []
  }
}

run "no_brokers" {
  command         = plan
  expect_failures = [var.brokers]

  variables {
    brokers = {}
  }
}

run "a_name_too_long" {
  command         = plan
  expect_failures = [var.name]

  variables {
    name = "headrace-a-datacenter-with-a-long-name"
  }
}
