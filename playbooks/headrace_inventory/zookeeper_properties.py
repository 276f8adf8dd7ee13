"""Lines of zoo.cfg that ZooKeeper would pass over: a key that it does not know becomes a property of Java's that nobody reads."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from headrace_inventory.addresses import Groups, HostVars, in_datacenter
from headrace_inventory.settings import whole_number

# What ZooKeeper 3.9 takes from the file itself (QuorumPeerConfig.parseProperties).
OF_THE_FILE = """
    autopurge.purgeInterval autopurge.snapRetainCount clientPort clientPortAddress clientPortListenBacklog
    connectToLearnerMasterLimit dataDir dataLogDir dynamicConfigFile electionAlg initLimit jvm.pause.info-threshold.ms
    jvm.pause.monitor jvm.pause.sleep.time.ms jvm.pause.warn-threshold.ms localSessionsEnabled localSessionsUpgradingEnabled
    maxClientCnxns maxSessionTimeout minSessionTimeout multiAddress.enabled multiAddress.reachabilityCheckEnabled
    multiAddress.reachabilityCheckTimeoutMs observerMasterPort oraclePath peerType portUnification quorum.auth.enableSasl
    quorum.auth.kerberos.servicePrincipal quorum.auth.learner.saslLoginContext quorum.auth.learnerRequireSasl
    quorum.auth.server.saslLoginContext quorum.auth.serverRequireSasl quorum.cnxn.threads.size quorumListenOnAllIPs
    reconfigEnabled secureClientPort secureClientPortAddress sslQuorum sslQuorumReloadCertFiles standaloneEnabled syncEnabled
    syncLimit tickTime
    """.split()  # noqa: SIM905
# What its server reads as the property zookeeper.KEY, which a line of the file sets.
OF_THE_SERVER = """
    4lw.commands.whitelist admin.commandURL admin.enableServer admin.forceHttps admin.httpVersion admin.idleTimeout
    admin.needClientAuth admin.portUnification admin.rateLimiterIntervalInMS admin.restore.enabled admin.serverAddress
    admin.serverPort admin.snapshot.enabled allowSaslFailedClients audit.enable audit.impl.class bitHashCacheSize
    client.certReload client.portUnification clientTcpKeepAlive closeSessionTxn.enabled cnxTimeout commitLogCount
    commitProcessor.maxCommitBatchSize commitProcessor.maxReadBatchSize commitProcessor.numWorkerThreads
    commitProcessor.shutdownTimeout connection_throttle_decrease_ratio connection_throttle_drop_decrease
    connection_throttle_drop_increase connection_throttle_fill_count connection_throttle_fill_time
    connection_throttle_freeze_time connection_throttle_global_session_weight connection_throttle_local_session_weight
    connection_throttle_renew_session_weight connection_throttle_tokens connection_throttle_weight_enabled datadir.autocreate
    db.autocreate digest.enabled DigestAuthenticationProvider.digestAlg DigestAuthenticationProvider.enabled
    DigestAuthenticationProvider.superDigest electionPortBindRetry emulate353TTLNodes enableEagerACLCheck enforce.auth.enabled
    enforce.auth.schemes enforceQuota ensembleAuthName extendedTypesEnabled fastleader.maxNotificationInterval
    fastleader.minNotificationInterval fips-mode flushDelay follower.skipLearnerRequestToNextProcessor forceSnapshotSync
    forceSync forward_learner_requests_to_commit_processor_disabled fsync.warningthresholdms globalOutstandingLimit
    intBufferStartingSizeBytes IPAuthenticationProvider.usexforwardedfor jmx.log4j.disable jmx.log4j.mbean
    kerberos.canonicalizeHostNames kerberos.minReLoginTimeMs kerberos.removeHostFromPrincipal
    kerberos.removeRealmFromPrincipal kinit largeRequestMaxBytes largeRequestThreshold leader.ackLoggingFrequency
    leader.closeSocketAsync leader.maxConcurrentDiffSyncs leader.maxConcurrentSnapSyncs leader.maxTimeToWaitForEpoch
    leaderConnectDelayDuringRetryMs leaderServes learner.asyncSending learner.closeSocketAsync letAnySaslUserDoX maxBatchSize
    maxCnxns maxGetChildrenResponseCacheSize maxInProcessingDeadWatchers maxResponseCacheSize maxWriteQueuePollTime
    messageTracker.BufferSize messageTracker.Enabled netty.advancedFlowControl.enabled
    netty.server.earlyDropSecureConnectionHandshakes netty.server.outstandingHandshake.limit nio.directBufferBytes
    nio.numSelectorThreads nio.numWorkerThreads nio.sessionlessCnxnTimeout nio.shutdownTimeout observer.election.DelayMs
    observer.reconnectDelayMs observer.syncEnabled observerMaster.sizeLimit pathStats.delay pathStats.enabled
    pathStats.initialDelay pathStats.maxDepth pathStats.sampleRate pathStats.slotCapacity pathStats.slotDuration
    pathStats.topPathMax preAllocSize quorumCnxnTimeoutMs request_stale_connection_check request_stale_latency_check
    request_throttle_drop_stale request_throttle_max_requests request_throttle_stall_time request_throttler.shutdownTimeout
    requireKerberosConfig sasl.serverconfig SASLAuthenticationProvider.superPassword security.auth_to_local
    serializeLastProcessedZxid.enabled serverCnxnFactory sessionRequireClientSASLAuth skipACL snapCount
    snapshot.compression.method snapshot.trust.empty snapshotSizeFactor snapSizeLimitInKb superUser tcpKeepAlive
    throttled_op_wait_time txnLogSizeLimitInKb watcherCleanIntervalInSeconds watcherCleanThreadsNum watcherCleanThreshold
    watchManagerName X509AuthenticationProvider.superUser
    """.split()  # noqa: SIM905
# How it speaks TLS to clients (ssl.KEY), and among its servers (ssl.quorum.KEY).
OF_TLS = """
    authProvider ciphersuites clientAuth clientHostnameVerification context.supplier.class crl enabledProtocols
    handshakeDetectionTimeoutMillis hostnameVerification keyStore.location keyStore.password keyStore.passwordPath
    keyStore.type ocsp protocol sslProvider trustStore.location trustStore.password trustStore.passwordPath trustStore.type
    """.split()  # noqa: SIM905
KNOWN = frozenset(
    [*OF_THE_FILE, *OF_THE_SERVER, *(f"{way}.{key}" for way in ("ssl", "ssl.quorum") for key in OF_TLS)]
)
# What ends in a name of its own: a server's number, a way to log in, a provider's own setting.
SERVER, PROVIDER = "server.", "metricsProvider."
NAMED = ("authProvider.", "group.", PROVIDER, SERVER, "superUser.", "weight.")
PROVIDER_CLASS = f"{PROVIDER}className"
PROMETHEUS = "org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider"
# What its providers of metrics read; the server's own two, of which the first is taken where none is named, read nothing.
OWN_PROVIDERS = tuple(
    f"org.apache.zookeeper.metrics.impl.{name}MetricsProvider" for name in ("Default", "Null")
)
OF_PROVIDERS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(OWN_PROVIDERS, ()),
    PROMETHEUS: tuple(
        f"{PROVIDER}{key}"
        for key in (
            "exportJvmInfo",
            "httpHost",
            "httpPort",
            "maxQueueSize",
            "numWorkerThreads",
            "workerShutdownTimeoutMs",
        )
    ),
}
LIKENESS_MIN = 0.75


def zookeeper_properties(groups: Groups, hostvars: HostVars) -> list[str]:
    """One sentence for each key of zookeeper_properties that ZooKeeper does not read, however many hosts have it."""
    found = {
        (str(key), advice(str(key), provider_of(properties))): host
        for host in reversed(groups["zookeeper"])
        for properties in [hostvars[host].get("zookeeper_properties") or {}]
        for key in properties
        if not is_read(str(key), provider_of(properties))
    }
    return [
        f"Host {host} has in zookeeper_properties the key {key}, which ZooKeeper does not read there: {what}."
        for (key, what), host in found.items()
    ]


def own_servers(groups: Groups, hostvars: HostVars) -> list[str]:
    """Lines of an ensemble's members in place of which the role's own would be read."""
    found = {
        (key, member): host
        for host in reversed(groups["zookeeper"])
        for key, member in members_given(host, groups, hostvars)
    }
    return [
        f"Host {host} has in zookeeper_properties the key {key}, which follows from zookeeper_id and headrace_address of "
        f"{member}: take it out there, and change these."
        for (key, member), host in found.items()
    ]


def members_given(host: str, groups: Groups, hostvars: HostVars) -> list[tuple[str, str]]:
    """The keys of a host's zookeeper_properties for members of its ensemble, with the member."""
    ensemble = in_datacenter(groups["zookeeper"], hostvars, hostvars[host]["headrace_datacenter"])
    if len(ensemble) == 1:
        return []
    members = {whole_number(hostvars[member]["zookeeper_id"]): member for member in ensemble}
    keys = [str(key) for key in hostvars[host].get("zookeeper_properties") or {}]
    numbers = {key: whole_number(key.removeprefix(SERVER)) for key in keys if key.startswith(SERVER)}
    return [(key, members[number]) for key, number in numbers.items() if number in members]


def provider_of(properties: Mapping[str, Any]) -> str:
    return str(properties.get(PROVIDER_CLASS, OWN_PROVIDERS[0])).strip()


def is_read(key: str, provider: str) -> bool:
    """Whether ZooKeeper with that provider of metrics reads it; of one that is not its own nobody knows here."""
    if not key.startswith(PROVIDER) or provider not in OF_PROVIDERS:
        return is_known(key)
    return key == PROVIDER_CLASS or key in OF_PROVIDERS[provider]


def is_known(key: str) -> bool:
    return key in KNOWN or key.startswith(NAMED)


def advice(key: str, provider: str) -> str:
    is_own = provider in OWN_PROVIDERS
    if is_own and key in OF_PROVIDERS[PROMETHEUS]:
        return f"{PROMETHEUS} does, as {PROVIDER_CLASS}"
    known = [*KNOWN, PROVIDER_CLASS, *OF_PROVIDERS.get(provider, ())]
    nearest = get_close_matches(key, known, n=1, cutoff=LIKENESS_MIN)
    if nearest:
        return f"the nearest that it reads is {nearest[0]}"
    if key.startswith(PROVIDER):
        return f"take it out, or have {PROVIDER_CLASS} name who reads it"
    return f"take it out, or give what is a property of Java's as -D{key}=VALUE in zookeeper_java_options"
