"""The brokers of a cluster for code that blocks: links to them, and patience with leaders that move.

Owns the links, one a broker, and the view by which a leader's is chosen. Invariants: a failed connection or a moved leader
is tried again, `ATTEMPTS_MAX` times unless told otherwise, with fresh metadata and a growing pause, then raised as
`ConnectionFailedError`, as is at once that brokers do not let in; metadata never creates a topic. Not thread-safe; a process
that forks makes its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from headrace.broker.client.blocking import BlockingLink
from headrace.broker.client.entrance import NOT_LET_IN
from headrace.broker.client.security import PLAINTEXT, ClientSecurity
from headrace.broker.errors import ErrorCode, KafkaError, error_of
from headrace.broker.wire.api import k03_metadata
from headrace.broker.wire.client.view import Address, ClusterView, is_lost, is_moved
from headrace.broker.wire.partitions import PartitionKey

ATTEMPTS_MAX: Final = 6
RETRY_WAIT_SECONDS: Final = 0.2
METADATA_VERSION: Final = 12

T = TypeVar("T")


class ConnectionFailedError(Exception):
    """No broker answered, or a partition had no leader, after all attempts."""


class BlockingCluster:
    """`view` is as of the last look at the metadata; `timeout_seconds` is how long one request may take."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        client_id: str,
        timeout_seconds: float,
        security: ClientSecurity = PLAINTEXT,
    ) -> None:
        self.view = ClusterView()
        self._bootstrap = tuple(bootstrap)
        self._client_id = client_id
        self._timeout_seconds = timeout_seconds
        self._security = security
        self._links: dict[Address, BlockingLink] = {}

    def refresh(self, topics: Iterable[str] | None) -> None:
        """Ask any broker for these topics' metadata, or for that of all."""
        names = None if topics is None else [{"name": topic} for topic in topics]
        request = {"topics": names, "allow_auto_topic_creation": False}
        answer = self.any().ask(k03_metadata.API, METADATA_VERSION, request)
        self.view.take(answer, is_whole=topics is None)

    def refresh_if_possible(self, topics: Iterable[str]) -> None:
        """Like `refresh`, but where no broker answers the view stays as it is."""
        try:
            self.refresh(topics)
        except OSError:
            self.close()

    def any(self) -> BlockingLink:
        """A link to any broker that accepts one, those already open and the bootstrap ones first."""
        failure: OSError | None = None
        for address in dict.fromkeys([*self._links, *self._bootstrap, *self.view.addresses.values()]):
            try:
                return self.to(address)
            except OSError as error:
                failure = error
        if isinstance(failure, NOT_LET_IN):
            raise failure
        named = ",".join(f"{host}:{port}" for host, port in self._bootstrap)
        raise ConnectionError(f"no broker of {named} accepts a connection: {failure}")

    def to(self, address: Address) -> BlockingLink:
        """The link to the broker at an address."""
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = BlockingLink(
                address, self._client_id, self._timeout_seconds, security=self._security
            )
        return link

    def to_leader(self, place: PartitionKey) -> BlockingLink:
        """The link to a partition's leader; raises KafkaError where fresh metadata names none either."""
        address = self.view.leader_of(place)
        if address is None:
            self.refresh([place[0]])
            address = self.view.leader_of(place)
        if address is None:
            raise error_of(ErrorCode.LEADER_NOT_AVAILABLE, f"{place[0]}-{place[1]} has no leader")
        return self.to(address)

    def retried(self, attempt: Callable[[], T], topic: str | None, attempts_max: int = ATTEMPTS_MAX) -> T:
        """Run an attempt until it succeeds; a failed connection drops all of them, a moved leader its metadata.

        Raises:
            ConnectionFailedError: no attempt succeeded.
            KafkaError: the broker refused, and no other would do otherwise.
        """
        failure: Exception | None = None
        for _ in attempts(attempts_max):
            try:
                return attempt()
            except NOT_LET_IN as error:
                self.close()
                raise ConnectionFailedError(str(error)) from error
            except (OSError, KafkaError) as error:
                failure = error
                if is_lost(error):
                    self.close()
                elif not is_moved(error):
                    raise
            self.view.forget_leaders(topic)
        raise ConnectionFailedError(f"{failure} (after {attempts_max} attempts)") from failure

    def close(self) -> None:
        """Close all links; the next request opens those that it needs."""
        for link in self._links.values():
            link.close()
        self._links.clear()


def attempts(count_max: int) -> Iterator[int]:
    """The numbers of the attempts, from 0 on, with a growing pause between them."""
    for number in range(count_max):
        if number:
            time.sleep(RETRY_WAIT_SECONDS * number)
        yield number
