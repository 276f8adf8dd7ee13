"""DescribeConfigs (key 32), versions 0-4: topics and this broker.

Deviations: brokers have no dynamic configuration, so every value of theirs is a static one or the default; broker
loggers are not described.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.broker.config import (
    BROKER_KEYS,
    TOPIC_CONFIGS,
    BrokerConfig,
    LogConfig,
    TopicConfig,
    default_of_broker,
)
from headrace.broker.config_keys import Key, text_of
from headrace.broker.errors import InvalidRequestError, KafkaError, UnknownTopicOrPartitionError
from headrace.broker.handlers.context import Context
from headrace.broker.wire.api import k32_describe_configs
from headrace.broker.wire.frames import RequestHeader

API = k32_describe_configs.API
VERSIONS = (0, 4)

TOPIC, BROKER = 2, 4
DYNAMIC_TOPIC, STATIC_BROKER, DEFAULT = 1, 4, 5
TYPE_CODES = {"BOOLEAN": 1, "STRING": 2, "INT": 3, "LONG": 5, "DOUBLE": 6, "LIST": 7}

Entry = dict[str, Any]


def handle(context: Context, header: RequestHeader, request: dict[str, Any]) -> dict[str, Any]:
    return {"results": [_describe(context, header, resource, request) for resource in request["resources"]]}


def _describe(
    context: Context, header: RequestHeader, resource: Mapping[str, Any], request: Mapping[str, Any]
) -> Entry:
    result: Entry = {"resource_type": resource["resource_type"], "resource_name": resource["resource_name"]}
    try:
        entries = _entries(context, resource["resource_type"], resource["resource_name"])
    except KafkaError as error:
        return {**result, "error_code": error.code, "error_message": str(error), "configs": []}
    wanted = resource["configuration_keys"]
    configs = [
        _trim(entry, header, request) for entry in entries if wanted is None or entry["name"] in wanted
    ]
    return {**result, "error_code": 0, "error_message": None, "configs": configs}


def _entries(context: Context, resource_type: int, name: str) -> Iterable[Entry]:
    if resource_type == TOPIC:
        if context.metadata.topics(name) is None:
            raise UnknownTopicOrPartitionError(f"The topic {name} does not exist.")
        return _topic_entries(context.config, context.topic_overrides(name))
    if resource_type == BROKER:
        if name not in ("", str(context.broker_id)):
            raise InvalidRequestError(
                f"Unexpected broker id, expected {context.broker_id} or empty string, but received {name}"
            )
        return () if name == "" else _broker_entries(context.config)
    raise InvalidRequestError(f"Unsupported resource type {resource_type}.")


def _topic_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> Iterable[Entry]:
    effective = LogConfig.from_broker(config).with_overrides(overrides)
    for topic_config in TOPIC_CONFIGS.values():
        synonyms = list(_topic_synonyms(config, topic_config, overrides))
        yield _entry(
            topic_config.name, topic_config.key, topic_config.text(effective), synonyms, read_only=False
        )


def _topic_synonyms(
    config: BrokerConfig, topic_config: TopicConfig, overrides: Mapping[str, str]
) -> Iterable[Entry]:
    """Where the value could come from, most specific first."""
    if topic_config.name in overrides:
        yield _synonym(topic_config.name, overrides[topic_config.name], DYNAMIC_TOPIC)
    for name in topic_config.key.synonyms:
        yield from _broker_synonyms(config, name)


def _broker_synonyms(config: BrokerConfig, name: str) -> Iterable[Entry]:
    if name in config.properties:
        yield _synonym(name, text_of(config.value(name)), STATIC_BROKER)
    default = default_of_broker(name)
    if default is not None:
        yield _synonym(name, text_of(default), DEFAULT)


def _broker_entries(config: BrokerConfig) -> Iterable[Entry]:
    for name, (_, key) in BROKER_KEYS.items():
        synonyms = list(_broker_synonyms(config, name))
        yield _entry(name, key, text_of(config.value(name)), synonyms, read_only=True)


def _entry(name: str, key: Key, value: str | None, synonyms: list[Entry], *, read_only: bool) -> Entry:
    source = synonyms[0]["source"] if synonyms else DEFAULT
    return {
        "name": name,
        "value": value,
        "read_only": read_only,
        "is_default": source == DEFAULT,
        "config_source": source,
        "is_sensitive": False,
        "synonyms": synonyms,
        "config_type": TYPE_CODES[key.type],
        "documentation": key.doc,
    }


def _synonym(name: str, value: str | None, source: int) -> Entry:
    return {"name": name, "value": value, "source": source}


def _trim(entry: Entry, header: RequestHeader, request: Mapping[str, Any]) -> Entry:
    """Leave out what this version has not and what was not asked for."""
    if header.version > 0:
        del entry["is_default"]
    if not request["include_synonyms"]:
        entry["synonyms"] = []
    if not request["include_documentation"]:
        entry["documentation"] = None
    return entry
