"""The Kafka wire protocol as pure functions: frames, messages, record batches."""
