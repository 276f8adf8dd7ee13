# One mock a provider: a region that is added to regions.txt is added here.

mock_provider "aws" {
  alias  = "ap_northeast_1"
  source = "./tests/mocks"
}

mock_provider "aws" {
  alias  = "ap_southeast_1"
  source = "./tests/mocks"
}

mock_provider "aws" {
  alias  = "eu_central_1"
  source = "./tests/mocks"
}

mock_provider "aws" {
  alias  = "eu_west_1"
  source = "./tests/mocks"
}

mock_provider "aws" {
  alias  = "us_east_1"
  source = "./tests/mocks"
}

mock_provider "aws" {
  alias  = "us_east_2"
  source = "./tests/mocks"
}

mock_provider "aws" {
  alias  = "us_west_2"
  source = "./tests/mocks"
}

mock_provider "aws" {
  alias  = "offline"
  source = "./tests/mocks"
}

variables {
  protect_data = false
  datacenters = {
    dc-east = {
      tier   = "live"
      region = "us-east-1"
      cidr   = "10.1.0.0/16"
    }
    dc-west = {
      tier          = "live"
      region        = "us-west-2"
      cidr          = "10.2.0.0/20"
      zones         = ["b", "c"]
      publish_cidrs = ["10.2.0.0/20", "172.16.0.0/12"]
      broker        = { count = 4 }
    }
    offline = {
      tier   = "offline"
      region = "us-east-2"
      cidr   = "10.9.0.0/16"
      load   = {}
    }
  }
}

run "a_pipeline" {
  command = apply

  assert {
    condition     = output.inventory.all.children.dc_west.hosts["dc-west-broker-4"].broker_id == 4 && output.inventory.all.children.dc_west.hosts["dc-west-broker-4"].broker_rack == "c"
    error_message = "Brokers have their numbers, and are spread over the zones, which are their racks."
  }

  assert {
    condition     = output.inventory.all.children.dc_west.hosts["dc-west-broker-4"].headrace_address == "10.2.1.13"
    error_message = "An address follows from the block, the zone's letter and the number."
  }

  assert {
    condition     = length(output.inventory.all.children.zookeeper.hosts) == 9 && length(output.inventory.all.children.haproxy) == 0 && contains(keys(output.inventory.all.children.load.hosts), "offline-load-1")
    error_message = "Each service has its group, and load balancers serve in place of HAProxy."
  }

  assert {
    condition     = output.inventory.all.vars.headrace_security == "plaintext" && output.inventory.all.vars.headrace_warehouse == "s3://headrace-offline-warehouse-123456789012" && output.inventory.all.vars.headrace_catalog_properties.type == "glue"
    error_message = "The load finds the bucket and the catalog."
  }

  assert {
    condition     = toset(keys(output.peerings)) == toset(["dc-east", "dc-west"])
    error_message = "The offline datacenter reaches every live one."
  }

  assert {
    condition     = output.publish_addresses == { dc-east = "publish.dc-east.headrace.internal:9092", dc-west = "publish.dc-west.headrace.internal:9092" }
    error_message = "Every live datacenter has a publish address."
  }

  assert {
    condition     = toset(keys(output.publish_zone_ids)) == toset(["dc-east", "dc-west"]) && alltrue([for zone in output.publish_zone_ids : zone != null])
    error_message = "And a DNS zone of its own, which other networks are told."
  }
}

run "a_secured_pipeline" {
  command = plan

  variables {
    security = ["plaintext", "tls_sasl"]
  }

  assert {
    condition     = output.inventory.all.vars.headrace_security == "tls_sasl" && output.inventory.all.vars.headrace_security_before == "plaintext"
    error_message = "The inventory says which way takes the place of which."
  }

  assert {
    condition     = output.publish_addresses == { dc-east = "publish.dc-east.headrace.internal:9094", dc-west = "publish.dc-west.headrace.internal:9094" }
    error_message = "Clients start by the new way."
  }
}

run "a_broker_less" {
  command = plan

  variables {
    datacenters = merge(var.datacenters, { dc-west = merge(var.datacenters.dc-west, { broker = { count = 3 } }) })
  }

  assert {
    condition = output.inventory.all.children.dc_west.hosts == {
      for host, settings in run.a_pipeline.inventory.all.children.dc_west.hosts : host => settings if host != "dc-west-broker-4"
    }
    error_message = "The last broker goes, and every other host keeps its machine, identity, rack and address."
  }
}
