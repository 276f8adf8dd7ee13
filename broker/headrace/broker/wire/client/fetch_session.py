"""A fetcher's half of an incremental fetch session (KIP-227): what goes into the next Fetch to one leader.

The leader remembers what was asked; a request names what is new, changed or no longer asked for. Invariants: after a full
request that was given a session `asked` is what the leader remembers; a request costs what moved since the one before; what
moved is asked last, so that in a request of everything each partition has its turn. Knows nothing of sockets and logs.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.broker.errors import ErrorCode
from headrace.broker.wire.client.replica_fetch import FetchQuestion, WireKey

NO_SESSION, FULL_EPOCH = 0, 0
LAST_EPOCH = 2**31 - 1


class Due(NamedTuple):
    """What the next request says: all that is asked when `epoch` is 0, else what moved."""

    session_id: int
    epoch: int
    asked: list[tuple[WireKey, FetchQuestion]]
    forgotten: list[WireKey]


class FetchSession:
    """See the module's text; `asked` is what the leader is asked for, by partition."""

    def __init__(self) -> None:
        self.asked: dict[WireKey, FetchQuestion] = {}
        self.session_id = NO_SESSION
        self.epoch = FULL_EPOCH
        self._changed: dict[WireKey, None] = {}
        self._forgotten: dict[WireKey, None] = {}
        # What the leader remembers that is no longer asked, or will be asked anew.
        self._told: set[WireKey] = set()

    def ask(self, key: WireKey, question: FetchQuestion) -> None:
        """Ask this of a partition from the next request on."""
        if self.asked.pop(key, None) == question and key not in self._changed:
            self.asked[key] = question
            return
        self.asked[key] = question
        self._changed[key] = None
        self._forgotten.pop(key, None)

    def forget(self, key: WireKey) -> None:
        """Ask for a partition no more."""
        if self.asked.pop(key, None) is None:
            return
        self._changed.pop(key, None)
        if key in self._told:
            self._forgotten[key] = None

    def forget_all(self) -> None:
        """Ask for nothing, and begin anew."""
        self.asked.clear()
        self.failed()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to ask, nor to forget."""
        return not self.asked and not self._forgotten

    def due(self) -> Due:
        """The next request; it is answered, or `failed`, before there is another."""
        if self.epoch == FULL_EPOCH:
            asked = list(self.asked.items())
            self._told = set(self.asked)
            forgotten: list[WireKey] = []
        else:
            asked = [(key, self.asked[key]) for key in self._changed]
            forgotten = list(self._forgotten)
            self._told.update(self._changed)
            self._told.difference_update(forgotten)
        self._changed.clear()
        self._forgotten.clear()
        return Due(self.session_id, self.epoch, asked, forgotten)

    def answered(self, error_code: int, session_id: int) -> bool:
        """Take in what the leader says of the session; False: it answered nothing else, ask again for everything."""
        if error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self.session_id, self.epoch = NO_SESSION, FULL_EPOCH
            return False
        if error_code:
            self.failed()
            return False
        if self.epoch == FULL_EPOCH:
            self.session_id = session_id
            self.epoch = 1 if session_id != NO_SESSION else FULL_EPOCH
        elif session_id != self.session_id:
            # It ended the session, with an answer to the last request of it.
            self.session_id, self.epoch = NO_SESSION, FULL_EPOCH
        else:
            self.epoch = 1 if self.epoch == LAST_EPOCH else self.epoch + 1
        return True

    def failed(self) -> None:
        """Nobody knows what the leader remembers: have it end that session, and begin another."""
        self.epoch = FULL_EPOCH
