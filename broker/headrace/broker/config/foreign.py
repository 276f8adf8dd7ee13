"""Keys of Apache Kafka 3.9 that this broker does not put to use, each with the reason, and values that it must not pass over.

A `server.properties` written for Apache Kafka starts either engine: what is harmless has no effect and is told, once; what
somebody relies on (who may come in, what is refused, where data goes) is an error. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from headrace.broker.config.keys import ConfigurationError
from headrace.broker.config.listeners import base_name, own_limit

_FETCHES_NO_TOKEN = "only brokers that log in to each other by OAUTHBEARER fetch tokens"
WITHOUT_EFFECT: dict[str, tuple[str, ...]] = {
    "one event loop does the work of Apache Kafka's threads, with bounds of its own": (
        "background.threads",
        "delete.records.purgatory.purge.interval.requests",
        "fetch.purgatory.purge.interval.requests",
        "group.coordinator.append.linger.ms",
        "group.coordinator.threads",
        "num.io.threads",
        "num.network.threads",
        "offsets.load.buffer.size",
        "producer.purgatory.purge.interval.requests",
        "queued.max.request.bytes",
        "queued.max.requests",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
        "transaction.state.log.load.buffer.size",
        "zookeeper.clientCnxnSocket",
        "zookeeper.max.in.flight.requests",
    ),
    "the kernel sizes a fetcher's buffers": ("replica.socket.receive.buffer.bytes",),
    "an unclean election that is allowed begins at once": ("unclean.leader.election.interval.ms",),
    "a move's rate forgets nothing": ("alter.log.dirs.replication.quota.window.num",),
    "each transaction has a timer of its own": (
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    ),
    "cryptography is OpenSSL's here, not Java's": ("security.providers",),
    "a broker logs in with what its login module says, which no class of Java's is asked for": (
        "sasl.client.callback.handler.class",
    ),
    "metrics are Prometheus's (headrace.metrics.listener)": (
        "auto.include.jmx.reporter",
        "kafka.metrics.polling.interval.secs",
        "kafka.metrics.reporters",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "telemetry.max.bytes",
    ),
    "every commit waits for all replicas in sync": ("offsets.commit.required.acks",),
    "compression has one level for each codec": (
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
    ),
    "ssl.enabled.protocols alone says it": ("ssl.protocol",),
    _FETCHES_NO_TOKEN: (
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.oauthbearer.token.endpoint.url",
    ),
    "zookeeper.ssl.enabled.protocols alone says it": ("zookeeper.ssl.protocol",),
    "TLS is OpenSSL's here, not Java's": (
        "ssl.keymanager.algorithm",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    ),
    "expired producers are looked for with retention": ("producer.id.expiration.check.interval.ms",),
    "tiered storage comes later": (
        "log.local.retention.bytes",
        "log.local.retention.ms",
        "remote.fetch.max.wait.ms",
    ),
    "Apache Kafka 3.9 in ZooKeeper mode has no use for it either": (
        "alter.config.policy.kraft.compatibility.enable",
        "broker.heartbeat.interval.ms",
        "broker.session.timeout.ms",
        "controller.listener.names",
        "controller.quorum.append.linger.ms",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.election.backoff.max.ms",
        "controller.quorum.election.timeout.ms",
        "controller.quorum.fetch.timeout.ms",
        "controller.quorum.request.timeout.ms",
        "controller.quorum.retry.backoff.ms",
        "controller.quorum.voters",
        "early.start.listeners",
        "eligible.leader.replicas.enable",
        "group.coordinator.new.enable",
        "group.coordinator.rebalance.protocols",
        "initial.broker.registration.timeout.ms",
        "log.dir.failure.timeout.ms",
        "log.message.format.version",
        "max.request.partition.size.limit",
    ),
}
_REASONS = {name: reason for reason, names in WITHOUT_EFFECT.items() for name in names}
PREFIXES_WITHOUT_EFFECT: dict[str, str] = {
    "sasl.kerberos.": "Kerberos (GSSAPI) is not spoken",
    "sasl.login.": "a broker logs in with what its login module says, which no class of Java's is asked for",
    "sasl.oauthbearer.header.": "an endpoint of tokens is told the id and secret of a login module as they are",
    "sasl.mechanism.controller.": "Apache Kafka 3.9 in ZooKeeper mode has no use for it either",
    "remote.log.": "tiered storage comes later",
    "group.consumer.": "Apache Kafka 3.9 in ZooKeeper mode has no use for it either",
    "group.share.": "Apache Kafka 3.9 in ZooKeeper mode has no use for it either",
    "metadata.": "Apache Kafka 3.9 in ZooKeeper mode has no use for it either",
}

PRINCIPAL_BUILDER = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
ALIKE = "all listeners are alike in it"
# What a listener may have of its own.
_OF_LISTENERS = ("ssl.", "sasl.", "connections.max.reauth.ms", "principal.builder.class")

Check = tuple[Callable[[str], bool], str]


def _is_off(value: str) -> bool:
    return value.lower() in ("", "false")


def _is_anything(value: str) -> bool:
    return True


def _is_empty(value: str) -> bool:
    return value == ""


CHECKED: dict[str, Check] = {
    "authorizer.zookeeper.url": (
        _is_empty,
        "no value: access control lists are in the ZooKeeper of zookeeper.connect",
    ),
    "create.topic.policy.class.name": (_is_empty, "no value: no class of Java's can be asked here"),
    "client.quota.callback.class": (_is_empty, "no value: no class of Java's can be asked here"),
    "alter.config.policy.class.name": (_is_empty, "no value: no class of Java's can be asked here"),
    "principal.builder.class": (
        lambda value: value in ("", PRINCIPAL_BUILDER),
        f"{PRINCIPAL_BUILDER}: no class of Java's can be asked here",
    ),
    "ssl.engine.factory.class": (_is_empty, "no value: no class of Java's can be asked here"),
    "process.roles": (_is_empty, "no value: brokers run with ZooKeeper, there is no KRaft"),
    "remote.log.storage.system.enable": (_is_off, "false: tiered storage comes later"),
    "zookeeper.metadata.migration.enable": (_is_off, "false: there is no KRaft to migrate to"),
    "zookeeper.ssl.crl.enable": (_is_off, "false: lists of revoked certificates are not asked for"),
    "zookeeper.ssl.ocsp.enable": (_is_off, "false: nobody is asked whether certificates are revoked"),
}
"""Keys with one kind of value that needs nothing of this broker, and what is allowed, in words."""


def check(properties: Mapping[str, str]) -> None:
    """Raises ConfigurationError for a value that somebody relies on and that this broker could only pass over."""
    for name, value in properties.items():
        is_allowed, allowed = CHECKED.get(base_name(name), (_is_anything, ""))
        if not is_allowed(value.strip()):
            raise ConfigurationError(name, value.strip(), allowed)


def names_without_effect() -> Iterable[str]:
    """Those that are known by their whole name."""
    return _REASONS


def reason_without_effect(name: str) -> str | None:
    """Why a key of Apache Kafka's has no effect here; None for keys that have one and for such as are not Kafka's."""
    base = base_name(name)
    if base in CHECKED or own_limit(name) is not None:
        return None
    if base != name and not base.startswith(_OF_LISTENERS):
        return ALIKE
    found = _REASONS.get(base)
    return found or next(
        (r for prefix, r in PREFIXES_WITHOUT_EFFECT.items() if base.startswith(prefix)), None
    )


def without_effect(properties: Mapping[str, str]) -> dict[str, list[str]]:
    """Reason → the given keys that have no effect for it."""
    found: dict[str, list[str]] = {}
    fetches_tokens = any(
        base_name(name) == "sasl.mechanism.inter.broker.protocol" and value.strip() == "OAUTHBEARER"
        for name, value in properties.items()
    )
    for name in sorted(properties):
        reason = reason_without_effect(name)
        if reason is not None and not (fetches_tokens and reason == _FETCHES_NO_TOKEN):
            found.setdefault(reason, []).append(name)
    return found
