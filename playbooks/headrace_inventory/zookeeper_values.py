"""Values of zoo.cfg that ZooKeeper does not start with, or that it would take for another one without a word."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from headrace_inventory.addresses import Groups, HostVars
from headrace_inventory.server_properties import text
from headrace_inventory.settings import PORT_MAX, whole_number
from headrace_inventory.zookeeper_properties import OWN_PROVIDERS, PROVIDER_CLASS, provider_of

INT_MIN, INT_MAX, LONG_MAX = -(2**31), 2**31 - 1, 2**63 - 1
TICK_TIME_MS = 2000
# What sessions may ask for at least and at most, in ticks, where nothing else is said.
SESSION_TICKS_MIN, SESSION_TICKS_MAX = 2, 20
# Health and gates ask for these.
ASKED_WORDS = frozenset({"mntr", "srvr"})
# Those with a range of their own; all others are any that Java's type has.
RANGES = {
    "autopurge.purgeInterval": (0, INT_MAX),
    "autopurge.snapRetainCount": (3, INT_MAX),
    "clientPortListenBacklog": (-1, INT_MAX),
    "connectToLearnerMasterLimit": (0, INT_MAX),
    "electionAlg": (3, 3),
    "initLimit": (1, INT_MAX),
    "jvm.pause.info-threshold.ms": (0, LONG_MAX),
    "jvm.pause.sleep.time.ms": (0, LONG_MAX),
    "jvm.pause.warn-threshold.ms": (0, LONG_MAX),
    "maxClientCnxns": (0, INT_MAX),
    "maxSessionTimeout": (-1, INT_MAX),
    "minSessionTimeout": (-1, INT_MAX),
    "metricsProvider.httpPort": (0, PORT_MAX),
    "metricsProvider.maxQueueSize": (1, INT_MAX),
    "metricsProvider.numWorkerThreads": (0, INT_MAX),
    "metricsProvider.workerShutdownTimeoutMs": (0, LONG_MAX),
    "multiAddress.reachabilityCheckTimeoutMs": (1, INT_MAX),
    "observerMasterPort": (1, PORT_MAX),
    "quorum.cnxn.threads.size": (1, INT_MAX),
    "syncLimit": (1, INT_MAX),
    "tickTime": (1, INT_MAX),
}
INTEGERS = """
    admin.idleTimeout admin.rateLimiterIntervalInMS admin.serverPort bitHashCacheSize cnxTimeout commitLogCount
    commitProcessor.maxCommitBatchSize commitProcessor.maxReadBatchSize commitProcessor.numWorkerThreads
    connection_throttle_fill_count connection_throttle_fill_time connection_throttle_freeze_time
    connection_throttle_global_session_weight connection_throttle_local_session_weight
    connection_throttle_renew_session_weight connection_throttle_tokens electionPortBindRetry
    fastleader.maxNotificationInterval fastleader.minNotificationInterval globalOutstandingLimit intBufferStartingSizeBytes
    largeRequestMaxBytes largeRequestThreshold leader.ackLoggingFrequency leader.maxConcurrentDiffSyncs
    leader.maxConcurrentSnapSyncs leader.maxTimeToWaitForEpoch leaderConnectDelayDuringRetryMs maxBatchSize
    maxGetChildrenResponseCacheSize maxInProcessingDeadWatchers maxResponseCacheSize messageTracker.BufferSize
    netty.server.outstandingHandshake.limit nio.directBufferBytes nio.numSelectorThreads nio.numWorkerThreads
    nio.sessionlessCnxnTimeout observerMaster.sizeLimit pathStats.maxDepth pathStats.slotCapacity pathStats.slotDuration
    pathStats.topPathMax quorumCnxnTimeoutMs request_throttle_max_requests request_throttle_stall_time
    request_throttler.shutdownTimeout snapCount throttled_op_wait_time watcherCleanIntervalInSeconds watcherCleanThreadsNum
    watcherCleanThreshold
    """.split()  # noqa: SIM905
LONGS = """
    commitProcessor.shutdownTimeout flushDelay fsync.warningthresholdms kerberos.minReLoginTimeMs maxWriteQueuePollTime
    nio.shutdownTimeout observer.election.DelayMs observer.reconnectDelayMs pathStats.delay pathStats.initialDelay preAllocSize
    snapSizeLimitInKb txnLogSizeLimitInKb
    """.split()  # noqa: SIM905
NUMBERS = """
    connection_throttle_decrease_ratio connection_throttle_drop_decrease connection_throttle_drop_increase pathStats.sampleRate
    snapshotSizeFactor
    """.split()  # noqa: SIM905
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
TRUTHS = """
    admin.enableServer admin.forceHttps admin.needClientAuth admin.portUnification admin.restore.enabled
    admin.snapshot.enabled allowSaslFailedClients audit.enable client.certReload client.portUnification clientTcpKeepAlive
    closeSessionTxn.enabled connection_throttle_weight_enabled datadir.autocreate db.autocreate digest.enabled
    DigestAuthenticationProvider.enabled emulate353TTLNodes enableEagerACLCheck enforce.auth.enabled enforceQuota
    extendedTypesEnabled fips-mode follower.skipLearnerRequestToNextProcessor forceSnapshotSync
    forward_learner_requests_to_commit_processor_disabled IPAuthenticationProvider.usexforwardedfor jmx.log4j.disable
    jvm.pause.monitor kerberos.canonicalizeHostNames leader.closeSocketAsync learner.asyncSending learner.closeSocketAsync
    localSessionsEnabled localSessionsUpgradingEnabled messageTracker.Enabled metricsProvider.exportJvmInfo multiAddress.enabled
    multiAddress.reachabilityCheckEnabled netty.advancedFlowControl.enabled
    netty.server.earlyDropSecureConnectionHandshakes observer.syncEnabled pathStats.enabled portUnification
    quorum.auth.enableSasl quorum.auth.learnerRequireSasl quorum.auth.serverRequireSasl quorumListenOnAllIPs reconfigEnabled
    request_stale_connection_check request_stale_latency_check request_throttle_drop_stale
    serializeLastProcessedZxid.enabled sessionRequireClientSASLAuth snapshot.trust.empty sslQuorum sslQuorumReloadCertFiles
    standaloneEnabled syncEnabled tcpKeepAlive
    """.split()  # noqa: SIM905
# In YAML yes and no are true and false, which these do not know.
ANSWERS = dict.fromkeys(("forceSync", "leaderServes", "skipACL"), ("yes", "no"))
CHOICES = {**dict.fromkeys(TRUTHS, ("true", "false")), **ANSWERS, "peerType": ("participant", "observer")}
BOUNDS = {
    **dict.fromkeys(INTEGERS, (INT_MIN, INT_MAX)),
    **dict.fromkeys(LONGS, (-LONG_MAX, LONG_MAX)),
    **RANGES,
}


def zookeeper_values(groups: Groups, hostvars: HostVars) -> list[str]:
    """One sentence for each value of zookeeper_properties that ZooKeeper does not take, however many hosts have it."""
    found = {
        problem: host
        for host in reversed(groups["zookeeper"])
        for problem in (
            *problems(hostvars[host].get("zookeeper_properties") or {}),
            *foreign_provider(hostvars[host]),
        )
    }
    return [f"Host {host} has in zookeeper_properties {problem}" for problem, host in found.items()]


def problems(properties: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with each value, and then with values beside each other."""
    given = {str(key): text(value).strip() for key, value in properties.items()}
    wrong = {key: allowed for key, value in given.items() if (allowed := instead(key, value)) is not None}
    yield from (f"the {key} {given[key]!r}: it must be {allowed}." for key, allowed in wrong.items())
    if not wrong:
        yield from contradictions(given)


def foreign_provider(variables: Mapping[str, Any]) -> Iterator[str]:
    """A provider of metrics whose jar no release has."""
    name = provider_of(variables.get("zookeeper_properties") or {})
    if name not in OWN_PROVIDERS and not variables.get("zookeeper_jars_dir"):
        yield (
            f"the {PROVIDER_CLASS} {name!r}, which the release does not have: put its jars and ZooKeeper's into a folder of the "
            f"host's that zookeeper_jars_dir names, or use {' or '.join(OWN_PROVIDERS)}."
        )


def instead(key: str, value: str) -> str | None:
    """What the value must be, where it is something else."""
    if key in BOUNDS:
        return outside(value, *BOUNDS[key])
    if key in NUMBERS:
        return None if NUMBER.fullmatch(value) else "a number"
    if key in CHOICES:
        return None if value in CHOICES[key] else quoted(CHOICES[key])
    if key == "4lw.commands.whitelist":
        words = {word.strip() for word in value.split(",")}
        return (
            None
            if "*" in words or words >= ASKED_WORDS
            else "a list with mntr and srvr, which the plays ask, or *"
        )
    return None


def outside(value: str, low: int, high: int) -> str | None:
    number = whole_number(value)
    if number is not None and low <= number <= high:
        return None
    return f"{low}" if low == high else f"a whole number from {low} to {high}"


def quoted(choices: tuple[str, ...]) -> str:
    return " or ".join(choices) + (", in quotes" if choices == ("yes", "no") else "")


def contradictions(given: Mapping[str, str]) -> Iterator[str]:
    tick_ms = int(given.get("tickTime", TICK_TIME_MS))
    low = session_ms(given, "minSessionTimeout", SESSION_TICKS_MIN * tick_ms)
    high = session_ms(given, "maxSessionTimeout", SESSION_TICKS_MAX * tick_ms)
    if low > high:
        yield (
            f"sessions of at least {low} ms and at most {high} ms: minSessionTimeout ({SESSION_TICKS_MIN} ticks where it is not "
            f"set) must not be larger than maxSessionTimeout ({SESSION_TICKS_MAX} ticks)."
        )


def session_ms(given: Mapping[str, str], key: str, otherwise: int) -> int:
    value = int(given.get(key, -1))
    return otherwise if value == -1 else value
