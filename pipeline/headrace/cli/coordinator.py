"""Waits until a group's coordinator serves, before the admin client asks it anything.

The admin client is not made to wait for one: it asks three times within half a second where the coordinator is, then does
nothing until its request's time-out, and its destruction may hang (librdkafka, rdkafka_coord.c). A coordinator that
moves, or whose `__consumer_offsets` is being created, takes longer than that. A consumer goes on asking.
"""

from __future__ import annotations

import click
from confluent_kafka import Consumer, KafkaException, TopicPartition

from headrace.broker.client.bootstrap import Bootstrap
from headrace.cli.asking import client_settings, reason_of
from headrace.cli.shared import TIMEOUT_SECONDS

ANY_PARTITION = TopicPartition("__consumer_offsets", 0)


def await_coordinator(bootstrap: Bootstrap, group: str, seconds_max: float = TIMEOUT_SECONDS) -> None:
    """Return once the coordinator of `group` answers; nothing is changed by the question.

    Raises:
        ClickException: it did not within `seconds_max`.
    """
    consumer = Consumer(
        {**client_settings(bootstrap), "group.id": group, "enable.auto.commit": False, "log_level": 0}
    )
    try:
        consumer.committed([ANY_PARTITION], timeout=seconds_max)
    except KafkaException as error:
        raise click.ClickException(f"find the coordinator of group {group}: {reason_of(error)}.") from error
    finally:
        consumer.close()
