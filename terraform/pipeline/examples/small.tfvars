# Two live datacenters and an offline one, all of the cheapest sizes to try and to throw away.
name         = "headrace-small"
protect_data = false

datacenters = {
  dc-east = {
    tier      = "live"
    region    = "us-east-1"
    cidr      = "10.1.0.0/16"
    zones     = ["a"]
    audit     = { instance_type = "t3.micro", volume_gb = 1 }
    broker    = { count = 1, instance_type = "t3.micro", volume_gb = 10 }
    registry  = { instance_type = "t3.micro" }
    zookeeper = { count = 1, instance_type = "t3.micro", volume_gb = 1 }
  }
  dc-west = {
    tier      = "live"
    region    = "us-west-2"
    cidr      = "10.2.0.0/16"
    zones     = ["a"]
    audit     = { instance_type = "t3.micro", volume_gb = 1 }
    broker    = { count = 1, instance_type = "t3.micro", volume_gb = 10 }
    registry  = { instance_type = "t3.micro" }
    zookeeper = { count = 1, instance_type = "t3.micro", volume_gb = 1 }
  }
  offline = {
    tier      = "offline"
    region    = "us-east-1"
    cidr      = "10.9.0.0/16"
    zones     = ["a"]
    audit     = { instance_type = "t3.small", volume_gb = 5 }
    broker    = { count = 1, instance_type = "t3.micro", volume_gb = 20 }
    load      = { instance_type = "t3.medium" }
    registry  = { instance_type = "t3.micro" }
    zookeeper = { count = 1, instance_type = "t3.micro", volume_gb = 1 }
  }
}
