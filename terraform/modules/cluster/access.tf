# How people and Ansible reach the hosts: SSM sessions, and a bucket for the files that Ansible sends. One role a group.

data "aws_caller_identity" "this" {}

locals {
  groups = toset([for host in var.hosts : host.group])
}

data "aws_iam_policy_document" "machine" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["ec2.amazonaws.com"]
    }
  }
}

# AWS's own policy for this would let every host read every parameter of the account. These actions know no resources.
data "aws_iam_policy_document" "sessions" {
  statement {
    sid = "Sessions"
    actions = [
      "ec2messages:AcknowledgeMessage",
      "ec2messages:DeleteMessage",
      "ec2messages:FailMessage",
      "ec2messages:GetEndpoint",
      "ec2messages:GetMessages",
      "ec2messages:SendReply",
      "ssm:UpdateInstanceInformation",
      "ssmmessages:CreateControlChannel",
      "ssmmessages:CreateDataChannel",
      "ssmmessages:OpenControlChannel",
      "ssmmessages:OpenDataChannel",
    ]
    resources = ["*"]
  }
}

resource "aws_iam_role" "this" {
  for_each = local.groups

  name               = "${var.name}-${each.key}"
  assume_role_policy = data.aws_iam_policy_document.machine.json
}

resource "aws_iam_role_policy" "sessions" {
  for_each = local.groups

  name   = "sessions"
  policy = data.aws_iam_policy_document.sessions.json
  role   = aws_iam_role.this[each.key].id
}

resource "aws_iam_role_policy" "group" {
  for_each = var.policies

  name   = "group"
  policy = each.value
  role   = aws_iam_role.this[each.key].id
}

resource "aws_iam_instance_profile" "this" {
  for_each = local.groups

  name = "${var.name}-${each.key}"
  role = aws_iam_role.this[each.key].name
}

# Ansible signs an address for each file that it sends: no host has a right to this bucket. Without versions, since what
# was sent is to be forgotten.
resource "aws_s3_bucket" "ansible" {
  bucket        = "${var.name}-ansible-${data.aws_caller_identity.this.account_id}"
  force_destroy = true
}

resource "aws_s3_bucket_ownership_controls" "ansible" {
  bucket = aws_s3_bucket.ansible.id

  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

resource "aws_s3_bucket_public_access_block" "ansible" {
  bucket = aws_s3_bucket.ansible.id

  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_server_side_encryption_configuration" "ansible" {
  bucket = aws_s3_bucket.ansible.id

  rule {
    apply_server_side_encryption_by_default {
      sse_algorithm = "AES256"
    }
  }
}

resource "aws_s3_bucket_lifecycle_configuration" "ansible" {
  bucket = aws_s3_bucket.ansible.id

  rule {
    id     = "forget"
    status = "Enabled"

    filter {}

    abort_incomplete_multipart_upload {
      days_after_initiation = 1
    }

    expiration {
      days = 1
    }
  }
}
