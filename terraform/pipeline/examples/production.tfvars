# Three live datacenters in three regions and an offline one, each over three zones; everybody logs in, and nothing is in clear.
name     = "headrace"
security = ["tls_sasl"]

datacenters = {
  dc-east = {
    tier   = "live"
    region = "us-east-1"
    cidr   = "10.1.0.0/16"
    broker = { count = 6, volume_gb = 1000 }
  }
  dc-west = {
    tier   = "live"
    region = "us-west-2"
    cidr   = "10.2.0.0/16"
    broker = { count = 6, volume_gb = 1000 }
  }
  dc-europe = {
    tier   = "live"
    region = "eu-central-1"
    cidr   = "10.3.0.0/16"
    broker = { count = 6, volume_gb = 1000 }
  }
  offline = {
    tier   = "offline"
    region = "us-east-2"
    cidr   = "10.9.0.0/16"
    broker = { count = 9, instance_type = "m7i.xlarge", volume_gb = 2000 }
    load   = { instance_type = "m7i.4xlarge" }
  }
}
