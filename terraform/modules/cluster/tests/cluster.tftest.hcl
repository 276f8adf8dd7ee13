mock_provider "aws" {
  mock_data "aws_ec2_instance_type_offerings" {
    defaults = { locations = ["us-east-1a", "us-east-1b"] }
  }
  mock_data "aws_ec2_instance_types" {
    defaults = { instance_types = ["m7i.large", "t3.small"] }
  }
  mock_data "aws_iam_policy_document" {
    defaults = { json = "{}" }
  }
  mock_resource "aws_ebs_volume" {
    defaults = { id = "vol-0123456789abcdef0" }
  }
}

variables {
  name  = "headrace-dc-east"
  image = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
  hosts = {
    dc-east-broker-1   = { group = "broker", number = 1, rack = "a", address = "10.1.0.10", instance_type = "m7i.large", volume_gb = 500 }
    dc-east-broker-2   = { group = "broker", number = 2, rack = "b", address = "10.1.8.11", instance_type = "m7i.large", volume_gb = 500 }
    dc-east-registry-1 = { group = "registry", number = 1, rack = "a", address = "10.1.64.21", instance_type = "t3.small", volume_gb = 0 }
  }
  policies           = { broker = "{}" }
  security_group_ids = { broker = "sg-broker", registry = "sg-registry" }
  subnet_ids = {
    broker  = { a = "subnet-broker-a", b = "subnet-broker-b" }
    service = { a = "subnet-service-a", b = "subnet-service-b" }
  }
  zones = { a = "us-east-1a", b = "us-east-1b" }
}

# Applied without protection, since the test destroys what it makes.
run "hosts_with_identities" {
  command = apply

  variables {
    protect_data = false
  }

  assert {
    condition     = aws_instance.this["dc-east-broker-2"].private_ip == "10.1.8.11" && aws_instance.this["dc-east-broker-2"].subnet_id == "subnet-broker-b"
    error_message = "A host has the address of its map, in the subnet of its rack."
  }

  assert {
    condition     = aws_instance.this["dc-east-registry-1"].subnet_id == "subnet-service-a"
    error_message = "The brokers' subnets hold brokers alone."
  }

  assert {
    condition     = toset(keys(aws_ebs_volume.disposable)) == toset(["dc-east-broker-1", "dc-east-broker-2"]) && length(aws_ebs_volume.protected) == 0
    error_message = "Hosts with data have a volume of their own."
  }

  assert {
    condition     = aws_ebs_volume.disposable["dc-east-broker-2"].availability_zone == "us-east-1b" && output.hosts["dc-east-broker-2"].volume_id == "vol-0123456789abcdef0" && output.hosts["dc-east-registry-1"].volume_id == null
    error_message = "A volume is in the zone of its host."
  }

  assert {
    condition     = strcontains(aws_instance.this["dc-east-broker-1"].user_data, "Elastic_Block_Store_vol0123456789abcdef0") && !strcontains(aws_instance.this["dc-east-registry-1"].user_data, "mount")
    error_message = "The first boot mounts the volume by its id, and none where there is none."
  }

  assert {
    condition     = alltrue([for machine in aws_instance.this : one(machine.metadata_options).http_tokens == "required" && one(machine.root_block_device).encrypted])
    error_message = "Machines ask for IMDSv2 and encrypt their disks."
  }

  assert {
    condition     = toset(keys(aws_iam_role_policy.group)) == toset(["broker"]) && toset(keys(aws_iam_role.this)) == toset(["broker", "registry"])
    error_message = "Each group has a role of its own, with no more than its policy."
  }
}

run "hosts_to_keep" {
  command = plan

  variables {
    protect_data = true
  }

  assert {
    condition     = toset(keys(aws_ebs_volume.protected)) == toset(["dc-east-broker-1", "dc-east-broker-2"]) && length(aws_ebs_volume.disposable) == 0
    error_message = "With protection their volumes cannot be destroyed."
  }
}

run "an_identity_twice" {
  command         = plan
  expect_failures = [var.hosts]

  variables {
    hosts = {
      dc-east-broker-1 = { group = "broker", number = 1, rack = "a", address = "10.1.0.10", instance_type = "m7i.large", volume_gb = 500 }
      dc-east-broker-2 = { group = "broker", number = 1, rack = "b", address = "10.1.8.11", instance_type = "m7i.large", volume_gb = 500 }
    }
  }
}

run "an_address_twice" {
  command         = plan
  expect_failures = [var.hosts]

  variables {
    hosts = {
      dc-east-broker-1 = { group = "broker", number = 1, rack = "a", address = "10.1.0.10", instance_type = "m7i.large", volume_gb = 500 }
      dc-east-broker-2 = { group = "broker", number = 2, rack = "a", address = "10.1.0.10", instance_type = "m7i.large", volume_gb = 500 }
    }
  }
}

run "a_size_that_a_zone_lacks" {
  command         = plan
  expect_failures = [data.aws_ec2_instance_type_offerings.zones]

  variables {
    zones = { a = "us-east-1a", b = "us-east-1e" }
  }
}

run "a_size_of_another_architecture" {
  command         = plan
  expect_failures = [data.aws_ec2_instance_types.bootable]

  variables {
    hosts = {
      dc-east-broker-1 = { group = "broker", number = 1, rack = "a", address = "10.1.0.10", instance_type = "m7g.large", volume_gb = 500 }
    }
  }
}

run "a_policy_for_nobody" {
  command         = plan
  expect_failures = [var.policies]

  variables {
    policies = { load = "{}" }
  }
}
