"""Several datacenters in one topic: members share a source's partitions by a registry, and bring what they own to the target."""
