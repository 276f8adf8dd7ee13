output "ansible_bucket" {
  description = "The bucket through which Ansible sends files to these hosts."
  value       = aws_s3_bucket.ansible.bucket
}

output "hosts" {
  description = "Each host by its name: the machine that it is now, and its data volume if it has one."
  value = {
    for name, machine in aws_instance.this : name => {
      instance_id = machine.id
      volume_id   = try(aws_volume_attachment.data[name].volume_id, null)
    }
  }
}
