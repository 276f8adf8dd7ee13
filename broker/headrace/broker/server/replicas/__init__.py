"""The partitions that live on this broker: their logs, what it fetches from leaders, what it proposes of in-sync replicas."""
