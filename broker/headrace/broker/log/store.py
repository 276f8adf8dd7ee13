"""The logs of one broker: its data directories, their checkpoints and their recovery at start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from uuid import UUID

from headrace.broker.config import LogConfig
from headrace.broker.log.files import Files
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.results import Finding, RecoveryReport


class LogStore:
    """See the module's text; made by `open`."""

    @classmethod
    def open(
        cls,
        files: Files,
        directories: Sequence[str],
        default_config: LogConfig,
        *,
        broker_id: int,
        cluster_id: str,
        overrides: Callable[[str], Mapping[str, str]],
        now_ms: int,
    ) -> tuple[LogStore, list[RecoveryReport]]:
        """Open every log below `directories`; reports hold what recovery found in each of them.

        Raises StorageError: a directory of another broker or cluster (meta.properties) or an unreadable disk.
        """
        raise NotImplementedError

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """The log of a partition, or None."""
        raise NotImplementedError

    def create(self, topic: str, partition: int, topic_id: UUID | None, *, now_ms: int) -> PartitionLog:
        """The log of a partition, made in the directory with the fewest logs when it does not exist."""
        raise NotImplementedError

    def delete(self, topic: str, partition: int, *, now_ms: int) -> None:
        """Rename its folder to `<topic>-<p>.<uuid>-delete`; `maintain` removes it after file.delete.delay.ms."""
        raise NotImplementedError

    def all(self) -> Iterable[PartitionLog]:
        """Every open log."""
        raise NotImplementedError

    def update_config(self, topic: str, overrides: Mapping[str, str]) -> None:
        """Use a topic's changed configuration in all its logs."""
        raise NotImplementedError

    def checkpoint(self) -> None:
        """Write the recovery-point, log-start-offset and replication-offset (high watermark) checkpoints."""
        raise NotImplementedError

    def maintain(self, now_ms: int) -> list[Finding]:
        """Roll, retire, expire and remove what is due. Call every few seconds."""
        raise NotImplementedError

    def flush_tasks(self, now_ms: int) -> list[tuple[PartitionLog, Callable[[], int]]]:
        """Flush jobs that are due, for threads; hand each answer to its log's `flushed()`, then `checkpoint()`."""
        raise NotImplementedError

    def close(self) -> None:
        """Close every log, write the checkpoints and `.kafka_cleanshutdown`."""
        raise NotImplementedError
