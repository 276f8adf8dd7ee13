mock_provider "aws" {
  mock_data "aws_availability_zones" {
    defaults = { names = ["us-east-1a"] }
  }
  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }
  mock_data "aws_ec2_instance_type_offerings" {
    defaults = { locations = ["us-east-1a"] }
  }
  mock_data "aws_ec2_instance_types" {
    defaults = { instance_types = ["t3.micro"] }
  }
  mock_data "aws_iam_policy_document" {
    defaults = { json = "{}" }
  }
  mock_resource "aws_lb" {
    defaults = { arn = "arn:aws:elasticloadbalancing:us-east-1:123456789012:loadbalancer/net/publish/1" }
  }
  mock_resource "aws_lb_target_group" {
    defaults = { arn = "arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/publish/1" }
  }
}

variables {
  name   = "headrace-dc-east"
  region = "us-east-1"
  tier   = "live"
  image  = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
  hosts = {
    dc-east-audit-1     = { group = "audit", number = 1, rack = "a", address = "10.1.64.31", instance_type = "t3.micro", volume_gb = 1 }
    dc-east-broker-1    = { group = "broker", number = 1, rack = "a", address = "10.1.0.10", instance_type = "t3.micro", volume_gb = 1 }
    dc-east-registry-1  = { group = "registry", number = 1, rack = "a", address = "10.1.64.21", instance_type = "t3.micro", volume_gb = 0 }
    dc-east-zookeeper-1 = { group = "zookeeper", number = 1, rack = "a", address = "10.1.64.11", instance_type = "t3.micro", volume_gb = 1 }
  }
  network = {
    admin_cidrs   = ["10.1.0.0/16"]
    cidr          = "10.1.0.0/16"
    dns_zone      = "dc-east.headrace.internal"
    publish_cidrs = ["10.1.0.0/16"]
    zones = {
      a = { availability_zone = "us-east-1a", broker_cidr = "10.1.0.0/21", service_cidr = "10.1.64.0/21", edge_cidr = "10.1.128.0/21" }
    }
  }
}

# Applied without protection, since the test destroys what it makes.
run "a_live_datacenter" {
  command = apply

  variables {
    protect_data = false
  }

  assert {
    condition     = output.publish_address == "publish.dc-east.headrace.internal:9092" && output.warehouse == null
    error_message = "A live datacenter has a publish address and no warehouse."
  }

  assert {
    condition     = length(local.policies) == 0
    error_message = "No host of a live datacenter may touch the warehouse."
  }

  assert {
    condition     = length(output.hosts) == 4 && output.ansible_bucket == "headrace-dc-east-ansible-123456789012"
    error_message = "Every host of the map is made."
  }
}

run "an_offline_datacenter" {
  command = plan

  variables {
    name = "headrace-offline"
    tier = "offline"
    hosts = {
      offline-audit-1     = { group = "audit", number = 1, rack = "a", address = "10.1.64.31", instance_type = "t3.micro", volume_gb = 1 }
      offline-broker-1    = { group = "broker", number = 1, rack = "a", address = "10.1.0.10", instance_type = "t3.micro", volume_gb = 1 }
      offline-load-1      = { group = "load", number = 1, rack = "a", address = "10.1.64.41", instance_type = "t3.micro", volume_gb = 0 }
      offline-registry-1  = { group = "registry", number = 1, rack = "a", address = "10.1.64.21", instance_type = "t3.micro", volume_gb = 0 }
      offline-zookeeper-1 = { group = "zookeeper", number = 1, rack = "a", address = "10.1.64.11", instance_type = "t3.micro", volume_gb = 1 }
    }
    network = {
      admin_cidrs   = ["10.1.0.0/16"]
      cidr          = "10.1.0.0/16"
      dns_zone      = "offline.headrace.internal"
      publish_cidrs = []
      zones = {
        a = { availability_zone = "us-east-1a", broker_cidr = "10.1.0.0/21", service_cidr = "10.1.64.0/21", edge_cidr = "10.1.128.0/21" }
      }
    }
  }

  assert {
    condition     = output.warehouse == { database = "warehouse", location = "s3://headrace-offline-warehouse-123456789012" } && output.publish_address == null
    error_message = "The offline datacenter has the warehouse and nowhere to publish."
  }

  assert {
    condition     = toset(keys(local.policies)) == toset(["audit", "broker", "load"])
    error_message = "Its brokers, load and auditor may use the warehouse."
  }
}

run "an_unknown_tier" {
  command         = plan
  expect_failures = [var.tier]

  variables {
    tier = "online"
  }
}
