"""What a client of the protocol decides: one connection's requests and answers, and a view of a cluster. Without I/O."""
