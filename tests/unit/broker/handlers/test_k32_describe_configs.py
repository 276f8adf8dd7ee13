"""What DescribeConfigs says of keys that Apache Kafka knows by their dynamic values alone (observed in 3.9.2)."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from calls import call_in

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.dynamic import with_levels
from headrace.broker.errors import InvalidRequestError
from headrace.broker.handlers import k32_describe_configs
from headrace.broker.handlers.altered_configs import check_broker
from headrace.broker.handlers.services import Services

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
OWN, EVERYONE = 2, 3


def described(broker: str, own: Mapping[str, str], everyone: Mapping[str, str]) -> list[Any]:
    """(value, source, synonyms, read-only) of what version 4 says of the rate."""
    static, _ = BrokerConfig.from_properties({})
    levels = {"1": own, "<default>": everyone}
    services = SimpleNamespace(
        authorizer=None,
        broker_id=1,
        config=with_levels(static, everyone, own),
        configurations=SimpleNamespace(of_broker=levels.__getitem__, static_properties={}),
        metadata=SimpleNamespace(topics=lambda name: None),
    )
    resource = {"resource_type": 4, "resource_name": broker, "configuration_keys": [RATE]}
    request = {"resources": [resource], "include_synonyms": True, "include_documentation": False}
    answer = k32_describe_configs.handle(cast("Services", services), call_in(4), request)
    (result,) = cast("list[dict[str, Any]]", list(answer.elements))
    assert result["error_code"] == 0
    return [
        (c["value"], c["config_source"], [(s["value"], s["source"]) for s in c["synonyms"]], c["read_only"])
        for c in result["configs"]
    ]


@pytest.mark.parametrize(
    ("broker", "own", "everyone", "expected"),
    [
        ("1", None, None, []),
        ("", None, None, []),
        ("1", "1000", None, [("1000", OWN, [("1000", OWN)], True)]),
        ("1", "1000", "2000", [("1000", OWN, [("1000", OWN), ("2000", EVERYONE)], True)]),
        ("1", None, "2000", [("2000", EVERYONE, [("2000", EVERYONE)], True)]),
        ("", "1000", "2000", [("2000", EVERYONE, [("2000", EVERYONE)], True)]),
    ],
)
def test_the_rate_of_moves_is_described_where_it_is_set(
    broker: str, own: str | None, everyone: str | None, expected: list[Any]
) -> None:
    levels = [{} if rate is None else {RATE: rate} for rate in (own, everyone)]
    assert described(broker, *levels) == expected


@pytest.mark.parametrize("name", ["2", "-1", "one", "1x", "9" * 5000], ids=lambda name: name[:3])
def test_only_this_broker_tells_of_itself(name: str) -> None:
    with pytest.raises(InvalidRequestError):
        check_broker(cast("Services", SimpleNamespace(broker_id=1)), name)
