"""The partition log on disk, byte-compatible with Apache Kafka 3.9."""
