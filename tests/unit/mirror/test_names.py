"""What copies are called, and what they are copies of."""

from __future__ import annotations

from headrace.broker.config.copies import MIRROR_REMOTE
from headrace.mirror.names import CopyNames, named_of


def test_a_copy_is_called_after_its_source_unless_a_topic_says_that_it_is_that_copy() -> None:
    names = CopyNames({"orders": "offline.dc-east.orders"})
    assert names.topic_of("offline.dc-east.orders") == "orders"
    assert (names.source_of("orders"), names.original_of("orders")) == ("offline", "dc-east.orders")
    assert names.topic_of("dc-west.payments") == "dc-west.payments"
    assert (names.source_of("dc-west.payments"), names.original_of("dc-west.payments")) == (
        "dc-west",
        "payments",
    )
    assert [names.is_named(remote) for remote in ("offline.dc-east.orders", "dc-west.payments")] == [
        True,
        False,
    ]
    assert (names.source_of("own"), names.original_of("own")) == ("own", "")


def test_a_name_is_one_topics_at_most() -> None:
    names = CopyNames({"b": "dc-east.t", "a": "dc-east.t"})
    assert names.topic_of("dc-east.t") == "a"
    assert names.topic_of(names.remote_of("b")) != "b"


def test_names_are_configurations() -> None:
    configs = {"a": {MIRROR_REMOTE: "dc-east.t"}, "b": {MIRROR_REMOTE: ""}, "c": {"retention.ms": "1"}}
    assert named_of(configs) == CopyNames({"a": "dc-east.t"})
    assert named_of(configs) != CopyNames()
