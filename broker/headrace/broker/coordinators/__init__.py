"""What all coordinators of the broker share: decisions, their records and timers, and the runtime of shards."""
