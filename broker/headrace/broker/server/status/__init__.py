"""What a broker tells of itself: metrics, whether it is ready, how far its start is."""
