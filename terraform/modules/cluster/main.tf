# Machines come and go; a host's name, identity, address and data volume stay. The volume is a resource of its own, mounted by
# its id at first boot, so that a machine that takes another's place finds what that one left.

data "aws_ssm_parameter" "image" {
  name = var.image
}

locals {
  _with_volume = { for name, host in var.hosts : name => host if host.volume_gb > 0 }
  _protected   = var.protect_data ? local._with_volume : {}
  _disposable  = var.protect_data ? {} : local._with_volume
  volumes      = merge(aws_ebs_volume.protected, aws_ebs_volume.disposable)
}

resource "aws_instance" "this" {
  for_each = var.hosts

  ami                    = data.aws_ssm_parameter.image.insecure_value
  iam_instance_profile   = aws_iam_instance_profile.this[each.value.group].name
  instance_type          = each.value.instance_type
  private_ip             = each.value.address
  subnet_id              = (each.value.group == "broker" ? var.subnet_ids.broker : var.subnet_ids.service)[each.value.rack]
  tags                   = { Name = "${var.name}-${each.value.group}-${each.value.number}", Group = each.value.group }
  vpc_security_group_ids = [var.security_group_ids[each.value.group]]

  user_data = templatefile("${path.module}/first_boot.sh.tftpl", {
    volume_id = try(local.volumes[each.key].id, "")
  })

  metadata_options {
    http_endpoint               = "enabled"
    http_put_response_hop_limit = 1
    http_tokens                 = "required"
  }

  root_block_device {
    encrypted   = true
    volume_size = 30
    volume_type = "gp3"
  }

  # A newer image or first-boot script is for the next machine: it must not stop all hosts of a datacenter in one apply.
  lifecycle {
    ignore_changes = [ami, user_data]
  }
}

# prevent_destroy takes no variable: the volumes are there twice, equal but for it, and protect_data chooses.
resource "aws_ebs_volume" "protected" {
  for_each = local._protected

  availability_zone = var.zones[each.value.rack]
  encrypted         = true
  size              = each.value.volume_gb
  tags              = { Name = "${var.name}-${each.value.group}-${each.value.number}-data" }
  type              = "gp3"

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_ebs_volume" "disposable" {
  for_each = local._disposable

  availability_zone = var.zones[each.value.rack]
  encrypted         = true
  size              = each.value.volume_gb
  tags              = { Name = "${var.name}-${each.value.group}-${each.value.number}-data" }
  type              = "gp3"
}

resource "aws_volume_attachment" "data" {
  for_each = local._with_volume

  device_name                    = "/dev/sdf"
  instance_id                    = aws_instance.this[each.key].id
  stop_instance_before_detaching = true
  volume_id                      = local.volumes[each.key].id
}
