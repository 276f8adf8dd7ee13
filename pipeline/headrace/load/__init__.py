"""Loads from the log into Iceberg tables, rows and offsets in one commit."""
