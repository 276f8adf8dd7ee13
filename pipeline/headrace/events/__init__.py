"""Events, their envelope and their Avro schemas. Pure: no sockets, no clock, no threads; only package files are read."""
