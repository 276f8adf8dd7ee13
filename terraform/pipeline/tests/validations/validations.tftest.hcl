# Runs without a provider, in a copy of variables.tf and limits.tf, as in tests/deploy/test_deploy_terraform_maps.py.

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

run "a_datacenter_without_a_region" {
  command         = plan
  expect_failures = [var.datacenters]

  variables {
    datacenters = merge(var.datacenters, { dc-east = merge(var.datacenters.dc-east, { region = null }) })
  }
}

run "a_name_that_is_none" {
  command         = plan
  expect_failures = [var.datacenters]

  variables {
    datacenters = merge(var.datacenters, { "DC_north" = merge(var.datacenters.dc-east, { cidr = "10.4.0.0/16" }) })
  }
}

run "an_empty_name" {
  command         = plan
  expect_failures = [var.datacenters]

  variables {
    datacenters = merge(var.datacenters, { "" = merge(var.datacenters.dc-east, { cidr = "10.4.0.0/16" }) })
  }
}

run "a_name_too_long" {
  command         = plan
  expect_failures = [var.datacenters]

  variables {
    datacenters = merge(var.datacenters, { dc-with-a-very-long-name = merge(var.datacenters.dc-east, { cidr = "10.4.0.0/16" }) })
  }
}

run "a_name_twice" {
  command         = plan
  expect_failures = [var.datacenters]

  variables {
    datacenters = merge(var.datacenters, { east = merge(var.datacenters.dc-east, { cidr = "10.4.0.0/16" }) })
  }
}

run "an_unknown_tier" {
  command         = plan
  expect_failures = [var.datacenters]

  variables {
    datacenters = merge(var.datacenters, { dc-east = merge(var.datacenters.dc-east, { tier = "online" }) })
  }
}

run "no_live_datacenter" {
  command         = plan
  expect_failures = [var.datacenters]

  variables {
    datacenters = { offline = var.datacenters.offline }
  }
}

run "no_offline_datacenter" {
  command         = plan
  expect_failures = [var.datacenters]

  variables {
    datacenters = { dc-east = var.datacenters.dc-east }
  }
}

run "two_offline_datacenters" {
  command         = plan
  expect_failures = [var.datacenters]

  variables {
    datacenters = merge(var.datacenters, { archive = merge(var.datacenters.offline, { cidr = "10.4.0.0/16" }) })
  }
}

run "an_unknown_region" {
  command         = plan
  expect_failures = [var.datacenters]

  variables {
    datacenters = merge(var.datacenters, { dc-east = merge(var.datacenters.dc-east, { region = "us-east-9" }) })
  }
}

run "a_block_too_small" {
  command         = plan
  expect_failures = [var.datacenters]

  variables {
    datacenters = merge(var.datacenters, { dc-east = merge(var.datacenters.dc-east, { cidr = "10.1.0.0/24" }) })
  }
}

run "a_public_block" {
  command         = plan
  expect_failures = [var.datacenters]

  variables {
    datacenters = merge(var.datacenters, { dc-east = merge(var.datacenters.dc-east, { cidr = "8.8.0.0/16" }) })
  }
}

run "overlapping_blocks" {
  command         = plan
  expect_failures = [var.datacenters]

  variables {
    datacenters = merge(var.datacenters, { dc-east = merge(var.datacenters.dc-east, { cidr = "10.2.0.0/16" }) })
  }
}

run "administering_from_the_world" {
  command         = plan
  expect_failures = [var.datacenters]

  variables {
    datacenters = merge(var.datacenters, { dc-east = merge(var.datacenters.dc-east, { admin_cidrs = ["0.0.0.0/0"] }) })
  }
}

run "publishing_from_the_world" {
  command         = plan
  expect_failures = [var.datacenters]

  variables {
    datacenters = merge(var.datacenters, { dc-east = merge(var.datacenters.dc-east, { publish_cidrs = ["10.1.0.0/16", "0.0.0.0/0"] }) })
  }
}

run "publishing_from_nowhere" {
  command         = plan
  expect_failures = [var.datacenters]

  variables {
    datacenters = merge(var.datacenters, { dc-east = merge(var.datacenters.dc-east, { publish_cidrs = [] }) })
  }
}

run "publishing_to_the_offline_datacenter" {
  command         = plan
  expect_failures = [var.datacenters]

  variables {
    datacenters = merge(var.datacenters, { offline = merge(var.datacenters.offline, { publish_cidrs = ["10.9.0.0/16"] }) })
  }
}

run "an_offline_datacenter_without_a_load" {
  command         = plan
  expect_failures = [var.datacenters]

  variables {
    datacenters = merge(var.datacenters, { offline = merge(var.datacenters.offline, { load = null }) })
  }
}

run "a_load_in_a_live_datacenter" {
  command         = plan
  expect_failures = [var.datacenters]

  variables {
    datacenters = merge(var.datacenters, { dc-east = merge(var.datacenters.dc-east, { load = {} }) })
  }
}

run "no_zones" {
  command         = plan
  expect_failures = [var.datacenters]

  variables {
    datacenters = merge(var.datacenters, { dc-east = merge(var.datacenters.dc-east, { zones = [] }) })
  }
}

run "an_even_ensemble" {
  command         = plan
  expect_failures = [var.datacenters]

  variables {
    datacenters = merge(var.datacenters, { dc-east = merge(var.datacenters.dc-east, { zookeeper = { count = 2 } }) })
  }
}

run "no_brokers" {
  command         = plan
  expect_failures = [var.datacenters]

  variables {
    datacenters = merge(var.datacenters, { dc-east = merge(var.datacenters.dc-east, { broker = { count = 0 } }) })
  }
}

run "a_volume_without_a_size" {
  command         = plan
  expect_failures = [var.datacenters]

  variables {
    datacenters = merge(var.datacenters, { dc-east = merge(var.datacenters.dc-east, { broker = { volume_gb = 0 } }) })
  }
}

run "an_instance_type_that_is_none" {
  command         = plan
  expect_failures = [var.datacenters]

  variables {
    datacenters = merge(var.datacenters, { dc-east = merge(var.datacenters.dc-east, { broker = { instance_type = "large" } }) })
  }
}

run "an_image_without_an_agent" {
  command         = plan
  expect_failures = [var.image]

  variables {
    image = "/aws/service/canonical/ubuntu"
  }
}

run "a_pipeline_without_a_name" {
  command         = plan
  expect_failures = [var.name]

  variables {
    name = "Headrace!"
  }
}

run "a_name_that_is_kept" {
  command         = plan
  expect_failures = [var.name]

  variables {
    name = "internal"
  }
}

run "a_tag_that_is_kept" {
  command         = plan
  expect_failures = [var.tags]

  variables {
    tags = { "aws:owner" = "us" }
  }
}

run "a_way_to_speak_that_is_none" {
  command         = plan
  expect_failures = [var.security]

  variables {
    security = ["ssl"]
  }
}

run "no_way_to_speak" {
  command         = plan
  expect_failures = [var.security]

  variables {
    security = []
  }
}

run "one_way_in_the_place_of_itself" {
  command         = plan
  expect_failures = [var.security]

  variables {
    security = ["tls", "tls"]
  }
}

run "three_ways_to_speak" {
  command         = plan
  expect_failures = [var.security]

  variables {
    security = ["plaintext", "tls", "tls_sasl"]
  }
}
