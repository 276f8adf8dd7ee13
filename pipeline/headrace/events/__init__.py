"""Events, their envelope, their Avro schemas and the way to a registry that has them.

Pure: no sockets, clock or threads, only package files; but for `registry_client`, which opens connections when it is asked.
"""
