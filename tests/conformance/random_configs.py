"""What random sessions set topics to: nothing that a clock decides, and values that no key takes."""

from __future__ import annotations

LONG_MAX = "9223372036854775807"
VALUES: dict[str, tuple[str, ...]] = {
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "message.timestamp.before.max.ms": ("1000000", LONG_MAX, "0"),
    "message.timestamp.after.max.ms": ("1000000", LONG_MAX, "0"),
    "message.timestamp.difference.max.ms": ("1000000", LONG_MAX),
    "max.message.bytes": ("120", "300", "1000", "0", "100000"),
    "compression.type": ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    "segment.bytes": ("300", "1000", "100000000"),
    "segment.ms": ("100000", LONG_MAX),
    "segment.index.bytes": ("100", "4096"),
    "index.interval.bytes": ("0", "10", "4096"),
    "cleanup.policy": ("delete", "compact", "compact,delete"),
    "retention.ms": ("-1", LONG_MAX),
    "retention.bytes": ("-1", LONG_MAX),
    "min.insync.replicas": ("1", "2"),
    "flush.messages": ("1", "100"),
    "flush.ms": ("1000", LONG_MAX),
    "message.downconversion.enable": ("true", "false"),
    "message.format.version": ("3.0", "0.10.0", "0.9.0"),
    "min.cleanable.dirty.ratio": ("0.1", "1"),
    "delete.retention.ms": ("0", "86400000"),
    "unclean.leader.election.enable": ("true", "false"),
    "segment.jitter.ms": ("0",),
    "file.delete.delay.ms": ("60000",),
    "preallocate": ("false",),
    "max.compaction.lag.ms": (LONG_MAX,),
    "min.compaction.lag.ms": ("100000000",),
}
BAD_VALUES = (
    "",
    " ",
    "x",
    "-1",
    "-2",
    "0",
    "1.5",
    "2147483648",
    "9223372036854775808",
    "TRUE",
    "Compact",
    "none",
    "gzip,lz4",
    "12 ",
)
