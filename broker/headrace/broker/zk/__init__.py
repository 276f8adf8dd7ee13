"""ZooKeeper: znode paths and the only client."""
