"""Embedded consumers that copy record batches from live clusters, offsets preserved."""
