"""What this broker asks other brokers, and over which connections."""
