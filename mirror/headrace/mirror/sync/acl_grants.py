"""Reading the access control lists of topics in one cluster, and changing those of their copies in another: what
`headrace mirror sync-acls` does once, and brokers again and again. What to change is `acls`' to decide.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.broker.auth.acls import Binding, exactly
from headrace.broker.auth.messages import VERSION, creation, described, filter_message
from headrace.broker.config.copies import MIRROR_CLUSTERS
from headrace.broker.errors import error_of
from headrace.broker.wire.api import k29_describe_acls, k30_create_acls, k31_delete_acls
from headrace.mirror import lineage
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.sync import acls
from headrace.mirror.sync.acls import LISTS_OF_TOPICS, AclMove
from headrace.mirror.told import names_of

ENTRIES_PER_REQUEST_MAX = 500


async def lists(client: ClusterClient) -> list[Binding]:
    """All entries for topics; raises FAILURES and KafkaErrors, of a cluster without an authorizer, too."""
    answer = await client.ask(
        client.brokers[0], k29_describe_acls.API, VERSION, filter_message(LISTS_OF_TOPICS)
    )
    if answer["error_code"]:
        raise error_of(answer["error_code"], answer["error_message"] or "access control lists cannot be read")
    return list(described(answer))


async def moves(here: ClusterClient, there: ClusterClient, source: str) -> list[AclMove]:
    """What to change for each of the source's copies, in order; those that need nothing are among them."""
    names = await names_of(here)
    topics = sorted({topic for topic, _ in here.leaders if names.source_of(topic) == source})
    configs = await here.configs_of(topics, (MIRROR_CLUSTERS,))
    copies = [topic for topic in topics if lineage.clusters_of(configs.get(topic, {}))]
    if not copies:
        return []
    at_source, own = await lists(there), await lists(here)
    return [acls.move(copy, names.original_of(copy), at_source, own) for copy in copies]


async def bring(client: ClusterClient, found: Sequence[AclMove]) -> None:
    """Denials and all that is taken away come before anything is allowed. Raises FAILURES and KafkaErrors."""
    removed = [binding for each in found for binding in each.bindings(each.removed)]
    for some in _portions(removed):
        message = {"filters": [filter_message(exactly(binding)) for binding in some]}
        answer = await client.ask(client.brokers[0], k31_delete_acls.API, VERSION, message)
        for result in answer["filter_results"]:
            for each in (result, *result["matching_acls"]):
                if each["error_code"]:
                    raise error_of(each["error_code"], each["error_message"] or "an entry cannot be removed")
    added = [binding for each in found for binding in each.bindings(each.added)]
    # DENY comes before ALLOW in the order of permissions.
    for some in _portions(sorted(added, key=lambda binding: binding.entry.permission)):
        message = {"creations": [creation(binding) for binding in some]}
        answer = await client.ask(client.brokers[0], k30_create_acls.API, VERSION, message)
        for result in answer["results"]:
            if result["error_code"]:
                raise error_of(result["error_code"], result["error_message"] or "an entry cannot be added")


def _portions(bindings: Sequence[Binding]) -> list[Sequence[Binding]]:
    size = ENTRIES_PER_REQUEST_MAX
    return [bindings[begin : begin + size] for begin in range(0, len(bindings), size)]
