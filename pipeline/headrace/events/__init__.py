"""Events, their envelope and their Avro schemas. Pure: no sockets, clock or threads, only package files."""
