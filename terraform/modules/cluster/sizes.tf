# A wrong size is found before anything is made: AWS offers a type in some zones and not in others, and an image runs on one
# architecture.

locals {
  architecture   = endswith(var.image, "arm64") ? "arm64" : "x86_64"
  _zones_by_type = { for host in var.hosts : host.instance_type => var.zones[host.rack]... }
}

data "aws_ec2_instance_type_offerings" "zones" {
  for_each = local._zones_by_type

  location_type = "availability-zone"

  filter {
    name   = "instance-type"
    values = [each.key]
  }

  lifecycle {
    postcondition {
      condition     = length(setsubtract(each.value, self.locations)) == 0
      error_message = "${var.name}: AWS offers no ${each.key} in ${join(", ", setsubtract(each.value, self.locations))}; choose another instance type or other zones."
    }
  }
}

data "aws_ec2_instance_types" "bootable" {
  filter {
    name   = "instance-type"
    values = keys(data.aws_ec2_instance_type_offerings.zones)
  }

  filter {
    name   = "processor-info.supported-architecture"
    values = [local.architecture]
  }

  lifecycle {
    postcondition {
      condition     = length(setsubtract(keys(local._zones_by_type), self.instance_types)) == 0
      error_message = "${var.name}: the image is for ${local.architecture}, and ${join(", ", setsubtract(keys(local._zones_by_type), self.instance_types))} is not; choose other instance types, or another image and types for all hosts."
    }
  }
}
