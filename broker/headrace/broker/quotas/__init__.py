"""Quotas: how much of a broker a client may use, and how long one above that has to wait."""
