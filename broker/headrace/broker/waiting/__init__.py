"""Answers that come later: a value without an event loop, and requests that are parked until a partition moves."""
