"""Pure decisions about leadership, in-sync replicas and the controller."""
