"""The instrumented producer and the replay of access logs."""

from headrace.producer.checks import EventError as EventError
from headrace.producer.client import Producer as Producer
from headrace.producer.life import ProducerClosedError as ProducerClosedError
