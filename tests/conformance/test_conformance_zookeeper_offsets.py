"""Offsets of version 0 in ZooKeeper: the same answers and the same znodes as Apache Kafka's."""

from __future__ import annotations

from sessions import OFFSET_COMMIT, OFFSET_FETCH, Pair, Session, create_topic


def test_offsets_of_version_0(pair: Pair) -> None:
    def script(session: Session) -> None:
        create_topic(session, "by-zookeeper", partitions=2)
        for offset, metadata in ((5, "m"), (7, None), (-1, ""), (9, "m" * 5000), (8, "")):
            partitions = [
                {"partition_index": p, "committed_offset": offset + p, "committed_metadata": metadata}
                for p in (0, 1, 7)
            ]
            topics = [{"name": name, "partitions": partitions} for name in ("by-zookeeper", "nowhere")]
            session.ask(OFFSET_COMMIT, 0, {"group_id": "old", "topics": topics}, note=f"{offset}")
            wanted = [{"name": name, "partition_indexes": [0, 1, 7]} for name in ("by-zookeeper", "nowhere")]
            for group in ("old", "another"):
                session.ask(OFFSET_FETCH, 0, {"group_id": group, "topics": wanted}, note=f"{group} {offset}")

    pair.compare(script)
    paths = [f"{chroot}/consumers/old/offsets/by-zookeeper/1" for chroot in ("/headrace", "/kafka")]
    assert [pair.znodes.get(path)[0] for path in paths] == [b"9", b"9"]
