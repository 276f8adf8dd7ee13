"""The names of files and folders, which are Apache Kafka's."""

from uuid import UUID

from headrace.broker.log.names import deleted_directory, offset_of, parse_partition_directory

TOPIC_ID = UUID(int=7)


def test_names_are_kafkas() -> None:
    assert parse_partition_directory("a-b-12") == ("a-b", 12)
    assert parse_partition_directory("lost+found") is None
    assert parse_partition_directory(f"events-0.{TOPIC_ID.hex}-delete") is None
    assert offset_of("00000000000000000042.log") == 42
    assert offset_of("leader-epoch-checkpoint") is None
    assert len(deleted_directory("t" * 249, 3)) == 255
