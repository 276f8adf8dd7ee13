"""The controller's commands to brokers as requests, and their answers as events.

Invariant: an answer to an earlier term's request is no event of this one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.broker.replication import events, requests
from headrace.broker.replication.controller.machine import Controller
from headrace.broker.replication.model import LEADER_DURING_DELETE
from headrace.broker.server.peers import Peers
from headrace.broker.structured_log import get_logger
from headrace.broker.wire.api import k04_leader_and_isr, k05_stop_replica, k06_update_metadata

logger = get_logger(__name__)
Order = events.SendLeaderAndIsr | events.SendUpdateMetadata | events.SendStopReplica
Answered = Callable[[dict[str, Any]], None]


class Orders:
    """Sends for the controller `broker_id`, to the brokers' endpoints of that listener."""

    def __init__(
        self,
        peers: Peers,
        broker_id: int,
        listener: str,
        tell: Callable[[Controller, events.Event], None],
    ) -> None:
        """`tell(core, event)` takes an event of the term of `core`, and forgets it when that is over."""
        self._peers = peers
        self._broker_id = broker_id
        self._listener = listener
        self._tell = tell

    def send(self, command: Order, core: Controller) -> None:
        """Queue the request for its broker."""
        broker = core.cluster.brokers[command.broker_id]
        endpoint = broker.endpoint(self._listener)
        if endpoint is None:
            logger.error(
                "broker has no inter-broker listener", broker=broker.broker_id, listener=self._listener
            )
            return
        office = {"controller_id": self._broker_id, "controller_epoch": core.cluster.epoch}
        answered = None
        match command:
            case events.SendLeaderAndIsr():
                key, version = k04_leader_and_isr.API.key, requests.LEADER_AND_ISR_VERSION
                message = requests.leader_and_isr(command, listener=self._listener, **office)
                answered = self._on_led(command, core)
            case events.SendUpdateMetadata():
                key, version = k06_update_metadata.API.key, requests.UPDATE_METADATA_VERSION
                message = requests.update_metadata(command, **office)
                answered = self._on_told(command, core)
            case events.SendStopReplica():
                key, version = k05_stop_replica.API.key, requests.STOP_REPLICA_VERSION
                message = requests.stop_replica(command, **office)
                answered = self._on_stopped(command.broker_id, core)
        self._peers.send(command.broker_id, endpoint, key, version, message, answered)

    def forget(self, broker_id: int) -> None:
        """The broker is gone: what was not sent to it yet is void."""
        self._peers.forget(broker_id)

    def forget_all(self) -> None:
        """The term is over."""
        self._peers.forget_all()

    def _on_led(self, command: events.SendLeaderAndIsr, core: Controller) -> Answered:
        def answered(response: dict[str, Any]) -> None:
            event = requests.answered_replicas(command, response)
            if event.offline or core.cluster.offline.get(command.broker_id):
                self._tell(core, event)

        return answered

    def _on_stopped(self, broker_id: int, core: Controller) -> Answered:
        def answered(response: dict[str, Any]) -> None:
            partitions = requests.stopped_partitions(response)
            self._tell(core, events.ReplicasDeleted(broker_id=broker_id, partitions=partitions))

        return answered

    def _on_told(self, command: events.SendUpdateMetadata, core: Controller) -> Answered | None:
        hidden = frozenset(w.topic for w in command.partitions if w.state.leader == LEADER_DURING_DELETE)
        if not hidden:
            return None

        def answered(response: dict[str, Any]) -> None:
            if not response["error_code"]:
                self._tell(core, events.TopicsHidden(broker_id=command.broker_id, topics=hidden))

        return answered
