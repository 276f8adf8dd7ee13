"""What the mirrors of a cluster's brokers remember, in topics that they share: as values, written and read."""
