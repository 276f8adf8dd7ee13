"""What brokers say of themselves, each asked by itself: engine, release, directories that failed.

All are asked at once, so that those that hang cost one time-out together. Works for Apache Kafka's brokers, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headrace.broker.client.blocking import BlockingLink
from headrace.broker.client.security import PLAINTEXT, ClientSecurity
from headrace.broker.errors import ErrorCode, error_of
from headrace.broker.wire.api import k32_describe_configs, k35_describe_log_dirs
from headrace.broker.wire.client.view import Address
from headrace.cli.broker_answers import Silence, ask_each

CONFIGS_VERSION, LOG_DIRS_VERSION = 4, 4
BROKER: Final = 4
RELEASE, PROTOCOL = "headrace.version", "inter.broker.protocol.version"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLook:
    """One broker; `version` is headrace's own, which Apache Kafka does not tell, and `failure` why it does not answer."""

    engine: str = "unknown"
    version: str | None = None
    protocol: str | None = None
    offline_log_dirs: tuple[str, ...] = ()
    failure: str | None = None


def look_at(brokers: Mapping[int, Address], security: ClientSecurity = PLAINTEXT) -> dict[int, BrokerLook]:
    """What each of these brokers says; one that does not answer says why."""
    found = ask_each(brokers, "headrace-cluster", _look, security)
    return {
        broker_id: BrokerLook(failure=answer.reason) if isinstance(answer, Silence) else answer
        for broker_id, answer in found.items()
    }


def _look(broker_id: int, link: BlockingLink) -> BrokerLook:
    configs = _configs(link, broker_id)
    return BrokerLook(
        engine="headrace" if RELEASE in configs else "kafka",
        version=configs.get(RELEASE),
        protocol=configs.get(PROTOCOL),
        offline_log_dirs=_offline_log_dirs(link),
    )


def _configs(link: BlockingLink, broker_id: int) -> dict[str, str]:
    keys = [RELEASE, PROTOCOL]
    resource = {
        "resource_type": BROKER,
        "resource_name": str(broker_id),
        "configuration_keys": keys,
    }
    (result,) = link.ask(k32_describe_configs.API, CONFIGS_VERSION, {"resources": [resource]})["results"]
    if result["error_code"]:
        raise error_of(result["error_code"], result["error_message"] or "")
    return {config["name"]: config["value"] for config in result["configs"]}


def _offline_log_dirs(link: BlockingLink) -> tuple[str, ...]:
    # No topics: only the directories themselves.
    answer: dict[str, Any] = link.ask(k35_describe_log_dirs.API, LOG_DIRS_VERSION, {"topics": []})
    failed = (r["log_dir"] for r in answer["results"] if r["error_code"] == ErrorCode.KAFKA_STORAGE_ERROR)
    return tuple(sorted(failed))
