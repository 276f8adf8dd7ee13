"""Who a client is and what it may do: principals, access control lists and how they are matched, without I/O."""
