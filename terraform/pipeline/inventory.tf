# The inventory of playbooks/site.yml, with the names of inventory/local: scripts/terraform_inventory.py writes it to a file.

locals {
  _identities = { broker = "broker_id", zookeeper = "zookeeper_id" }

  _host_variables = {
    for name, datacenter in local.datacenters : name => {
      for host, settings in datacenter.hosts : host => merge(
        {
          ansible_aws_ssm_instance_id = local.made[name].hosts[host].instance_id
          headrace_address            = settings.address
        },
        contains(keys(local._identities), settings.group) ? { (local._identities[settings.group]) = settings.number } : {},
        settings.group == "broker" ? { broker_rack = settings.rack } : {},
      )
    }
  }

  _datacenter_groups = {
    for name, datacenter in local.datacenters : local.group_names[name] => {
      hosts = local._host_variables[name]
      vars = merge(
        {
          ansible_aws_ssm_bucket_name = local.made[name].ansible_bucket
          ansible_aws_ssm_region      = datacenter.region
          headrace_datacenter         = name
        },
        datacenter.tier == "live" ? { headrace_publish_address = local.made[name].publish_address } : {},
      )
    }
  }

  _service_groups = {
    for group in ["audit", "broker", "load", "registry", "zookeeper"] : group => {
      hosts = merge([
        for datacenter in local.datacenters : { for host, settings in datacenter.hosts : host => {} if settings.group == group }
      ]...)
    }
  }

  # Security groups let administrators alone ask for metrics, which have neither TLS nor log-ins.
  _security = merge(
    contains(var.security, "tls_sasl") ? { headrace_metrics_address = "{{ headrace_address }}" } : {},
    { headrace_security = reverse(var.security)[0] },
    length(var.security) > 1 ? { headrace_security_before = var.security[0] } : {},
  )

  _warehouse = local.made[local.offline_name].warehouse

  inventory = {
    all = {
      children = merge(local._datacenter_groups, local._service_groups, {
        # The cloud's load balancers serve in place of HAProxy, and each host is a machine of its own with a release.
        haproxy    = {}
        live       = { children = { for name in keys(local.live) : local.group_names[name] => {} } }
        machine    = { children = { live = {}, offline = {} } }
        offline    = { children = { (local.group_names[local.offline_name]) = {} } }
        release    = { children = { live = {}, offline = {} } }
        supervisor = {}
      })
      vars = merge({
        headrace_catalog_properties = {
          "glue.region" = local.offline_region
          "s3.region"   = local.offline_region
          type          = "glue"
        }
        headrace_warehouse = local._warehouse.location
      }, local._security)
    }
  }
}
