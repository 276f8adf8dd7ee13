"""The configurations in effect: of topics, of this broker, of all brokers; how they are altered, and who hears of it.

Invariants: what is stored and not usable leaves the last usable configuration in effect, with a line in the log; a
change is checked before it is stored. `server.settings.dynamic_config` keeps what ZooKeeper holds; this module knows what it
means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from headrace.broker.clock import Clock
from headrace.broker.config import copies, dynamic
from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.keys import ConfigurationError
from headrace.broker.config.topics import LogConfig, known_overrides
from headrace.broker.errors import InvalidRequestError, KafkaError, UnknownTopicOrPartitionError
from headrace.broker.log.store import LogStore
from headrace.broker.server.mailbox import Mailbox
from headrace.broker.server.metadata import MetadataCache
from headrace.broker.server.settings.addresses import resolve
from headrace.broker.server.settings.client_configs import ClientConfigs
from headrace.broker.server.settings.dynamic_config import BROKERS, TOPICS, Change, DynamicConfigs
from headrace.broker.structured_log import get_logger
from headrace.broker.tls.password_encoder import PasswordEncoder
from headrace.broker.zk import paths
from headrace.broker.zk.client import ZooKeeperClient

logger = get_logger(__name__)
UNCLEAN = "unclean.leader.election.enable"


class IsMirrored(Protocol):
    """See `Configurations`."""

    def __call__(self, topic: str, /, *, is_named: bool) -> bool: ...


class Configurations:
    """`in_effect` is what `server.properties` says under what ZooKeeper says."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        zookeeper: ZooKeeperClient,
        mailbox: Mailbox,
        metadata: MetadataCache,
        is_mirrored: IsMirrored,
    ) -> None:
        """`is_mirrored(topic)`: whether this broker's configuration has a mirror make and write topics of that name; with
        `is_named`, whether it has that of a topic which is configured to be the copy of that name.
        """
        self._static = self.in_effect = config
        self._metadata = metadata
        self._is_mirrored = is_mirrored
        self._stored = DynamicConfigs(zookeeper, mailbox, clock)
        self._own_name = ""
        self._passwords = PasswordEncoder(config.passwords)
        # Raises ConfigurationError for what listeners with TLS could not serve with.
        self.check_certificates: Callable[[BrokerConfig], None] = lambda config: None
        self._logs: LogStore | None = None
        self._callbacks: list[Callable[[BrokerConfig], None]] = []
        self._unclean_callbacks: list[Callable[[frozenset[str] | None], None]] = []

    async def load(self, broker_id: int) -> None:
        """Read what ZooKeeper holds; afterwards `in_effect` and `of_topic` are right."""
        self._own_name = str(broker_id)
        await self._stored.load(self._own_name)
        _warn_of_unknown(self._stored.topics())
        self.in_effect = self._effective()

    @property
    def of_clients(self) -> ClientConfigs:
        """What is configured for users, client ids and addresses."""
        return self._stored.clients

    async def is_address(self, host: str) -> bool:
        """Whether it is an address, or the name of one."""
        return await resolve(host) is not None

    async def stored_of_clients(self, kind: str) -> Mapping[str, Mapping[str, str]]:
        """The overrides of all users, client ids or addresses by name, as `/config` holds them now."""
        return await self._stored.clients.stored(kind)

    async def alter_client(self, kind: str, name: str, change: Change, *, validate_only: bool) -> None:
        """Replace the overrides of a user, client id or address by `change(overrides)`.

        Raises whatever `change` raises; nothing changed then.
        """
        if validate_only:
            change(await self._stored.clients.stored_of(kind, name))
        else:
            await self._stored.alter(kind, name, change)

    def follow(self, logs: LogStore) -> None:
        """Bring each change that is notified from now on to the logs, and to who asked with `on_change`."""
        self._logs = logs
        self._stored.on_change(self._topic_changed)
        self._stored.on_broker_change(self._broker_changed)
        self._stored.watch()

    def on_change(self, callback: Callable[[BrokerConfig], None]) -> None:
        """Call `callback(config)` after each change of the broker's configuration in effect."""
        self._callbacks.append(callback)

    def on_unclean_allowed(self, callback: Callable[[frozenset[str] | None], None]) -> None:
        """Call `callback(topics)` when replicas that are not in sync may lead these topics from now on.

        None: all topics that say nothing of their own.
        """
        self._unclean_callbacks.append(callback)

    async def learn(self, topics: Mapping[str, bool]) -> None:
        """Read the overrides of those topics that are new to this broker (True): a namesake may have had others."""
        await self._stored.learn(topics)

    def forget(self, topic: str) -> None:
        """The topic is gone."""
        self._stored.forget(topic)

    def of_topic(self, topic: str) -> dict[str, str]:
        """What `/config/topics/<t>` holds of the overrides that have an effect here, from memory."""
        return self._usable(topic, self._stored.of(topic))

    def is_mirrored(self, topic: str) -> bool:
        """Whether a mirror of this broker makes and writes topics of that name."""
        return self._is_mirrored(topic, is_named=False)

    def remote_topics(self) -> dict[str, str]:
        """Topic → the remote name that it is configured to be the copy of, from memory."""
        found = ((topic, stored.get(copies.MIRROR_REMOTE)) for topic, stored in self._stored.topics().items())
        return {topic: remote for topic, remote in found if remote}

    def marked_topics(self) -> list[str]:
        """The topics that are marked as copies, whether they are mirrored or not, from memory."""
        return [topic for topic, stored in self._stored.topics().items() if copies.is_mirror_copy(stored)]

    def throttled(self, name: str, topic: str) -> str:
        """What the topic says of the replicas under a throttle; `name` is that configuration's."""
        return self._stored.of(topic).get(name, "")

    def is_unclean(self, topic: str) -> bool:
        """Whether a replica that is not in sync may lead the topic."""
        text = self._stored.of(topic).get(UNCLEAN)
        return self.in_effect.logs.unclean_leader_election_enable if text is None else text.lower() == "true"

    async def stored_of_topics(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """The topics' overrides as `/config/topics` holds them now: a change shows as soon as it was answered."""
        return await self._stored.stored(topics)

    async def check_is_no_copy(self, topic: str) -> None:
        """Raises PolicyViolationError for a mirror's copy."""
        stored = (await self._stored.stored([topic]))[topic]
        if copies.is_mirror_copy(self._usable(topic, stored)):
            raise copies.refusal(topic)

    async def alter_topic(self, topic: str, change: Change, *, validate_only: bool) -> None:
        """Replace a topic's overrides by `change(overrides)`.

        Raises UnknownTopicOrPartitionError, InvalidConfigError and whatever `change` raises; nothing changed then.
        """

        def checked(overrides: dict[str, str]) -> Mapping[str, str]:
            changed = change(overrides)
            # What Apache Kafka stored for itself stays.
            new = {name: value for name, value in changed.items() if overrides.get(name) != value}
            LogConfig.from_broker(self.in_effect).with_overrides({**known_overrides(changed), **new})
            return changed

        if self._metadata.topics(topic) is None:
            # What is wrong with the change itself is said first, as Kafka does.
            change({})
            raise UnknownTopicOrPartitionError(f"The topic '{topic}' does not exist.")
        if validate_only:
            checked((await self._stored.stored([topic]))[topic])
        else:
            await self._stored.alter(TOPICS, topic, checked)

    @property
    def static_properties(self) -> Mapping[str, str]:
        """What `server.properties` says."""
        return self._static.properties

    def of_broker(self, broker: str) -> dict[str, str]:
        """The overrides of this broker (by its id) or of all brokers (`<default>`) that are in effect."""
        return dynamic.usable(self._passwords.decoded(self._stored.of_broker(broker))[0])

    async def alter_broker(self, broker: str, change: Change, *, validate_only: bool) -> None:
        """Replace the overrides of this broker (by its id) or of all brokers (`<default>`) by `change(overrides)`.

        Raises InvalidRequestError and whatever `change` raises; nothing changed then.
        """

        def checked(overrides: dict[str, str]) -> Mapping[str, str]:
            changed = change(self._passwords.decoded(overrides)[0])
            dynamic.check(changed)
            dynamic.check_step(self.in_effect, changed)
            if broker == paths.DEFAULT_ENTITY:
                dynamic.check_level(changed)
            else:
                self._check_stores(changed)
            return self._passwords.encoded(changed, overrides)

        if validate_only:
            checked(dict(self._stored.of_broker(broker)))
        else:
            await self._stored.alter(BROKERS, broker, checked)

    def _check_stores(self, changed: Mapping[str, str]) -> None:
        """Raises InvalidRequestError for keys and certificates that this broker's listeners could not serve with."""
        try:
            config = dynamic.with_levels(self._static, self.of_broker(paths.DEFAULT_ENTITY), changed)
            self.check_certificates(config)
        except ConfigurationError as error:
            raise InvalidRequestError(str(error)) from None

    def _usable(self, topic: str, stored: Mapping[str, str]) -> dict[str, str]:
        """A copy that is not mirrored any more is a topic like others."""
        found = known_overrides(stored)
        remote = copies.remote_topic(topic, found)
        if not self._is_mirrored(remote, is_named=remote != topic):
            found.pop(copies.MIRROR_CLUSTERS, None)
        return found

    def _effective(self) -> BrokerConfig:
        """What `server.properties` says under what ZooKeeper says; the last one when these do not go together."""
        default, own = (self.of_broker(name) for name in (paths.DEFAULT_ENTITY, self._own_name))
        _, failed = self._passwords.decoded(self._stored.of_broker(self._own_name))
        if failed:
            names = ",".join(sorted(failed))
            logger.error("passwords cannot be decoded, see password.encoder.secret", keys=names)
        try:
            return dynamic.with_levels(self._static, default, own)
        except ValueError as error:
            logger.error("broker configuration is not usable, the last one stays", reason=error)
            return self.in_effect

    def _topic_changed(self, topic: str, overrides: Mapping[str, str]) -> None:
        assert self._logs is not None, "changes are followed"
        _warn_of_unknown({topic: overrides})
        try:
            self._logs.update_config(topic, self._usable(topic, overrides))
        except KafkaError as error:
            logger.error("topic configuration is not usable, the last one stays", topic=topic, reason=error)
        if self.is_unclean(topic):
            self._allow_unclean(frozenset((topic,)))

    def _broker_changed(self) -> None:
        assert self._logs is not None, "changes are followed"
        was_unclean = self.in_effect.logs.unclean_leader_election_enable
        self.in_effect = self._effective()
        try:
            self._logs.update_defaults(LogConfig.from_broker(self.in_effect))
        except KafkaError as error:
            logger.error("broker configuration is not usable for every topic", reason=error)
        for callback in self._callbacks:
            callback(self.in_effect)
        if self.in_effect.logs.unclean_leader_election_enable and not was_unclean:
            self._allow_unclean(None)

    def _allow_unclean(self, topics: frozenset[str] | None) -> None:
        for callback in self._unclean_callbacks:
            callback(topics)


def _warn_of_unknown(topics: Mapping[str, Mapping[str, str]]) -> None:
    """One line, however many topics have configurations stored that have no effect here."""
    unknown = {topic: overrides.keys() - known_overrides(overrides) for topic, overrides in topics.items()}
    concerned = [topic for topic, names in unknown.items() if names]
    if concerned:
        keys = sorted(set().union(*unknown.values()))
        logger.warning(
            "topic configuration without effect",
            keys=",".join(keys),
            topics=len(concerned),
            first=concerned[0],
        )
