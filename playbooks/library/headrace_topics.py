#!/usr/bin/python
"""Creates the topics of one cluster that do not exist yet, all in one request, and changes none that does; ends when all are led.

It runs with the release's own Python, which has confluent-kafka. Invariant: a topic whose partition count differs from the
inventory's is reported and left as it is, since keys would move between partitions. Since it knows the cluster's members, it also
warns of brokers that the inventory does not have.
"""

from __future__ import annotations

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.headrace_health import wait_until

DOCUMENTATION = r"""
module: headrace_topics
short_description: Create the topics of one cluster
options:
  bootstrap_servers: {description: Brokers to start from., type: str, required: true}
  topics:
    description: The topics that shall exist.
    type: list
    elements: dict
    required: true
    suboptions:
      name: {description: The topic's name., type: str, required: true}
      partitions: {description: How many partitions it has., type: int, required: true}
      replication_factor: {description: "Replicas of each partition; -1: default.replication.factor.", type: int, default: -1}
      config: {description: "Topic configuration, such as cleanup.policy.", type: dict, default: {}}
  broker_ids: {description: The broker_id of each broker that the inventory has., type: list, elements: int, required: true}
  timeout_s: {description: How long the cluster may take., type: int, default: 60}
author: The headrace contributors
"""

EXAMPLES = r"""
- name: Create the topics
  headrace_topics:
    bootstrap_servers: 127.0.1.1:9092
    broker_ids: [1, 2]
    topics:
      - {name: pageviews, partitions: 4}
"""

RETURN = r"""
created:
  description: The topics that were, or would be, created.
  type: list
  returned: always
"""


class TopicsError(Exception):
    """The cluster does not match the inventory or refuses; the message is a sentence."""


def partition_counts(client: Any, timeout_s: int) -> dict[str, int]:
    return {
        name: len(topic.partitions) for name, topic in client.list_topics(timeout=timeout_s).topics.items()
    }


def warn_of_strangers(module: AnsibleModule, client: Any, timeout_s: int) -> None:
    """Name the registered brokers that the inventory does not have, though only a person knows what they still hold."""
    for number, broker in sorted(client.list_topics(timeout=timeout_s).brokers.items()):
        if number not in module.params["broker_ids"]:
            module.warn(
                f"Broker {number} at {broker.host}:{broker.port} is in this cluster and no host of the inventory has it: "
                "move its partitions away and stop it, or put its host back into the inventory."
            )


def leaderless(client: Any, wanted: list[dict[str, Any]], timeout_s: int) -> str | None:
    """Half a sentence about a topic with a partition that nobody leads, or None when all have a leader."""
    found = client.list_topics(timeout=timeout_s).topics
    for topic in wanted:
        partitions = found[topic["name"]].partitions.values() if topic["name"] in found else ()
        leaders = [partition.leader for partition in partitions]
        if len(leaders) < topic["partitions"] or min(leaders) < 0:
            return f"topic {topic['name']} has partitions without a leader ({leaders})"
    return None


def missing_topics(wanted: list[dict[str, Any]], found: dict[str, int]) -> list[dict[str, Any]]:
    """The wanted topics that are not there; raises TopicsError for one that is there with another partition count."""
    for topic in wanted:
        count = found.get(topic["name"], topic["partitions"])
        if count != topic["partitions"]:
            raise TopicsError(
                f"Topic {topic['name']} has {count} partitions, the inventory says {topic['partitions']}: "
                "the roll-out does not change the partitions of a topic that exists."
            )
    return [topic for topic in wanted if topic["name"] not in found]


def create(client: Any, topics: list[dict[str, Any]], timeout_s: int) -> None:
    from confluent_kafka.admin import NewTopic

    requests = [
        NewTopic(
            topic["name"],
            num_partitions=topic["partitions"],
            replication_factor=topic["replication_factor"],
            config={key: str(value) for key, value in topic["config"].items()},
        )
        for topic in topics
    ]
    for name, future in client.create_topics(requests, operation_timeout=timeout_s).items():
        try:
            future.result()
        except Exception as error:
            raise TopicsError(f"Topic {name} was not created: {error}") from error


def run(module: AnsibleModule) -> list[str]:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    arguments = module.params
    timeout_s = 5 if module.check_mode else arguments["timeout_s"]
    client = AdminClient({"bootstrap.servers": arguments["bootstrap_servers"]}, logger=None)
    try:
        found = partition_counts(client, timeout_s)
    except KafkaException as error:
        if module.check_mode:
            return [topic["name"] for topic in arguments["topics"]]
        raise TopicsError(f"No broker of {arguments['bootstrap_servers']} answers: {error}") from error
    warn_of_strangers(module, client, timeout_s)
    topics = missing_topics(arguments["topics"], found)
    if not module.check_mode:
        if topics:
            create(client, topics, timeout_s)
        wrong = wait_until(lambda: leaderless(client, arguments["topics"], timeout_s), timeout_s)
        if wrong is not None:
            raise TopicsError(f"After {timeout_s} s {wrong}: look into the brokers' logs.")
    return [topic["name"] for topic in topics]


def main() -> None:
    topic_options = {
        "name": {"type": "str", "required": True},
        "partitions": {"type": "int", "required": True},
        "replication_factor": {"type": "int", "default": -1},
        "config": {"type": "dict", "default": {}},
    }
    module = AnsibleModule(
        argument_spec={
            "bootstrap_servers": {"type": "str", "required": True},
            "topics": {"type": "list", "elements": "dict", "required": True, "options": topic_options},
            "broker_ids": {"type": "list", "elements": "int", "required": True},
            "timeout_s": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    try:
        created = run(module)
    except TopicsError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=bool(created), created=created)


if __name__ == "__main__":
    main()
