"""The consumer group coordinator as a decide/apply machine."""
