"""What the gate does where clients have quotas (KIP-13, KIP-124, KIP-219): who used too much waits.

The answer leaves at once, says for how long, and nothing more of that client is served meanwhile. Fetch counts itself, since
an answer above the quota is empty. Only here while somebody has a limit. Requests between brokers are not counted.

The time of a request is that of handling it on the loop, of receiving it and of sending what it is answered; what another request
did to complete its answer is not counted.
"""

from __future__ import annotations

from headrace.broker.handlers.call import Call
from headrace.broker.handlers.replies import Parts, Reply
from headrace.broker.handlers.services import Services
from headrace.broker.quotas.buckets import Rate
from headrace.broker.quotas.mutations import Allowance
from headrace.broker.quotas.usage import Share
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire import frames
from headrace.broker.wire.schema import Api

PRODUCE_KEY, FETCH_KEY = 0, 1
EXEMPT = frozenset((FETCH_KEY, 4, 5, 6, 7, 17, 27, 36, 56, 58))
"""Requests of brokers, and those before a client is known."""
PERCENT = 100.0
PRODUCE, FETCH, REQUEST, MUTATION = "produce", "fetch", "request", "controller_mutation"


def throttled(broker: Services, api: Api, call: Call, size: int, reply: Reply) -> Reply:
    """The reply to a request of that size, once it is counted."""
    key = call.header.key
    if key in EXEMPT:
        return reply
    produce_ms = request_ms = 0
    if key == PRODUCE_KEY:
        usage, client = broker.client_usage.produced, call.client
        now_ms = broker.clock.monotonic_ms()
        produce_ms = usage.record(client.principal.name, call.header.client_id, size, now_ms)
    if reply is not None:
        request_ms = request_throttle_ms(broker, call, call.began_s)
    throttle_ms = mute(broker, call, {PRODUCE: produce_ms, REQUEST: request_ms})
    if throttle_ms == 0 or reply is None:
        return reply
    if isinstance(reply, Deferred):
        return reply.map(lambda parts: _told(api, call, parts, throttle_ms))
    return _told(api, call, reply, throttle_ms)


def fetch_size_max(broker: Services, call: Call, size_max: int) -> int:
    """At most what does not make its client wait, when it has fetched nothing lately: it could never go on otherwise."""
    now_ms = broker.clock.monotonic_ms()
    burst = broker.client_usage.fetched.burst(call.client.principal.name, call.header.client_id, now_ms)
    return size_max if burst is None else int(min(size_max, burst))


def fetch_throttle_ms(broker: Services, call: Call, size: int, began_s: float) -> int:
    """Count an answer of that size; when it is not 0, nothing is to be sent, and the client waits so long."""
    usage, user = broker.client_usage.fetched, call.client.principal.name
    now_ms = broker.clock.monotonic_ms()
    request_ms = request_throttle_ms(broker, call, began_s)
    fetch_ms = usage.record(user, call.header.client_id, size, now_ms)
    throttle_ms = mute(broker, call, {FETCH: fetch_ms, REQUEST: request_ms})
    if throttle_ms:
        usage.record(user, call.header.client_id, -size, now_ms)
    return throttle_ms


def request_throttle_ms(broker: Services, call: Call, began_s: float) -> int:
    """Count the time since then; for how long the client has to wait for what it used."""
    percentage = (broker.now() - began_s) * PERCENT
    now_ms = broker.clock.monotonic_ms()
    usage, client = broker.client_usage.requests, call.client
    client.time_share = usage.share(client.principal.name, call.header.client_id, now_ms)
    return usage.record(client.principal.name, call.header.client_id, percentage, now_ms)


def count_network_s(broker: Services, share: Share[Rate], seconds: float) -> None:
    """Receiving and sending took so long; a client waits for that only when it asks again."""
    share.bucket.record(seconds * PERCENT, share.limit, broker.clock.monotonic_ms())


def mutation_allowance(broker: Services, call: Call, strict_since: int | None = None) -> Allowance:
    """What the request may create and delete; from that version on its clients know the error of what is refused."""
    is_strict = strict_since is not None and call.header.version >= strict_since
    return broker.client_usage.allowance(
        call.client.principal.name, call.header.client_id, broker.clock.monotonic_ms, is_strict=is_strict
    )


def mutation_throttle_ms(broker: Services, call: Call, allowance: Allowance) -> int:
    """For how long the client waits after such a request."""
    return mute(broker, call, {MUTATION: allowance.throttle_ms})


def mute(broker: Services, call: Call, throttle_ms_by_quota: dict[str, int]) -> int:
    """Serve nothing more of the client for the longest of these times, which is answered."""
    quota, throttle_ms = max(throttle_ms_by_quota.items(), key=lambda item: item[1])
    if throttle_ms <= 0:
        return 0
    broker.metrics.throttled(quota, throttle_ms)
    call.client.mute(throttle_ms)
    return throttle_ms


def _told(api: Api, call: Call, parts: Parts, throttle_ms: int) -> Parts:
    """The same reply with the throttle time, where its version has one."""
    header = call.header
    whole = b"".join([part if isinstance(part, bytes) else b"" for part in parts])
    assert all(isinstance(part, bytes) for part in parts), "only a Fetch is answered from files"
    head = frames.encode_response_header(header.key, header.version, header.correlation_id)
    if not api.versions[0] <= header.version <= api.versions[1]:
        return parts
    message = api.decode_response(header.version, whole, 4 + len(head))
    if message.get("throttle_time_ms", throttle_ms) >= throttle_ms:
        return parts
    message["throttle_time_ms"] = throttle_ms
    return [frames.frame(head, api.encode_response(header.version, message))]
