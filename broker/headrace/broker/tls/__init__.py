"""TLS as Kafka's `ssl.*` settings word it, for brokers and clients alike: stores, contexts, names and principals; no sockets."""
