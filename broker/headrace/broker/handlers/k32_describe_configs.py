"""DescribeConfigs (key 32), versions 0-4: topics, this broker, its loggers, and what is set for all brokers (the empty name).

Deviations: client metrics are refused with INVALID_REQUEST; keys that have no effect on this broker are not listed. Of a
topic that a mirror has to do with configurations whose names begin with `headrace.mirror.` are told, and of a broker its
release as `headrace.version`, which Kafka has not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import version
from itertools import dropwhile
from typing import Any

from headrace.broker.auth.operations import Operation
from headrace.broker.config.broker import BROKER_KEYS, BrokerConfig, default_of_broker, listener_key
from headrace.broker.config.copies import OWN_TOPIC_CONFIGS
from headrace.broker.config.dynamic import DYNAMIC_KEYS, QUOTA_KEYS, key_of, synonyms_of
from headrace.broker.config.inert import INERT_TOPIC_CONFIGS
from headrace.broker.config.keys import Key, text_of
from headrace.broker.config.listeners import base_name
from headrace.broker.config.topics import (
    STORED_TOPIC_CONFIGS,
    TOPIC_ALIASES,
    TOPIC_CONFIGS,
    LogConfig,
    known_overrides,
)
from headrace.broker.errors import InvalidRequestError, KafkaError, UnknownTopicOrPartitionError
from headrace.broker.handlers import broker_loggers
from headrace.broker.handlers.access import Access, access
from headrace.broker.handlers.altered_configs import (
    BROKER,
    BROKER_LOGGER,
    TOPIC,
    check_broker,
    config_refusal,
)
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.handlers.slices import Listed
from headrace.broker.replication.topic_requests import check_name
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k32_describe_configs
from headrace.broker.zk.paths import DEFAULT_ENTITY

API = k32_describe_configs.API
VERSIONS = (0, 4)

CLIENT_METRICS = 16
RESOURCE_TYPES = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS)
RELEASE_NAME = "headrace.version"
RELEASE = Key(type="STRING", doc="The release of headrace that the broker runs.")
UNKNOWN_TYPE = InvalidRequestError(
    "The request names a resource of an unknown type: only topics, brokers and their loggers are described."
)
DYNAMIC_TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT_BROKER, STATIC_BROKER, DEFAULT = 1, 2, 3, 4, 5
TYPE_CODES = {"BOOLEAN": 1, "STRING": 2, "INT": 3, "LONG": 5, "DOUBLE": 6, "LIST": 7, "PASSWORD": 9}

DEFAULT_TEXTS = {
    name: text
    for name in BROKER_KEYS
    if name not in QUOTA_KEYS and (text := text_of(default_of_broker(name))) is not None
}

Entry = dict[str, Any]
Overrides = Mapping[str, Mapping[str, str]]
Levels = tuple[tuple[int, Mapping[str, str]], ...]


def handle(broker: Services, call: Call, request: dict[str, Any]) -> Listed:
    resources = request["resources"]
    if any(r["resource_type"] not in RESOURCE_TYPES for r in resources):
        return Listed("results", (_refused(r, UNKNOWN_TYPE) for r in resources))
    rights = access(broker, call)
    return Listed("results", (_described(broker, call, r, request, rights) for r in resources))


def _described(
    broker: Services,
    call: Call,
    resource: Mapping[str, Any],
    request: Mapping[str, Any],
    rights: Access | None,
) -> Entry | Deferred[Entry]:
    name = resource["resource_name"]
    if rights:
        refusal = config_refusal(rights, resource, Operation.DESCRIBE_CONFIGS)
        if refusal is not None:
            return _refused(resource, refusal)
    if resource["resource_type"] != TOPIC or broker.metadata.topics(name) is None:
        return _describe(broker, call, resource, request, {})
    stored = broker.later("describe-configs", broker.configurations.stored_of_topics([name]))
    return stored.map(lambda overrides: _describe(broker, call, resource, request, overrides))


def _describe(
    broker: Services,
    call: Call,
    resource: Mapping[str, Any],
    request: Mapping[str, Any],
    overrides: Overrides,
) -> Entry:
    try:
        entries = _entries(broker, resource["resource_type"], resource["resource_name"], overrides)
    except KafkaError as error:
        return _refused(resource, error)
    wanted = resource["configuration_keys"]
    configs = [_trim(entry, call, request) for entry in entries if not wanted or entry["name"] in wanted]
    return {**_refused(resource, None), "configs": configs}


def _refused(resource: Mapping[str, Any], error: KafkaError | None) -> Entry:
    """The result of a resource without configurations."""
    return {
        "error_code": 0 if error is None else error.code,
        "error_message": None if error is None else str(error),
        "resource_type": resource["resource_type"],
        "resource_name": resource["resource_name"],
        "configs": [],
    }


def _entries(broker: Services, resource_type: int, name: str, overrides: Overrides) -> Iterable[Entry]:
    if resource_type == TOPIC:
        check_name(name)
        if name not in overrides:
            raise UnknownTopicOrPartitionError(f"The topic {name} does not exist.")
        return topic_entries(broker, overrides[name])
    if resource_type == BROKER:
        check_broker(broker, name)
        levels = _levels(broker)
        return _broker_entries(broker.config, levels) if name else _default_entries(levels)
    if resource_type == BROKER_LOGGER:
        return broker_loggers.described(broker, name)
    raise InvalidRequestError(f"Unsupported resource type {resource_type}.")


def _levels(broker: Services) -> Levels:
    """Where a broker property may come from, most specific first: (source, property → its text)."""
    return (
        (DYNAMIC_BROKER, broker.configurations.of_broker(str(broker.broker_id))),
        (DYNAMIC_DEFAULT_BROKER, broker.configurations.of_broker(DEFAULT_ENTITY)),
        (STATIC_BROKER, broker.configurations.static_properties),
        (DEFAULT, DEFAULT_TEXTS),
    )


def topic_entries(broker: Services, overrides: Mapping[str, str]) -> Iterable[Entry]:
    """What a topic with these overrides goes by, and where each value comes from."""
    levels = _levels(broker)
    # An older name of other keys sets those, and is told under its own name only.
    own = {name: text for name, text in known_overrides(overrides).items() if name not in TOPIC_ALIASES}
    effective = LogConfig.from_broker(broker.config).with_overrides(own)
    for topic_config in TOPIC_CONFIGS.values():
        name = topic_config.name
        synonyms = _broker_synonyms(levels, topic_config.key.synonyms[0])
        if name in overrides:
            synonyms.insert(0, _synonym(name, topic_config.text(effective), DYNAMIC_TOPIC))
        yield _entry(name, topic_config.key, topic_config.text(effective), synonyms, read_only=False)
    for name in INERT_TOPIC_CONFIGS:
        yield _stored_entry(levels, name, overrides)
    for name in OWN_TOPIC_CONFIGS.keys() & overrides.keys():
        yield _stored_entry(levels, name, overrides)


def _stored_entry(levels: Levels, name: str, overrides: Mapping[str, str]) -> Entry:
    stored = STORED_TOPIC_CONFIGS[name]
    synonyms: list[Entry] = []
    for broker_name in stored.key.synonyms:
        synonyms = [*_broker_synonyms(levels, broker_name), _synonym(broker_name, stored.default, DEFAULT)]
    if name in overrides:
        synonyms.insert(0, _synonym(name, overrides[name], DYNAMIC_TOPIC))
    value = synonyms[0]["value"] if synonyms else stored.default
    return _entry(name, stored.key, value, synonyms, read_only=False)


def _broker_synonyms(levels: Levels, name: str) -> list[Entry]:
    """All that is said of a property; what stands before the first mention of its own name is left out, as in Kafka."""
    found = [
        _synonym(synonym, texts[synonym], source)
        for source, texts in levels
        for synonym in (*synonyms_of(name), *_general(name))
        if synonym in texts
    ]
    return list(dropwhile(lambda synonym: synonym["name"] != name, found))


def _general(name: str) -> tuple[str, ...]:
    """What stands behind a property of one listener: that of all of them."""
    base = base_name(name)
    return () if base == name else (base,)


def _broker_entries(config: BrokerConfig, levels: Levels) -> Iterable[Entry]:
    for name, (_, key) in BROKER_KEYS.items():
        synonyms = _broker_synonyms(levels, name)
        if name in QUOTA_KEYS and not synonyms:
            continue
        is_read_only = name not in DYNAMIC_KEYS - QUOTA_KEYS
        yield _entry(name, key, text_of(config.value(name)), synonyms, read_only=is_read_only)
    for name in sorted({name for _, texts in levels for name in texts}):
        base = base_name(name)
        if base != name and base in BROKER_KEYS:
            synonyms = _broker_synonyms(levels, name)
            is_read_only = listener_key(name) is None
            yield _entry(name, BROKER_KEYS[base][1], synonyms[0]["value"], synonyms, read_only=is_read_only)
    yield _entry(RELEASE_NAME, RELEASE, version("headrace"), [], read_only=True)


def _default_entries(levels: Levels) -> Iterable[Entry]:
    for name, text in levels[1][1].items():
        synonyms = _broker_synonyms(levels[1:2], name)
        key = key_of(name)
        assert key is not None, "what is not dynamic is not in effect"
        yield _entry(name, key, text, synonyms, read_only=name in QUOTA_KEYS)


def _entry(name: str, key: Key, value: str | None, synonyms: list[Entry], *, read_only: bool) -> Entry:
    source = synonyms[0]["source"] if synonyms else DEFAULT
    is_secret = key.type == "PASSWORD"
    if is_secret:
        synonyms = [synonym | {"value": None} for synonym in synonyms]
    return {
        "name": name,
        "value": None if is_secret else value,
        "read_only": read_only,
        "is_default": False,
        "config_source": source,
        "is_sensitive": is_secret,
        "synonyms": synonyms,
        "config_type": TYPE_CODES[key.type],
        "documentation": key.doc,
    }


def _synonym(name: str, value: str | None, source: int) -> Entry:
    return {"name": name, "value": value, "source": source}


def _trim(entry: Entry, call: Call, request: Mapping[str, Any]) -> Entry:
    """Leave out what this version has not and what was not asked for."""
    if call.header.version > 0:
        del entry["is_default"]
    if not request["include_synonyms"]:
        entry["synonyms"] = []
    if not request["include_documentation"]:
        entry["documentation"] = None
    return entry
