"""The instrumented producer and the replay of access logs."""
