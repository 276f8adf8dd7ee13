"""The versions of what brokers ask each other, by `inter.broker.protocol.version`.

Controllers and followers ask nobody which versions are served: the configuration says what the oldest broker of the cluster
understands (org.apache.kafka.server.common.MetadataVersion, kafka.controller.ControllerChannelManager).
"""

from __future__ import annotations

from typing import NamedTuple


class Versions(NamedTuple):
    """Of each request between brokers."""

    leader_and_isr: int
    update_metadata: int
    stop_replica: int
    fetch: int
    list_offsets: int
    offset_for_leader_epoch: int

    @property
    def tells_recovery(self) -> bool:
        """Whether brokers know of leaders that were elected without being in sync (KIP-704)."""
        return self.leader_and_isr >= FIRST_LEADER_AND_ISR_WITH_RECOVERY


FIRST_LEADER_AND_ISR_WITH_RECOVERY = 6
_IV_NEWEST = 99
_FROM: tuple[tuple[tuple[int, int], Versions], ...] = (
    ((0, 0), Versions(5, 7, 3, 12, 6, 4)),
    ((0, 1), Versions(5, 7, 3, 12, 7, 4)),
    ((1, 0), Versions(5, 7, 3, 13, 7, 4)),
    ((2, 0), Versions(6, 7, 3, 13, 7, 4)),
    ((4, 0), Versions(7, 8, 4, 13, 7, 4)),
    ((5, 0), Versions(7, 8, 4, 14, 8, 4)),
    ((5, 1), Versions(7, 8, 4, 15, 8, 4)),
    ((7, 4), Versions(7, 8, 4, 16, 8, 4)),
    ((9, 0), Versions(7, 8, 4, 17, 9, 4)),
)
"""By the minor release of 3 and its internal version (IV) from which they hold."""


def versions_of(protocol_version: str) -> Versions:
    """The versions of a legal `inter.broker.protocol.version`: a release stands for its newest internal version."""
    release, _, internal = protocol_version.partition("-IV")
    minor = release.split(".")[1]
    wanted = int(minor), int(internal) if internal else _IV_NEWEST
    return next(versions for first, versions in reversed(_FROM) if first <= wanted)
