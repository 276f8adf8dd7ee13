"""Events, their envelope and their Avro schemas."""
