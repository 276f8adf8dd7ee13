mock_provider "aws" {
  mock_data "aws_iam_policy_document" {
    defaults = { json = "{}" }
  }
}

variables {
  bucket = "headrace-offline-warehouse-123456789012"
}

run "a_protected_warehouse" {
  command = plan

  assert {
    condition     = length(aws_s3_bucket.protected) == 1 && length(aws_s3_bucket.disposable) == 0 && length(aws_glue_catalog_database.protected) == 1
    error_message = "Data is protected unless the caller says otherwise."
  }

  assert {
    condition     = !aws_s3_bucket.protected[0].force_destroy && one(aws_s3_bucket_versioning.this.versioning_configuration).status == "Enabled"
    error_message = "Nothing is deleted at once."
  }

  assert {
    condition = alltrue([
      aws_s3_bucket_public_access_block.this.block_public_acls, aws_s3_bucket_public_access_block.this.block_public_policy,
      aws_s3_bucket_public_access_block.this.ignore_public_acls, aws_s3_bucket_public_access_block.this.restrict_public_buckets,
    ])
    error_message = "The bucket is private."
  }

  assert {
    condition     = output.warehouse == "s3://headrace-offline-warehouse-123456789012" && output.database == "warehouse"
    error_message = "The load finds its tables where the outputs say."
  }
}

run "a_warehouse_to_throw_away" {
  command = plan

  variables {
    protect_data = false
  }

  assert {
    condition     = length(aws_s3_bucket.protected) == 0 && aws_s3_bucket.disposable[0].force_destroy && length(aws_glue_catalog_database.disposable) == 1
    error_message = "Without protection the bucket goes with what is in it."
  }
}

run "no_bucket_name" {
  command         = plan
  expect_failures = [var.bucket]

  variables {
    bucket = "Warehouse_1"
  }
}

run "no_days" {
  command         = plan
  expect_failures = [var.noncurrent_days]

  variables {
    noncurrent_days = 0
  }
}
