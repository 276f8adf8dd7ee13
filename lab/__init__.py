"""The Docker lab of a checkout: a container with systemd for each host of an inventory, networks for its datacenters."""
