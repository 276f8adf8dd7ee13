#!/usr/bin/python
"""Looks for topics that have too few replicas for a higher min.insync.replicas of their brokers, and changes nothing.

It runs with the release's own Python and asks one broker, which still runs with the value of before. A topic whose
min.insync.replicas is its own, or that has too few replicas for the value of before already, is not named.
"""

from __future__ import annotations

from contextlib import closing

from ansible.module_utils.basic import AnsibleModule

from headrace.broker.client.blocking_cluster import BlockingCluster
from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.client.security import ClientSecurity
from headrace.broker.client.settings_file import client_settings
from headrace.broker.wire.api import k03_metadata, k32_describe_configs

DOCUMENTATION = r"""
module: headrace_replicas
short_description: Refuse a min.insync.replicas that topics have too few replicas for
options:
  address: {description: "The broker to ask, as host:port.", type: str, required: true}
  command_config:
    description: A file of the host's that says how brokers are spoken to, with the names of Kafka's clients.
    type: str
    default: ""
  min_insync_replicas: {description: The value that brokers shall have., type: int, required: true}
author: The headrace contributors
"""

EXAMPLES = r"""
- name: Look for topics with too few replicas
  headrace_replicas:
    address: 127.0.1.1:9092
    min_insync_replicas: 2
"""

RETURN = r"""
topics:
  description: The topics that have enough replicas now, and would have too few.
  type: list
  returned: success
"""

METADATA_VERSION = 12
DESCRIBE_VERSION = 4
CLIENT_ID = "headrace-roll-out"
TIMEOUT_S = 15
TOPIC_RESOURCE = 2
KEY = "min.insync.replicas"
# Values of a broker's file, and those that no one set: a change of the file changes these alone.
STATIC_SOURCES = frozenset({4, 5})
NAMED_MAX = 5


def replica_counts(cluster: BlockingCluster) -> dict[str, int]:
    """By topic, the replicas of the partition that has the fewest."""
    answer = cluster.any().ask(
        k03_metadata.API, METADATA_VERSION, {"topics": None, "allow_auto_topic_creation": False}
    )
    return {
        topic["name"]: min(len(partition["replica_nodes"]) for partition in topic["partitions"])
        for topic in answer["topics"]
        if topic["partitions"]
    }


def inherited(cluster: BlockingCluster, names: list[str]) -> dict[str, int]:
    """The min.insync.replicas of the topics that follow the brokers' files."""
    resources = [
        {"resource_type": TOPIC_RESOURCE, "resource_name": name, "configuration_keys": [KEY]}
        for name in names
    ]
    request = {"resources": resources, "include_synonyms": False, "include_documentation": False}
    answer = cluster.any().ask(k32_describe_configs.API, DESCRIBE_VERSION, request)
    return {
        result["resource_name"]: int(config["value"])
        for result in answer["results"]
        for config in result["configs"]
        if config["config_source"] in STATIC_SOURCES
    }


def too_small(cluster: BlockingCluster, wanted: int) -> list[str]:
    counts = {name: count for name, count in replica_counts(cluster).items() if count <= wanted}
    found = inherited(cluster, sorted(counts)) if counts else {}
    return [name for name, value in found.items() if value < wanted and value <= counts[name]]


def sentence(topics: list[str], wanted: int) -> str:
    more = f" and {len(topics) - NAMED_MAX} more" if len(topics) > NAMED_MAX else ""
    named = ", ".join(topics[:NAMED_MAX]) + more
    return (
        f"With {KEY} {wanted} these topics have too few replicas to go on taking acks=all while a broker is away: {named}. "
        f"Keep the value of before in broker_properties ({KEY}), roll out, give them {wanted + 1} replicas "
        "(headrace topics reassign), and take the line out again."
    )


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "address": {"type": "str", "required": True},
            "command_config": {"type": "str", "default": ""},
            "min_insync_replicas": {"type": "int", "required": True},
        },
        supports_check_mode=True,
    )
    wanted = module.params["min_insync_replicas"]
    try:
        security = ClientSecurity.of(client_settings(module.params["command_config"] or None))
        addresses = Bootstrap(module.params["address"], security).addresses
        with closing(BlockingCluster(addresses, CLIENT_ID, TIMEOUT_S, security)) as cluster:
            topics = too_small(cluster, wanted)
    except (OSError, ValueError) as error:
        module.warn(f"Nobody knows which topics have too few replicas for {KEY} {wanted}: {error}.")
        module.exit_json(changed=False, topics=[])
    if topics:
        module.fail_json(msg=sentence(topics, wanted), topics=topics)
    module.exit_json(changed=False, topics=[])


if __name__ == "__main__":
    main()
