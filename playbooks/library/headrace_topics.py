#!/usr/bin/python
"""Creates the topics of one cluster that do not exist yet, all in one request, and changes none that does; ends when all are led.

It runs with the release's own Python and asks with headrace's own client, which every release has. Invariant: a topic whose
partition count differs from the inventory's is reported and left as it is, since keys would move between partitions. Since it
knows the cluster's members, it also warns of brokers that the inventory does not have.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.headrace_health import wait_until

from headrace.broker.client.blocking_cluster import BlockingCluster
from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.client.security import ClientSecurity
from headrace.broker.client.settings_file import client_settings
from headrace.broker.errors import ErrorCode, error_of
from headrace.broker.wire.api import k03_metadata, k19_create_topics
from headrace.broker.wire.client.view import addresses_of
from headrace.broker.wire.fields import MalformedError

DOCUMENTATION = r"""
module: headrace_topics
short_description: Create the topics of one cluster
options:
  bootstrap_servers: {description: Brokers to start from., type: str, required: true}
  command_config:
    description: A file of the host's that says how brokers are spoken to, with the names of Kafka's clients.
    type: str
    default: ""
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
  data_dir: {description: The data folder of one of the brokers., type: path, required: true}
  broker_ids: {description: The broker_id of each broker that the inventory has., type: list, elements: int, required: true}
  timeout_s: {description: How long the cluster may take., type: int, default: 60}
author: The headrace contributors
"""

EXAMPLES = r"""
- name: Create the topics
  headrace_topics:
    bootstrap_servers: 127.0.1.1:9092
    data_dir: /var/lib/headrace/headrace-broker-1
    broker_ids: [1, 2]
    topics:
      - {name: pageviews, partitions: 4}
"""

RETURN = r"""
created:
  description: The topics that were, or would be, created.
  type: list
  returned: always
strangers:
  description: A sentence for each broker of the cluster that the inventory does not have.
  type: list
  returned: always
"""


METADATA_VERSION = 12
CREATE_VERSION = 7
CLIENT_ID = "headrace-roll-out"
# How much longer than the broker itself the roll-out waits for its answer.
PATIENCE_S = 5
# In check mode a cluster that is not there is nothing to wait for.
CHECK_TIMEOUT_S = 5
ADVICE = {
    ErrorCode.INVALID_REPLICATION_FACTOR: (
        "; bring back the brokers that are away (playbooks/restore.yml, where they are drained), then roll out again"
    )
}


class TopicsError(Exception):
    """The cluster does not match the inventory or refuses; the message is a sentence."""


def metadata(cluster: BlockingCluster) -> dict[str, Any]:
    """What any broker knows of all topics and brokers; raises OSError when none answers."""
    request = {"topics": None, "allow_auto_topic_creation": False}
    answer: dict[str, Any] = cluster.any().ask(k03_metadata.API, METADATA_VERSION, request)
    return answer


def partition_leaders(found: dict[str, Any]) -> dict[str, list[int]]:
    """The leader of each partition of each topic, -1 where nobody leads."""
    return {topic["name"]: [each["leader_id"] for each in topic["partitions"]] for topic in found["topics"]}


def strangers(found: dict[str, Any], broker_ids: list[int]) -> list[str]:
    """One sentence for each registered broker that the inventory does not have: only a person knows what it still holds."""
    return [
        f"Broker {number} at {host}:{port} is in this cluster and no host of the inventory has it: "
        "move its partitions away and stop it, or put its host back into the inventory."
        for number, (host, port) in sorted(addresses_of(found).items())
        if number not in broker_ids
    ]


def missing_topics(wanted: list[dict[str, Any]], leaders: dict[str, list[int]]) -> list[dict[str, Any]]:
    """The wanted topics that are not there; raises TopicsError for one that is there with another partition count."""
    for topic in wanted:
        count = len(leaders.get(topic["name"], range(topic["partitions"])))
        if count != topic["partitions"]:
            raise TopicsError(
                f"Topic {topic['name']} has {count} partitions, the inventory says {topic['partitions']}: "
                "the roll-out does not change the partitions of a topic that exists."
            )
    return [topic for topic in wanted if topic["name"] not in leaders]


def leaderless(wanted: list[dict[str, Any]], leaders: dict[str, list[int]]) -> str | None:
    """Half a sentence about a topic with a partition that nobody leads, or None when all have a leader."""
    for topic in wanted:
        found = leaders.get(topic["name"], [])
        if len(found) < topic["partitions"] or min(found) < 0:
            return f"topic {topic['name']} has partitions without a leader ({found})"
    return None


def creation(topics: list[dict[str, Any]], timeout_s: int) -> dict[str, Any]:
    wanted = [
        {
            "name": topic["name"],
            "num_partitions": topic["partitions"],
            "replication_factor": topic["replication_factor"],
            "assignments": [],
            "configs": [{"name": key, "value": str(value)} for key, value in topic["config"].items()],
        }
        for topic in topics
    ]
    return {"topics": wanted, "timeout_ms": timeout_s * 1000, "validate_only": False}


def create(cluster: BlockingCluster, topics: list[dict[str, Any]], timeout_s: int) -> str | None:
    """Ask the controller once for the topics; half a sentence when it is another one by now, or not there.

    Raises:
        TopicsError: a topic is refused; one that somebody else made meanwhile is not.
        OSError: nobody answers.
    """
    found = metadata(cluster)
    address = addresses_of(found).get(found["controller_id"])
    if address is None:
        return "the cluster has no controller"
    answer = cluster.to(address).ask(k19_create_topics.API, CREATE_VERSION, creation(topics, timeout_s))
    for result in answer["topics"]:
        code = result["error_code"]
        if code == ErrorCode.NOT_CONTROLLER:
            return f"the broker at {address[0]}:{address[1]} is the controller no more"
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            reason = str(error_of(code, result["error_message"] or "")).rstrip(".")
            raise TopicsError(f"Topic {result['name']} was not created: {reason}{ADVICE.get(code, '')}.")
    return None


def patiently(cluster: BlockingCluster, ask: Callable[[], str | None], timeout_s: int) -> None:
    """Ask until there is no complaint; whoever does not answer any more is passed over the next time."""

    def attempt() -> str | None:
        try:
            return ask()
        except (OSError, MalformedError) as error:
            cluster.close()
            return str(error)

    wrong = wait_until(attempt, timeout_s)
    if wrong is not None:
        raise TopicsError(f"After {timeout_s} s {wrong}: look into the brokers' logs.")


def secured(module: AnsibleModule) -> Bootstrap:
    """Whom to ask, and how; in check mode its file may not be there yet, and nobody lets it in without. Raises TopicsError."""
    path = module.params["command_config"]
    if module.check_mode and not os.path.exists(path):
        path = None
    try:
        return Bootstrap(module.params["bootstrap_servers"], ClientSecurity.of(client_settings(path or None)))
    except ValueError as error:
        raise TopicsError(f"Brokers cannot be asked: {error}.") from error


def silent_check(module: AnsibleModule) -> list[str]:
    """The topics that would be created where no broker answers: all of a new cluster; of one that is stopped nobody knows."""
    if not os.path.exists(os.path.join(module.params["data_dir"], "meta.properties")):
        return [topic["name"] for topic in module.params["topics"]]
    module.warn(
        f"No broker of {module.params['bootstrap_servers']} answers, so that nobody knows which topics are there: "
        "those that are missing are created once brokers serve."
    )
    return []


def run(module: AnsibleModule, cluster: BlockingCluster, timeout_s: int) -> tuple[list[str], list[str]]:
    """The names of the topics that were, or would be, created, and what is to be said of brokers that nobody knows."""
    wanted = module.params["topics"]
    try:
        found = metadata(cluster)
    except OSError as error:
        if module.check_mode:
            return silent_check(module), []
        raise TopicsError(f"No broker of {module.params['bootstrap_servers']} answers: {error}.") from error
    unknown = strangers(found, module.params["broker_ids"])
    for sentence in unknown:
        module.warn(sentence)
    topics = missing_topics(wanted, partition_leaders(found))
    if not module.check_mode:
        if topics:
            patiently(cluster, lambda: create(cluster, topics, timeout_s), timeout_s)
        patiently(cluster, lambda: leaderless(wanted, partition_leaders(metadata(cluster))), timeout_s)
    return [topic["name"] for topic in topics], unknown


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
            "command_config": {"type": "str", "default": ""},
            "data_dir": {"type": "path", "required": True},
            "topics": {"type": "list", "elements": "dict", "required": True, "options": topic_options},
            "broker_ids": {"type": "list", "elements": "int", "required": True},
            "timeout_s": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    timeout_s = CHECK_TIMEOUT_S if module.check_mode else module.params["timeout_s"]
    try:
        asked = secured(module)
        made = BlockingCluster(asked.addresses, CLIENT_ID, timeout_s + PATIENCE_S, asked.security)
        with closing(made) as cluster:
            created, unknown = run(module, cluster, timeout_s)
    except TopicsError as error:
        module.fail_json(msg=str(error))
    diff = [
        {
            "before": "",
            "after": f"{topic['partitions']} partitions\n",
            "before_header": f"topic {topic['name']}",
            "after_header": f"topic {topic['name']}",
        }
        for topic in module.params["topics"]
        if topic["name"] in created
    ]
    module.exit_json(changed=bool(created), created=created, strangers=unknown, diff=diff)


if __name__ == "__main__":
    main()
