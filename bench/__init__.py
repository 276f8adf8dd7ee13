"""Benchmarks: the C client as load generator, the broker, the mirror and the load as what is measured."""
