"""The log broker: a server that speaks the Kafka wire protocol."""
