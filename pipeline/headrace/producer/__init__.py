"""The instrumented producer and the replay of access logs."""

from headrace.producer.client import Producer as Producer
