"""What a producer is opened with: checked before a registry or a broker is asked, each refused in one sentence. Pure."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any, Final

from headrace.events.avro_schemas import MONITORING_TOPIC
from headrace.producer.checks import EventError, checked_text
from headrace.producer.stream import check_header
from headrace.producer.values import shown

DELIVERY_KEY: Final = "delivery.timeout.ms"
_DELIVERY_ALIAS: Final = "message.timeout.ms"
_NOT_HERE: Final[Mapping[str, str]] = {
    "transactional.id": "this producer begins no transactions, leave it out",
    "bootstrap.servers": "name the brokers by `bootstrap`",
}

_TOPIC: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
_DATACENTER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")


def checked_datacenter(name: object) -> str:
    """Return it; raises ValueError for one that no source of a mirror can have."""
    text = checked_text("datacenter", name)
    if not _DATACENTER.fullmatch(text):
        raise ValueError(
            f"datacenter is {shown(name)}: give the name that the pipeline has for yours, letters, digits and -"
        )
    return text


def checked_window(size_ms: object) -> int:
    """Return the size; raises ValueError for one that no window can have."""
    if isinstance(size_ms, bool) or not isinstance(size_ms, int) or size_ms <= 0:
        raise ValueError(
            f"window_size_ms is {shown(size_ms)}: give whole milliseconds above 0, such as 10_000"
        )
    return size_ms


def checked_schemas(schemas: object) -> dict[str, str]:
    """Return schemas by topic; raises EventError for one without an envelope, ValueError for what are none at all."""
    if not isinstance(schemas, Mapping) or not schemas:
        raise ValueError(
            f"schemas are {shown(schemas)}: give a dict of at least one topic and its Avro schema"
        )
    for topic, text in schemas.items():
        if not isinstance(topic, str) or not _TOPIC.fullmatch(topic):
            raise ValueError(
                f"schemas name the topic {shown(topic)}: a topic's name has 1 to 249 letters, digits, ., _ and -"
            )
        if topic == MONITORING_TOPIC:
            raise ValueError(
                f"schemas name the topic {topic}, which is the producer's own: choose another one"
            )
        _check_schema(topic, text)
    return dict(schemas)


def _check_schema(topic: str, text: object) -> None:
    if not isinstance(text, str):
        raise ValueError(
            f"the schema of topic {topic} is a {type(text).__name__}: give its JSON as text, such as "
            "Path(...).read_text() or json.dumps(...)"
        )
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise EventError(f"the schema of topic {topic} is no JSON: {error}") from error
    check_header(parsed)


def checked_client_config(config: object) -> dict[str, Any]:
    """Return librdkafka's settings, the time-out of deliveries under one name."""
    if config is None:
        return {}
    if not isinstance(config, Mapping):
        raise ValueError(f"client_config is {shown(config)}: give a dict of librdkafka's settings")
    for name, advice in _NOT_HERE.items():
        if name in config:
            raise ValueError(f"client_config has {name}: {advice}")
    for name, value in config.items():
        _check_client_value(name, value)
    found = dict(config)
    if _DELIVERY_ALIAS in found:
        found[DELIVERY_KEY] = found.pop(_DELIVERY_ALIAS)
    return found


def _check_client_value(name: object, value: object) -> None:
    """No value is shown: it may be a secret. None has librdkafka go by its default."""
    if not isinstance(name, str):
        raise ValueError(f"client_config names {shown(name)}: names of librdkafka's settings are text")
    if name.endswith("_cb") or name == "on_delivery":
        fits, wanted = callable(value), "a function"
    elif name == "logger":
        fits, wanted = callable(getattr(value, "log", None)), "a logging.Logger"
    elif name == "default.topic.config":
        fits, wanted = isinstance(value, Mapping), "a dict"
    else:
        fits, wanted = value is None or isinstance(value, str | int | float), "text, a number, True or False"
    if not fits:
        raise ValueError(f"client_config has {name} as {type(value).__name__}: give {wanted}")


def checked_security(security: object) -> Mapping[str, str] | str | os.PathLike[str] | None:
    """Return it; raises ValueError for what is neither settings nor the path of a file. No value is shown."""
    if security is None or isinstance(security, str | os.PathLike):
        return security
    if not isinstance(security, Mapping):
        raise ValueError(
            f"security is of the type {type(security).__name__}: give a dict of Kafka's client settings, or the path "
            "of a properties file as text or as a Path"
        )
    for name, value in security.items():
        if not isinstance(name, str):
            raise ValueError(f"security names {shown(name)}: names of Kafka's client settings are text")
        if not isinstance(value, str):
            raise ValueError(f"security has {name} as {type(value).__name__}: give text")
    return security
