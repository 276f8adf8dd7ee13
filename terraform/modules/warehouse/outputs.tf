output "bucket" {
  description = "The bucket's name."
  value       = local.bucket.bucket

  depends_on = [aws_s3_bucket_policy.this, aws_s3_bucket_server_side_encryption_configuration.this]
}

output "database" {
  description = "The Glue database's name."
  value       = local.database.name
}

output "read_policy" {
  description = "The IAM policy of those who read tables."
  value       = data.aws_iam_policy_document.read.json
}

output "warehouse" {
  description = "The location of the tables, as headrace_warehouse."
  value       = "s3://${local.bucket.bucket}"
}

output "write_policy" {
  description = "The IAM policy of those who write tables."
  value       = data.aws_iam_policy_document.write.json
}
