"""The configurations and quotas in effect, from the file and from ZooKeeper's `/config`."""
