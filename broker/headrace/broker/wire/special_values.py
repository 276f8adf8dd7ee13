"""Numbers that stand for something else in the fields of several messages and records, by Apache Kafka's names.

What one API key alone knows is in that key's file.
"""

from __future__ import annotations

NO_EPOCH = -1
"""A leader epoch or broker epoch that is not known, or that a request of an old version does not tell."""
NO_PRODUCER_ID = NO_PRODUCER_EPOCH = NO_SEQUENCE = -1
"""Of a batch that no idempotent producer wrote."""
NO_TIMESTAMP = -1
CONSUMER_REPLICA_ID = -1
"""Who asks is no broker."""
DEBUGGING_REPLICA_ID = -2
"""Who asks is no broker, but is told of what lies above the high watermark."""
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
"""Isolation levels: the latter sees nothing of open and aborted transactions (KIP-98)."""
LATEST_TIMESTAMP, EARLIEST_TIMESTAMP = -1, -2
"""ListOffsets: the offset after the last message, and that of the first."""
