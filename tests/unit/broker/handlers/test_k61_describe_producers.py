"""DescribeProducers: an answer lists a partition as often as it is asked for, up to a bound."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from calls import call_in

from headrace.broker.handlers import k61_describe_producers
from headrace.broker.handlers.replies import CloseConnectionError


def told(*indexes: int, producers: int) -> list[dict[str, Any]]:
    remembered = SimpleNamespace(
        epoch=0, batches=[], last_timestamp_ms=5, coordinator_epoch=-1, transaction_first_offset=-1
    )
    log = SimpleNamespace(producers=dict.fromkeys(range(producers), remembered))
    broker: Any = SimpleNamespace(
        authorizer=None,
        metadata=SimpleNamespace(topics=lambda name: {}),
        partitions=SimpleNamespace(replica=lambda topic, index: SimpleNamespace(log=log)),
    )
    request = {"topics": [{"name": "t", "partition_indexes": list(indexes)}]}
    return list(k61_describe_producers.handle(broker, call_in(0), request).elements)  # type: ignore[arg-type]


def test_a_partition_is_told_as_often_as_it_is_named() -> None:
    (topic,) = told(0, 0, 1, producers=2)
    assert [p["partition_index"] for p in topic["partitions"]] == [0, 0, 1]
    assert [len(p["active_producers"]) for p in topic["partitions"]] == [2, 2, 2]


def test_who_asks_for_too_many_producers_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(k61_describe_producers, "TOLD_COUNT_MAX", 9)
    assert len(told(0, 0, 0, producers=2)) == 1
    with pytest.raises(CloseConnectionError, match="ask for less at once"):
        told(0, 0, 0, 0, producers=2)
