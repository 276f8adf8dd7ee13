# What a host's profile may do here: read, or read and write. The bucket and the catalog themselves stay Terraform's.

data "aws_caller_identity" "this" {}

data "aws_region" "this" {}

locals {
  _glue = "arn:aws:glue:${data.aws_region.this.name}:${data.aws_caller_identity.this.account_id}"
  _catalog = [
    "${local._glue}:catalog",
    "${local._glue}:database/${var.database}",
    "${local._glue}:table/${var.database}/*",
  ]
}

data "aws_iam_policy_document" "read" {
  statement {
    sid       = "ListFiles"
    actions   = ["s3:GetBucketLocation", "s3:ListBucket"]
    resources = ["arn:aws:s3:::${var.bucket}"]
  }

  statement {
    sid       = "ReadFiles"
    actions   = ["s3:GetObject"]
    resources = ["arn:aws:s3:::${var.bucket}/*"]
  }

  statement {
    sid       = "ReadCatalog"
    actions   = ["glue:GetDatabase", "glue:GetDatabases", "glue:GetTable", "glue:GetTables"]
    resources = local._catalog
  }
}

data "aws_iam_policy_document" "write" {
  source_policy_documents = [data.aws_iam_policy_document.read.json]

  statement {
    sid       = "WriteFiles"
    actions   = ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:PutObject"]
    resources = ["arn:aws:s3:::${var.bucket}/*"]
  }

  # The load asks for its namespace to be made, and takes "it exists" for an answer.
  statement {
    sid       = "WriteCatalog"
    actions   = ["glue:CreateDatabase", "glue:CreateTable", "glue:UpdateTable"]
    resources = local._catalog
  }
}
