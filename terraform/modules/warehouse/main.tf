# prevent_destroy takes no variable: each data resource is there twice, equal but for it, and protect_data chooses.

resource "aws_s3_bucket" "protected" {
  count = var.protect_data ? 1 : 0

  bucket        = var.bucket
  force_destroy = !var.protect_data

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_s3_bucket" "disposable" {
  count = var.protect_data ? 0 : 1

  bucket        = var.bucket
  force_destroy = !var.protect_data
}

locals {
  bucket   = one(concat(aws_s3_bucket.protected, aws_s3_bucket.disposable))
  database = one(concat(aws_glue_catalog_database.protected, aws_glue_catalog_database.disposable))
}

resource "aws_s3_bucket_ownership_controls" "this" {
  bucket = local.bucket.id

  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

resource "aws_s3_bucket_public_access_block" "this" {
  bucket = local.bucket.id

  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_versioning" "this" {
  bucket = local.bucket.id

  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "this" {
  bucket = local.bucket.id

  rule {
    apply_server_side_encryption_by_default {
      sse_algorithm = "AES256"
    }
  }
}

# Iceberg removes the files that no snapshot needs; only what it replaced or left half-written ends here.
resource "aws_s3_bucket_lifecycle_configuration" "this" {
  bucket = local.bucket.id

  rule {
    id     = "forget"
    status = "Enabled"

    filter {}

    abort_incomplete_multipart_upload {
      days_after_initiation = 7
    }

    noncurrent_version_expiration {
      noncurrent_days = var.noncurrent_days
    }
  }

  depends_on = [aws_s3_bucket_versioning.this]
}

data "aws_iam_policy_document" "encrypted_transport" {
  statement {
    sid       = "EncryptedTransport"
    effect    = "Deny"
    actions   = ["s3:*"]
    resources = ["arn:aws:s3:::${var.bucket}", "arn:aws:s3:::${var.bucket}/*"]

    principals {
      type        = "AWS"
      identifiers = ["*"]
    }

    condition {
      test     = "Bool"
      variable = "aws:SecureTransport"
      values   = ["false"]
    }
  }
}

resource "aws_s3_bucket_policy" "this" {
  bucket = local.bucket.id
  policy = data.aws_iam_policy_document.encrypted_transport.json

  depends_on = [aws_s3_bucket_public_access_block.this]
}

resource "aws_glue_catalog_database" "protected" {
  count = var.protect_data ? 1 : 0

  name         = var.database
  location_uri = "s3://${var.bucket}/${var.database}.db"

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_glue_catalog_database" "disposable" {
  count = var.protect_data ? 0 : 1

  name         = var.database
  location_uri = "s3://${var.bucket}/${var.database}.db"
}
