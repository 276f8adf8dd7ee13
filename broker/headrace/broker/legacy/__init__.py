"""What only clients of Apache Kafka before 0.11 and 0.9 need: message formats 0 and 1, offsets in ZooKeeper, times of segments.

`message_sets` reads and writes the old formats, `conversion` turns them into format 2 and back, `fetched` does so with what
a fetch found; `segment_offsets` and `segment_ages` answer ListOffsets 0, `zookeeper_offsets` keeps what OffsetCommit 0 and
OffsetFetch 0 are about. Nothing below the handlers knows of it: logs hold format 2 alone.
"""
