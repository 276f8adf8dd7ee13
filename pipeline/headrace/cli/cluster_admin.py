"""What librdkafka's admin client does not ask for: reassignments (KIP-455), and configurations of brokers by themselves.

One request at a time; whoever is controller is found anew where it is another one. Every failure is a ClickException.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import click

from headrace.broker.client.blocking import BlockingLink
from headrace.broker.client.blocking_cluster import (
    ATTEMPTS_MAX,
    BlockingCluster,
    attempts,
)
from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.client.entrance import NOT_LET_IN
from headrace.broker.errors import ErrorCode, KafkaError, error_of
from headrace.broker.wire.api import (
    k03_metadata,
    k32_describe_configs,
    k37_create_partitions,
    k44_incremental_alter_configs,
    k45_alter_partition_reassignments,
    k46_list_partition_reassignments,
)
from headrace.broker.wire.fields import MalformedError
from headrace.broker.wire.schema import Api
from headrace.cli.broker_answers import Silence, ask_each
from headrace.cli.reassignment_plan import Key
from headrace.cli.shared import TIMEOUT_SECONDS

READ_SECONDS: Final = 4.0
"""What brokers have to look up in ZooKeeper what they are asked for."""
TOPICS_ASKED_MAX: Final = 500
METADATA_VERSION, DESCRIBE_VERSION, ALTER_VERSION, PARTITIONS_VERSION = 12, 4, 1, 3
TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
# Another broker answers, or this one a little later.
ELSEWHERE = frozenset(
    (
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
    )
)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """One partition as metadata shows it."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class ZooKeeperSilentError(click.ClickException):
    """Brokers answer, and have no answer from their ZooKeeper."""

    def __init__(self, asked: str, seconds: float) -> None:
        super().__init__(
            f"ZooKeeper does not answer the brokers ({asked} has no answer in {seconds:.0f} s): "
            "see that it runs, and that they reach it."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLook:
    """The brokers that are alive, with their racks, and the topics that were asked for."""

    racks: Mapping[int, str | None]
    controller: int
    addresses: Mapping[int, tuple[str, int]]
    partitions: Mapping[Key, PartitionView]
    unknown: tuple[str, ...]

    def of_topics(self, topics: Container[str]) -> ClusterLook:
        """The same without the partitions of other topics."""
        return replace(self, partitions={key: p for key, p in self.partitions.items() if key[0] in topics})


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A partition on its way; `replicas` are all that it has meanwhile."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class ClusterAdmin:
    """Asks the brokers of `bootstrap`; to be closed after use."""

    def __init__(
        self,
        bootstrap: Bootstrap,
        client_id: str = "headrace-topics",
        *,
        timeout_seconds: float | None = None,
        attempts_max: int = ATTEMPTS_MAX,
    ) -> None:
        self._bootstrap = bootstrap
        self._client_id = client_id
        self._attempts_max = attempts_max
        seconds = TIMEOUT_SECONDS if timeout_seconds is None else timeout_seconds
        self._brokers = BlockingCluster(bootstrap.addresses, client_id, seconds, bootstrap.security)

    def __enter__(self) -> ClusterAdmin:
        return self

    def __exit__(self, *_: object) -> None:
        self._brokers.close()

    def cluster(self, topics: Sequence[str] | None = None) -> ClusterLook:
        """What any broker knows of these topics, or of all."""
        return self.asked("ask for metadata", lambda: self._metadata(topics))

    def reassign(self, targets: Mapping[Key, Sequence[int] | None]) -> dict[Key, KafkaError]:
        """Begin moves, or cancel them (None); answers what is refused."""
        topics = [
            {"name": topic, "partitions": [{"partition_index": p, "replicas": r} for p, r in partitions]}
            for topic, partitions in _by_topic(
                {k: None if r is None else list(r) for k, r in targets.items()}
            ).items()
        ]
        api = k45_alter_partition_reassignments.API
        answer = self._of_controller(api, {"topics": topics, "timeout_ms": int(TIMEOUT_SECONDS * 1000)})
        return {
            (topic["name"], p["partition_index"]): error_of(p["error_code"], p["error_message"] or "")
            for topic in answer["responses"]
            for p in topic["partitions"]
            if p["error_code"]
        }

    def moves(self) -> dict[Key, Move]:
        """The moves under way."""
        answer = self._of_controller(k46_list_partition_reassignments.API, {"topics": None})
        return {
            (topic["name"], p["partition_index"]): Move(
                replicas=tuple(p["replicas"]),
                adding=tuple(p["adding_replicas"]),
                removing=tuple(p["removing_replicas"]),
            )
            for topic in answer["topics"]
            for p in topic["partitions"]
        }

    def doomed(self, topics: Iterable[str]) -> set[str]:
        """Those of these topics that are marked for deletion.

        No question of the protocol is about that, but a controller adds no partition to them, and says so first of all.
        """
        wanted = [{"name": topic, "count": 1, "assignments": None} for topic in topics]
        message = {"topics": wanted, "timeout_ms": 0, "validate_only": True}

        def attempt() -> set[str]:
            api = k37_create_partitions.API
            answer = self.broker(self._metadata([]).controller).ask(api, PARTITIONS_VERSION, message)
            found = {result["name"]: result["error_code"] for result in answer["results"]}
            if ErrorCode.NOT_CONTROLLER in found.values():
                raise error_of(ErrorCode.NOT_CONTROLLER, "the controller has changed")
            return {name for name, code in found.items() if code == ErrorCode.INVALID_TOPIC_EXCEPTION}

        return self.asked("ask for topics that are marked for deletion", attempt)

    def topic_configs(self, topics: Iterable[str], names: Sequence[str]) -> dict[str, dict[str, str]]:
        """What these topics say of these configurations, where it is not empty.

        Raises:
            ZooKeeperSilentError: brokers, which look there, are not answered.
        """
        wanted = [
            {"resource_type": TOPIC, "resource_name": t, "configuration_keys": list(names)} for t in topics
        ]
        found = {
            result["resource_name"]: {c["name"]: c["value"] for c in result["configs"] if c["value"]}
            for first in range(0, len(wanted), TOPICS_ASKED_MAX)
            for result in self._described(wanted[first : first + TOPICS_ASKED_MAX])
        }
        return {topic: configs for topic, configs in found.items() if configs}

    def _described(self, resources: list[dict[str, Any]]) -> list[dict[str, Any]]:
        message = {"resources": resources}
        answer = self._through_zookeeper(k32_describe_configs.API, DESCRIBE_VERSION, message, READ_SECONDS)
        results: list[dict[str, Any]] = answer["results"]
        return results

    def alter_topics(self, topics: Mapping[str, Mapping[str, str | None]]) -> None:
        """Set configurations of topics, or delete them (None)."""
        self._altered(None, [_alteration(TOPIC, name, configs) for name, configs in topics.items()])

    def alter_broker(self, broker_id: int, configs: Mapping[str, str | None]) -> None:
        """Set configurations of a broker, which has to be asked itself, or delete them (None)."""
        self._altered(broker_id, [_alteration(BROKER, str(broker_id), configs)])

    def _altered(self, broker_id: int | None, resources: list[dict[str, Any]]) -> None:
        if not resources:
            return
        api, message = k44_incremental_alter_configs.API, {"resources": resources, "validate_only": False}
        if broker_id is None:
            answer = self._through_zookeeper(api, ALTER_VERSION, message, TIMEOUT_SECONDS)
        else:
            answer = self.asked(
                f"configure broker {broker_id}",
                lambda: self.broker(broker_id).ask(api, ALTER_VERSION, message),
            )
        for result in answer["responses"]:
            if result["error_code"]:
                reason = error_of(result["error_code"], result["error_message"] or "")
                raise click.ClickException(f"configure {result['resource_name']}: {reason}")

    def _through_zookeeper(
        self, api: Api, version: int, message: dict[str, Any], seconds: float
    ) -> dict[str, Any]:
        """The answer of any broker, for which it asks ZooKeeper; a second request would only wait behind the first."""

        def attempt() -> dict[str, Any]:
            link = self._brokers.any()
            try:
                answer: dict[str, Any] = link.ask(api, version, message, seconds)
            except TimeoutError as error:
                raise ZooKeeperSilentError(api.name, seconds) from error
            return answer

        return self.asked(api.name, attempt)

    def _of_controller(self, api: Api, message: dict[str, Any]) -> dict[str, Any]:
        """The controller's answer; it may be another one by now, or away for a moment."""

        def attempt() -> dict[str, Any]:
            link = self.broker(self._metadata([]).controller)
            answer: dict[str, Any] = link.ask(api, api.versions[1], message)
            if answer["error_code"]:
                raise error_of(answer["error_code"], answer["error_message"] or "")
            return answer

        return self.asked(api.name, attempt)

    def each(self, question: Callable[[int, BlockingLink], T]) -> dict[int, T | Silence]:
        """What each broker that is alive answers, all asked at the same time; no broker has two links meanwhile."""
        addresses = self.cluster([]).addresses
        self._brokers.close()
        return ask_each(addresses, self._client_id, question, self._bootstrap.security)

    def any(self) -> BlockingLink:
        """A link to some broker, for one question of an attempt."""
        return self._brokers.any()

    def broker(self, broker_id: int) -> BlockingLink:
        """A link to that broker, for one question of an attempt."""
        address = self._metadata([]).addresses.get(broker_id)
        if address is None:
            raise error_of(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not alive")
        return self._brokers.to(address)

    def _metadata(self, topics: Sequence[str] | None) -> ClusterLook:
        named = None if topics is None else [{"name": topic} for topic in topics]
        request = {"topics": named, "allow_auto_topic_creation": False}
        answer = self._brokers.any().ask(k03_metadata.API, METADATA_VERSION, request)
        return ClusterLook(
            racks={b["node_id"]: b["rack"] for b in answer["brokers"]},
            addresses={b["node_id"]: (b["host"], b["port"]) for b in answer["brokers"]},
            controller=answer["controller_id"],
            partitions={
                (topic["name"], p["partition_index"]): PartitionView(
                    leader=p["leader_id"], replicas=tuple(p["replica_nodes"]), isr=tuple(p["isr_nodes"])
                )
                for topic in answer["topics"]
                for p in topic["partitions"]
            },
            unknown=tuple(t["name"] for t in answer["topics"] if t["error_code"]),
        )

    def asked(self, what: str, attempt: Callable[[], T]) -> T:
        """Attempt until it succeeds, as long as who is asked may be another one by then; the failure names `what`."""
        failure: Exception | None = None
        for _ in attempts(self._attempts_max):
            try:
                return attempt()
            except NOT_LET_IN as error:
                raise click.ClickException(f"{what}: {error}.") from error
            except (OSError, MalformedError) as error:
                failure = error
                # The next attempt passes over who does not answer any more: a link begins with a question.
                self._brokers.close()
            except KafkaError as error:
                failure = error
                if error.code not in ELSEWHERE:
                    break
        where = "" if isinstance(failure, KafkaError) else f"; check --bootstrap {self._bootstrap}"
        raise click.ClickException(f"{what}: {str(failure).rstrip('.')}{where}.") from failure


def _alteration(kind: int, name: str, configs: Mapping[str, str | None]) -> dict[str, Any]:
    return {
        "resource_type": kind,
        "resource_name": name,
        "configs": [
            {"name": n, "config_operation": DELETE if value is None else SET, "value": value}
            for n, value in configs.items()
        ],
    }


def _by_topic(values: Mapping[Key, T]) -> dict[str, list[tuple[int, T]]]:
    topics: dict[str, list[tuple[int, T]]] = {}
    for (topic, partition), value in sorted(values.items(), key=lambda item: item[0]):
        topics.setdefault(topic, []).append((partition, value))
    return topics
