"""What is done to logs in the background: compaction, retention, syncs."""
