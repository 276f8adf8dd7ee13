"""Has the copies' configurations follow their sources', on the one broker of the cluster that does rounds.

A copy is compared each time that its source's configuration was read anew. What is to change is `sync/configs`' to decide.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from headrace.broker.config.topics import TOPIC_CONFIGS, LogConfig
from headrace.broker.errors import KafkaError
from headrace.broker.server.embedding import EmbeddingHost
from headrace.broker.structured_log import get_logger
from headrace.mirror import lineage
from headrace.mirror.memory.reports import CONFIGS, SyncReport, failed
from headrace.mirror.rounds.loop import does_rounds
from headrace.mirror.source import Source
from headrace.mirror.sync import configs
from headrace.mirror.sync.configs import SYNCED_CONFIGS

logger = get_logger(__name__)
CHANGES_PER_LOOK_MAX = 50
CHANGE_TIMEOUT_SECONDS = 10


class _Compared(NamedTuple):
    """`problem` is why the copy is not as its source's topic, which had `there`."""

    there: Mapping[str, str]
    problem: str


class ConfigRounds:
    """Of all sources of this broker."""

    def __init__(self, host: EmbeddingHost) -> None:
        self._host = host
        self._compared: dict[str, dict[str, _Compared]] = {}

    async def keep_in_step(self, source: Source) -> None:
        """Change what differs, of so many copies at most; the others have their turn at the next look."""
        name = source.config.name
        before = source.syncs.get(CONFIGS)
        if not (source.config.sync_configs and does_rounds(self._host)):
            self._compared.pop(name, None)
            source.syncs.pop(CONFIGS, None)
            return
        known, compared, left = self._compared.get(name, {}), {}, CHANGES_PER_LOOK_MAX
        for topic in source.topics.values():
            copy = source.copy_of(topic.name)
            if not topic.configs or not self._is_copy(copy):
                continue
            if copy in known and known[copy].there is topic.configs:
                compared[copy] = known[copy]
                continue
            found, problem = self._differing(copy, topic.configs)
            if found and left == 0:
                continue
            if found:
                left -= 1
                problem = await self._change(copy, found)
            compared[copy] = _Compared(topic.configs, problem)
        self._compared[name] = compared
        source.syncs[CONFIGS] = self._report(name, before, compared, is_whole=left > 0)

    def _report(
        self, source: str, before: SyncReport | None, compared: Mapping[str, _Compared], *, is_whole: bool
    ) -> SyncReport:
        problems = [f"{copy}: {found.problem}" for copy, found in sorted(compared.items()) if found.problem]
        if problems:
            more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
            return failed(source, CONFIGS, before, f"{problems[0]}{more}")
        # While some still wait for their turn the last success is an earlier one.
        earlier = None if before is None else before.succeeded_ms
        succeeded_ms = self._host.clock.now_ms() if is_whole else earlier
        return SyncReport(source=source, what=CONFIGS, succeeded_ms=succeeded_ms, in_step=len(compared))

    def _is_copy(self, topic: str) -> bool:
        return bool(lineage.clusters_of(self._host.configurations.of_topic(topic)))

    def _differing(self, copy: str, there: Mapping[str, str]) -> tuple[dict[str, str], str]:
        """What to change, or why nobody can tell."""
        configurations = self._host.configurations
        defaults = LogConfig.from_broker(configurations.in_effect)
        try:
            config = defaults.with_overrides(configurations.of_topic(copy))
        except KafkaError as error:
            return {}, str(error)
        here = {key: TOPIC_CONFIGS[key].text(config) or "" for key in SYNCED_CONFIGS}
        return configs.changes(there, here), ""

    async def _change(self, copy: str, found: Mapping[str, str]) -> str:
        """Why it was not changed, or nothing."""

        def change(overrides: dict[str, str]) -> Mapping[str, str]:
            # It may have been promoted since.
            return {**overrides, **found} if lineage.clusters_of(overrides) else overrides

        try:
            async with asyncio.timeout(CHANGE_TIMEOUT_SECONDS):
                await self._host.configurations.alter_topic(copy, change, validate_only=False)
        except (TimeoutError, KafkaError) as error:
            reason = str(error) or "ZooKeeper does not answer"
            logger.warning("copy's configuration does not follow", topic=copy, reason=reason)
            return reason
        logger.info("copy's configuration follows its source", topic=copy, **found)
        return ""
