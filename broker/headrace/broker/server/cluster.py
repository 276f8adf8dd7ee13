"""This broker's parts in its cluster, side by side, and the order in which they begin and end.

How a broker starts:
    cluster = Cluster(config, clock, metadata, tasks, is_mirrored)
    await cluster.connect(stored_broker_id)   # session, parent znodes, cluster id, broker id, configurations
    logs, _ = open_logs(…, broker_id=cluster.membership.broker_id, overrides=cluster.configurations.of_topic)
    await cluster.join(Partitions(…, logs, …), endpoints)
    … serve …
    await cluster.leave()                     # controlled shutdown, then the session ends

Wiring only: what the parts do is theirs.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from headrace.broker.auth.acl_authorizer import AclAuthorizer
from headrace.broker.auth.decisions import Decisions
from headrace.broker.clock import Clock
from headrace.broker.config.broker import BrokerConfig, super_users
from headrace.broker.errors import KafkaError
from headrace.broker.handlers.table import HANDLERS
from headrace.broker.legacy.zookeeper_offsets import ZooKeeperOffsets
from headrace.broker.replication.model import Endpoint
from headrace.broker.server.access.acl_store import AclStore
from headrace.broker.server.access.delegation_tokens import DelegationTokens
from headrace.broker.server.access.scram_users import ScramUsers
from headrace.broker.server.control.control import Control
from headrace.broker.server.mailbox import Mailbox
from headrace.broker.server.membership.member import Membership
from headrace.broker.server.membership.producer_ids import ProducerIdBlocks
from headrace.broker.server.metadata import MetadataCache
from headrace.broker.server.peers.requests import Connect, connect
from headrace.broker.server.replicas.hosted import Partitions
from headrace.broker.server.settings.configurations import Configurations, IsMirrored
from headrace.broker.server.topics.changes import Topics
from headrace.broker.structured_log import get_logger
from headrace.broker.tasks import Tasks
from headrace.broker.zk.access import ZooKeeperAccess
from headrace.broker.zk.client import MakeKazoo, ZooKeeperClient, kazoo_client
from headrace.broker.zk.znodes import ZooKeeperClosedError, ZooKeeperError

logger = get_logger(__name__)
LEAVE_SECONDS_MAX = 10.0


class Cluster:
    """`membership`, `configurations`, `topics`, `control`, and other uses of ZooKeeper beside them, on one session.

    `access_lists` is None where nobody is asked who may do what.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        metadata: MetadataCache,
        tasks: Tasks,
        is_mirrored: IsMirrored = lambda topic, *, is_named: False,
        *,
        make_kazoo: MakeKazoo = kazoo_client,
        connect: Connect = connect,
    ) -> None:
        """`is_mirrored` is as `Configurations` has it."""
        self._tasks = tasks
        self._metadata = metadata
        self._zookeeper = zookeeper = _client(config, make_kazoo)
        self._mailbox = mailbox = Mailbox(_work_failed)
        self.membership = Membership(config, clock, zookeeper, mailbox)
        self.configurations = Configurations(config, clock, zookeeper, mailbox, metadata, is_mirrored)
        self.scram_users = ScramUsers(self.configurations)
        self.tokens = DelegationTokens(config.tokens, zookeeper, mailbox, clock)
        self.topics = Topics(config, zookeeper, metadata, tasks, self.configurations.check_is_no_copy)
        self.control = Control(
            config,
            clock,
            zookeeper,
            mailbox,
            tasks,
            membership=self.membership,
            configurations=self.configurations,
            metadata=metadata,
            connect=connect,
        )
        self.topics.on_change(self.control.topics_written, self.control.topics_doomed)
        self.membership.on_session(self.control.session_started)
        self.membership.on_registered(self.control.registered)
        self.decisions = Decisions({key: handler.name for key, handler in HANDLERS.items()})
        self.access_lists = _access_lists(config, self.decisions, zookeeper, clock)
        self.consumer_offsets = ZooKeeperOffsets(zookeeper)
        self.producer_id_blocks = ProducerIdBlocks(zookeeper, self.membership)

    async def connect(self, stored_broker_id: int | None = None) -> None:
        """Open the ZooKeeper session and read what it holds for this broker. Raises ZooKeeperError with a sentence.

        `stored_broker_id` is the id in this broker's `meta.properties`: it stands when `broker.id` is -1.
        """
        await self.membership.connect(stored_broker_id)
        self._metadata.set_cluster_id(self.membership.cluster_id)
        await self.configurations.load(self.membership.broker_id)
        await self.tokens.load()
        if self.access_lists is not None:
            await self.access_lists.load()
            self.access_lists.watch(self._tasks)

    async def join(self, partitions: Partitions, endpoints: Sequence[Endpoint]) -> None:
        """Register this broker under its advertised endpoints and run for controller; returns once
        registered.

        Raises ZooKeeperError when another broker uses this broker's id.
        """
        # What is still on its way to an earlier life of this broker is none of its business.
        partitions.broker_epoch = self._zookeeper.last_zxid + 1
        self.control.obey(partitions)
        self._tasks.start("cluster", self._mailbox.run())
        await self.membership.register(endpoints)
        self.configurations.follow(partitions.logs)
        self.tokens.watch()
        if self.tokens.is_enabled:
            self._tasks.every("delegation tokens", self.tokens.check_interval_ms, self.tokens.expire_all)
        self.control.run_for_office()

    async def leave(self) -> None:
        """Have others lead what they can, then end the session; bounded by `LEAVE_SECONDS_MAX`."""
        try:
            async with asyncio.timeout(LEAVE_SECONDS_MAX):
                await self.control.take_leave()
        except (OSError, KafkaError, ZooKeeperError) as error:
            logger.warning("stopping without the controller's consent", reason=repr(error))
        await self.membership.close()


def _access_lists(
    config: BrokerConfig, decisions: Decisions, zookeeper: ZooKeeperClient, clock: Clock
) -> AclStore | None:
    authorization = config.authorization
    if not authorization.authorizer_class_name:
        return None
    authorizer = AclAuthorizer(
        decisions,
        super_users=super_users(authorization),
        allows_without_lists=authorization.allow_everyone_if_no_acl_found,
    )
    return AclStore(authorizer, zookeeper, clock)


def _client(config: BrokerConfig, make_kazoo: MakeKazoo) -> ZooKeeperClient:
    zookeeper = config.zookeeper
    session_timeout_ms = zookeeper.zookeeper_session_timeout_ms
    return ZooKeeperClient(
        zookeeper.zookeeper_connect or "",
        session_timeout_ms=session_timeout_ms,
        connection_timeout_ms=zookeeper.zookeeper_connection_timeout_ms or session_timeout_ms,
        access=ZooKeeperAccess.of(config.properties, os.environ),
        make_kazoo=make_kazoo,
    )


async def _work_failed(error: Exception) -> None:
    if not isinstance(error, ZooKeeperClosedError):
        logger.failure("cluster work failed", error)
