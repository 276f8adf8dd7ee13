mock_data "aws_availability_zones" {
  defaults = {
    names = [
      "eu-central-1a", "eu-central-1b", "eu-central-1c",
      "us-east-1a", "us-east-1b", "us-east-1c",
      "us-east-2a", "us-east-2b", "us-east-2c",
      "us-west-2a", "us-west-2b", "us-west-2c",
    ]
  }
}

mock_data "aws_caller_identity" {
  defaults = { account_id = "123456789012" }
}

mock_data "aws_ec2_instance_type_offerings" {
  defaults = {
    locations = [
      "eu-central-1a", "eu-central-1b", "eu-central-1c",
      "us-east-1a", "us-east-1b", "us-east-1c",
      "us-east-2a", "us-east-2b", "us-east-2c",
      "us-west-2a", "us-west-2b", "us-west-2c",
    ]
  }
}

mock_data "aws_ec2_instance_types" {
  defaults = { instance_types = ["m7i.2xlarge", "m7i.large", "t3.medium", "t3.small"] }
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
