"""What a counter sees of its own cluster's log, in tallies, and how far groups have read it."""
