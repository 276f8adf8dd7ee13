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
    condition     = one(aws_lb_target_group.brokers.health_check).protocol == "TCP" && one(aws_lb_target_group.brokers.health_check).port == "9092"
    error_message = "A broker that does not answer gets no connections."
  }

  assert {
    condition     = output.publish_address == "publish.dc-east.headrace.internal:9092"
    error_message = "The publish address is a name that stays."
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
