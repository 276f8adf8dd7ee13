"""What copies have besides messages as their sources do: committed offsets, configurations, grants to read."""
