"""The controller's commands to brokers as requests, and their answers as events.

Invariant: an answer to an earlier term's request is no event of this one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.broker.replication import events, requests
from headrace.broker.replication.controller.machine import Controller
from headrace.broker.replication.model import LEADER_DURING_DELETE
from headrace.broker.replication.versions import Versions
from headrace.broker.server.peers.requests import Peers
from headrace.broker.structured_log import get_logger

logger = get_logger(__name__)
Answered = Callable[[dict[str, Any]], None]


class Orders:
    """Sends for the controller `broker_id`, to the brokers' endpoints of that listener, in these versions."""

    def __init__(
        self,
        peers: Peers,
        broker_id: int,
        listener: str,
        versions: Versions,
        tell: Callable[[Controller, events.Event], None],
    ) -> None:
        """`tell(core, event)` takes an event of the term of `core`, and forgets it when that is over."""
        self._peers = peers
        self._broker_id = broker_id
        self._listener = listener
        self._versions = versions
        self._tell = tell
        self._maker: requests.Maker | None = None

    def begin(self, controller_epoch: int) -> None:
        """A term begins."""
        self._maker = requests.Maker(
            controller_id=self._broker_id,
            controller_epoch=controller_epoch,
            listener=self._listener,
            versions=self._versions,
        )

    def send(self, command: requests.Command, core: Controller) -> None:
        """Queue the requests for the command's broker; each is answered before the next is sent."""
        assert self._maker is not None, "begin"
        broker = core.cluster.brokers[command.broker_id]
        endpoint = broker.endpoint(self._listener)
        if endpoint is None:
            logger.error(
                "broker has no inter-broker listener", broker=broker.broker_id, listener=self._listener
            )
            return
        pieces = self._maker.requests(command)
        for piece, request in pieces:
            answered: Answered | None
            match piece:
                case events.SendLeaderAndIsr():
                    answered = self._on_led(piece, core)
                case events.SendStopReplica():
                    answered = self._on_stopped(piece.broker_id, core)
                case events.SendUpdateMetadata():
                    # A topic is hidden once all its partitions are.
                    is_last = piece is pieces[-1][0]
                    answered = self._on_told(command, core) if is_last else None
            self._peers.send(
                command.broker_id, endpoint, request, request.version, command.broker_epoch, answered
            )

    def sent(self) -> None:
        """The commands of an event were all sent."""
        if self._maker is not None:
            self._maker.done()

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

    def _on_told(self, command: requests.Command, core: Controller) -> Answered | None:
        assert isinstance(command, events.SendUpdateMetadata)
        hidden = frozenset(w.topic for w in command.partitions if w.state.leader == LEADER_DURING_DELETE)
        if not hidden:
            return None

        def answered(response: dict[str, Any]) -> None:
            if not response["error_code"]:
                self._tell(core, events.TopicsHidden(broker_id=command.broker_id, topics=hidden))

        return answered
