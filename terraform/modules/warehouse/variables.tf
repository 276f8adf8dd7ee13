variable "bucket" {
  description = "The bucket's name, unique in the world."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$", var.bucket))
    error_message = "The bucket name ${var.bucket} is none: use 3 to 63 lower-case letters, digits and hyphens."
  }
}

variable "database" {
  description = "The Glue database, which is the namespace of the Iceberg tables."
  type        = string
  default     = "warehouse"
}

variable "noncurrent_days" {
  description = "How many days S3 keeps what was overwritten or deleted."
  type        = number
  default     = 30

  validation {
    condition     = var.noncurrent_days >= 1
    error_message = "noncurrent_days of ${var.bucket} is ${var.noncurrent_days}: versions are kept for at least 1 day."
  }
}

variable "protect_data" {
  description = "Whether Terraform refuses to destroy the bucket and the database."
  type        = bool
  default     = true
}
