"""The broker's properties, by theme: Apache Kafka 3.9's names, units, defaults and bounds.

Attributes are property names with underscores for dots; `config.broker.BrokerConfig` holds one of each section. Here are the keys
that change what this broker does, and those that tools look for; `config.foreign` names all that have no effect.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.broker.config.keys import LONG_MAX, boolean, double, integer, long, password, string, strings
from headrace.broker.config.listeners import SECURITY_PROTOCOLS

DOUBLE_MAX = 1.7976931348623157e308
COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
STORE_TYPES = ("JKS", "PKCS12", "PEM")
KEY_LENGTHS = (128, 192, 256)
KEY_FACTORIES = tuple(f"PBKDF2WithHmacSHA{size}" for size in (1, 224, 256, 384, 512))
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
CLEANUP_POLICIES = ("compact", "delete")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
PROTOCOL_VERSION_PATTERN = r"3\.(\d(\.\d+)?|0-IV[01]|[12489]-IV0|3-IV[0-3]|[56]-IV[0-2]|7-IV[0-4])"
"""Those of org.apache.kafka.server.common.MetadataVersion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Who the broker is and how it is reached."""

    broker_id: int = integer(-1, "The broker's id; -1 lets ZooKeeper choose one.", low=-1)
    broker_id_generation_enable: bool = boolean(True, "Whether ZooKeeper may choose the broker's id.")
    reserved_broker_max_id: int = integer(1000, "Chosen broker ids begin above this number.", low=0)
    broker_rack: str | None = string(None, "The rack (or zone) of the broker, used to spread replicas.")
    listeners: tuple[str, ...] = strings(
        ("PLAINTEXT://:9092",), "Where the broker listens: NAME://HOST:PORT."
    )
    advertised_listeners: tuple[str, ...] = strings(
        (),
        "What clients are told; the listeners when empty. Never 0.0.0.0, nor what another broker registered.",
    )
    listener_security_protocol_map: tuple[str, ...] = strings(
        ("PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT", "SASL_SSL:SASL_SSL"),
        "Listener name to security protocol: NAME:PROTOCOL.",
    )
    inter_broker_listener_name: str | None = string(
        None, "The listener that brokers use between them; the one named as their protocol by default."
    )
    security_inter_broker_protocol: str = string(
        "PLAINTEXT",
        "The name of that listener when inter.broker.listener.name does not say it.",
        choices=SECURITY_PROTOCOLS,
    )
    control_plane_listener_name: str | None = string(
        None, "The listener by which the controller and the others talk, when it is not that one."
    )
    socket_send_buffer_bytes: int = integer(102400, "SO_SNDBUF of a connection; -1: the system's.", low=-1)
    socket_receive_buffer_bytes: int = integer(102400, "SO_RCVBUF of a connection; -1: the system's.", low=-1)
    socket_request_max_bytes: int = integer(104857600, "The largest request, in bytes.", low=1)
    socket_listen_backlog_size: int = integer(50, "Connections that wait to be accepted.", low=1)
    connections_max_idle_ms: int = long(600_000, "Idle connections are closed after this time.")
    max_connections: int = integer(2**31 - 1, "Connections of the broker at one time.", low=0)
    max_connections_per_ip: int = integer(2**31 - 1, "Connections from one address at one time.", low=0)
    max_connections_per_ip_overrides: str = string(
        "",
        "The same for single addresses: ADDRESS:COUNT,ADDRESS:COUNT.",
        pattern=r"(\s*\S+:\d{1,9}\s*(,\s*\S+:\d{1,9}\s*)*)?",
        form="ADDRESS:COUNT,ADDRESS:COUNT",
    )
    max_connection_creation_rate: int = integer(
        2**31 - 1, "Connections a second that the broker takes, or a listener.", low=0
    )
    queued_max_requests: int = integer(500, "Requests of a connection that may wait for their turn.", low=1)
    max_incremental_fetch_session_cache_slots: int = integer(
        1000, "Fetch sessions that are kept (KIP-227).", low=0
    )
    request_timeout_ms: int = integer(30_000, "How long the broker waits for an answer of another.", low=1)
    headrace_metrics_listener: str | None = string(None, "HOST:PORT of the Prometheus metrics; none: off.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Certificates, keys and what is agreed on in a handshake; `listener.name.<name>.` before a key sets it for one listener."""

    ssl_keystore_type: str = string(
        "JKS", "The form of the key store; a file of JKS or PKCS12 may be either.", choices=STORE_TYPES
    )
    ssl_keystore_location: str | None = string(None, "The file with the broker's key and certificates.")
    ssl_keystore_password: str | None = password("The password of that file; not for PEM.")
    ssl_key_password: str | None = password("The password of the key in it, where it has one of its own.")
    ssl_keystore_key: str | None = password("The key itself, as PEM, in place of a file.")
    ssl_keystore_certificate_chain: str | None = password("Its certificates, as PEM, the broker's own first.")
    ssl_truststore_type: str = string("JKS", "As ssl.keystore.type.", choices=STORE_TYPES)
    ssl_truststore_location: str | None = string(
        None, "The file with the certificates that are trusted; the system's when nothing is given."
    )
    ssl_truststore_password: str | None = password("The password of that file; not for PEM.")
    ssl_truststore_certificates: str | None = password("Those certificates themselves, as PEM.")
    ssl_client_auth: str = string(
        "none", "Whether clients show a certificate.", choices=("none", "requested", "required")
    )
    ssl_enabled_protocols: tuple[str, ...] = strings(
        TLS_VERSIONS, "The versions of TLS that are spoken.", choices=TLS_VERSIONS
    )
    ssl_protocol: str = string(
        "TLSv1.3", "As ssl.enabled.protocols says, whatever is given here.", choices=("TLS", *TLS_VERSIONS)
    )
    ssl_cipher_suites: tuple[str, ...] = strings((), "Cipher suites by Java's names; OpenSSL's when empty.")
    ssl_endpoint_identification_algorithm: str = string(
        "https",
        "Whether a server's certificate must be for its host's name: https, or empty for no.",
        choices=("https", "HTTPS", ""),
    )
    ssl_principal_mapping_rules: str = string(
        "DEFAULT",
        "How a certificate's distinguished name becomes a principal: RULE:pattern/replacement/[LU].",
    )
    ssl_allow_dn_changes: bool = boolean(False, "Whether a renewed certificate may have another name.")
    ssl_allow_san_changes: bool = boolean(
        False, "Whether a renewed certificate may lack alternative names of the one before."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sasl:
    """How clients log in at listeners of SASL_PLAINTEXT and SASL_SSL; `listener.name.<name>.` before a key sets it for one
    listener, and `listener.name.<name>.<mechanism>.` for one mechanism there, the name and the mechanism in small letters."""

    sasl_enabled_mechanisms: tuple[str, ...] = strings(
        ("GSSAPI",),
        "The mechanisms by which clients may log in: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER.",
    )
    sasl_mechanism_inter_broker_protocol: str = string(
        "GSSAPI", "The mechanism by which brokers log in to each other."
    )
    sasl_jaas_config: str | None = password(
        "The login module of a mechanism at a listener, with its options; without both before it, of no effect."
    )
    sasl_server_max_receive_size: int = integer(
        524288,
        "The most bytes of a request before a log-in is done; never more than 64 KiB unless given.",
        low=1,
    )
    sasl_server_callback_handler_class: str | None = string(
        None,
        "Of OAUTHBEARER: org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler.",
    )
    connections_max_reauth_ms: int = long(
        0, "How long a log-in is good; clients log in again before (KIP-368). 0: without end.", low=0
    )
    connection_failed_authentication_delay_ms: int = integer(
        100, "How long a client that failed to log in waits for its answer.", low=0
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = string(
        None, "Where the keys are that sign bearer tokens (JWKS): an address of file:, http: or https:."
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = long(
        3_600_000, "How often those keys are read again.", low=1000
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = long(
        100, "How long to wait after the first failure to read them.", low=1
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = long(
        10_000, "How long to wait at most after several failures.", low=1
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] | None = strings(
        None, "Of which one has to be among a token's audiences; any when nothing is given."
    )
    sasl_oauthbearer_expected_issuer: str | None = string(
        None, "The issuer that a token has to name; any when nothing is given."
    )
    sasl_oauthbearer_clock_skew_seconds: int = integer(
        30, "How far the clocks of issuer and broker may be apart.", low=0
    )
    sasl_oauthbearer_scope_claim_name: str = string("scope", "The claim with a token's scopes.")
    sasl_oauthbearer_sub_claim_name: str = string("sub", "The claim with the name of a token's principal.")


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationTokens:
    """Tokens that stand for a user for a while (KIP-48)."""

    delegation_token_master_key: str | None = password("An older name of delegation.token.secret.key.")
    delegation_token_secret_key: str | None = password(
        "What tokens are made from, the same on all brokers; without it there are none."
    )
    delegation_token_max_lifetime_ms: int = long(
        604_800_000, "How long a token lives at most, however often it is renewed.", low=1
    )
    delegation_token_expiry_time_ms: int = long(
        86_400_000, "How long a token lives until it is renewed.", low=1
    )
    delegation_token_expiry_check_interval_ms: int = long(
        3_600_000, "How often expired tokens are removed.", low=1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Passwords:
    """How passwords among settings that are changed at run time are stored in ZooKeeper."""

    password_encoder_secret: str | None = password("What they are encrypted with; without it none is stored.")
    password_encoder_old_secret: str | None = password(
        "What they were encrypted with before: read until they are set again."
    )
    password_encoder_keyfactory_algorithm: str | None = string(
        None, "How the key is derived; with SHA-512 when nothing is given.", choices=KEY_FACTORIES
    )
    password_encoder_cipher_algorithm: str = string(
        "AES/CBC/PKCS5Padding", "How they are encrypted.", choices=("AES/CBC/PKCS5Padding",)
    )
    password_encoder_key_length: int = integer(128, "Bits of the key.", choices=KEY_LENGTHS)
    password_encoder_iterations: int = integer(4096, "Rounds in which the key is derived.", low=1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeper:
    """The ensemble that holds the cluster's state."""

    zookeeper_connect: str | None = string(None, "HOST:PORT,HOST:PORT/chroot of the ensemble.")
    zookeeper_session_timeout_ms: int = integer(18_000, "A broker silent for longer is gone.", low=1)
    zookeeper_connection_timeout_ms: int | None = integer(
        None, "How long a start waits for ZooKeeper.", low=1
    )
    zookeeper_max_in_flight_requests: int = integer(
        10, "Requests to ZooKeeper that may be on their way.", low=1
    )
    zookeeper_set_acl: bool = boolean(
        False,
        "Whether new znodes are this broker's and its like's alone to write, and to read where passwords are.",
    )
    zookeeper_ssl_client_enable: bool = boolean(False, "Whether ZooKeeper is spoken to over TLS.")
    zookeeper_ssl_keystore_location: str | None = string(
        None, "The file with the key and certificates that ZooKeeper is shown."
    )
    zookeeper_ssl_keystore_password: str | None = password(
        "The password of that file; of PEM, that of its key."
    )
    zookeeper_ssl_keystore_type: str | None = string(
        None, "JKS, PKCS12 or PEM; by the end of the file's name without it: .jks, .p12, .pem."
    )
    zookeeper_ssl_truststore_location: str | None = string(
        None,
        "The file with the certificates that are trusted to be ZooKeeper's; the system's when nothing is given.",
    )
    zookeeper_ssl_truststore_password: str | None = password("The password of that file; not for PEM.")
    zookeeper_ssl_truststore_type: str | None = string(None, "As zookeeper.ssl.keystore.type.")
    zookeeper_ssl_enabled_protocols: tuple[str, ...] | None = strings(
        None, "The versions of TLS that are spoken; both when nothing is given.", choices=TLS_VERSIONS
    )
    zookeeper_ssl_cipher_suites: tuple[str, ...] | None = strings(
        None, "Cipher suites by Java's names; OpenSSL's when empty."
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = string(
        "HTTPS",
        "Whether ZooKeeper's certificate must be for its host's name: HTTPS, or empty for no.",
        choices=("HTTPS", "https", ""),
    )
    headrace_zookeeper_jaas_file: str | None = string(
        None, "A JAAS file whose section Client logs in to ZooKeeper; KAFKA_OPTS may name it as well."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs:
    """Where the logs are and how they are kept; a topic's own configuration comes before these."""

    log_dir: str = string("/tmp/kafka-logs", "The data directory when log.dirs is not given.")
    log_dirs: tuple[str, ...] = strings((), "The data directories.")
    num_recovery_threads_per_data_dir: int = integer(1, "Threads that recover logs at start.", low=1)
    log_segment_bytes: int = integer(1073741824, "The largest segment file.", low=14)
    log_roll_ms: int | None = long(None, "A segment is rolled after this time.", low=1)
    log_roll_hours: int = integer(168, "As log.roll.ms, in hours.", low=1)
    log_roll_jitter_ms: int | None = long(None, "The most that a roll is moved forward.", low=0)
    log_roll_jitter_hours: int = integer(0, "As log.roll.jitter.ms, in hours.", low=0)
    log_retention_ms: int | None = long(None, "Segments older than this are deleted; -1: never.", low=-1)
    log_retention_minutes: int | None = integer(None, "As log.retention.ms, in minutes.", low=-1)
    log_retention_hours: int = integer(168, "As log.retention.ms, in hours.", low=-1)
    log_retention_bytes: int = long(-1, "The size a partition may have; -1: any.")
    log_retention_check_interval_ms: int = long(300_000, "How often retention looks.", low=1)
    log_cleanup_policy: tuple[str, ...] = strings(
        ("delete",), "What retires old data.", choices=CLEANUP_POLICIES
    )
    log_cleaner_enable: bool = boolean(True, "Whether compacted topics are cleaned.")
    log_cleaner_threads: int = integer(1, "How many logs are cleaned at a time.", low=1)
    log_cleaner_backoff_ms: int = long(
        15_000, "How long the cleaner waits before it looks for dirty logs again; one second at least.", low=0
    )
    log_cleaner_dedupe_buffer_size: int = long(
        134217728, "The most bytes of memory for the keys of all cleanings.", low=1048576
    )
    log_cleaner_io_buffer_load_factor: float = double(
        0.9, "Share of that memory that is used.", low=0, high=1
    )
    log_cleaner_io_buffer_size: int = integer(524288, "Bytes that the cleaner reads at once.", low=1)
    log_cleaner_io_max_bytes_per_second: float = double(
        DOUBLE_MAX, "The most that the cleaner reads and writes.", low=1, high=DOUBLE_MAX
    )
    log_cleaner_delete_retention_ms: int = long(86_400_000, "How long tombstones are kept.", low=0)
    log_cleaner_min_compaction_lag_ms: int = long(0, "Younger records are not compacted.", low=0)
    log_cleaner_max_compaction_lag_ms: int = long(LONG_MAX, "Older records must be compacted.", low=1)
    log_cleaner_min_cleanable_ratio: float = double(
        0.5, "Share of dirty bytes worth a cleaning.", low=0, high=1
    )
    log_index_size_max_bytes: int = integer(10485760, "The largest offset index.", low=4)
    log_index_interval_bytes: int = integer(4096, "Bytes of log between two index entries.", low=0)
    log_flush_interval_messages: int = long(LONG_MAX, "Messages between two flushes of a log.", low=1)
    log_flush_scheduler_interval_ms: int = long(LONG_MAX, "How often it is looked who has to be flushed.")
    log_flush_interval_ms: int | None = long(None, "How long a message may stay unflushed.")
    log_flush_offset_checkpoint_interval_ms: int = integer(
        60_000, "How often recovery points are written.", low=0
    )
    log_flush_start_offset_checkpoint_interval_ms: int = integer(
        60_000, "How often log start offsets are written.", low=0
    )
    log_segment_delete_delay_ms: int = long(60_000, "Deleted files stay this long.", low=0)
    log_preallocate: bool = boolean(False, "Whether segment files are allocated in full at once.")
    log_message_timestamp_type: str = string(
        "CreateTime", "Whose clock stamps a record.", choices=TIMESTAMP_TYPES
    )
    log_message_timestamp_before_max_ms: int = long(LONG_MAX, "How old a record's timestamp may be.", low=0)
    log_message_timestamp_after_max_ms: int = long(LONG_MAX, "How far ahead a timestamp may be.", low=0)
    log_message_downconversion_enable: bool = boolean(
        True, "Whether clients that know old message formats only get them."
    )
    message_max_bytes: int = integer(1048588, "The largest record batch.", low=0)
    compression_type: str = string("producer", "How batches are compressed.", choices=COMPRESSION_TYPES)
    min_insync_replicas: int = integer(1, "In-sync replicas that acks=all asks for.", low=1)
    unclean_leader_election_enable: bool = boolean(False, "Whether an out-of-sync replica may lead.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """How topics come and go."""

    num_partitions: int = integer(1, "Partitions of a topic when its creator does not say.", low=1)
    default_replication_factor: int = integer(1, "Replicas of a topic when its creator does not say.", low=1)
    auto_create_topics_enable: bool = boolean(True, "Whether asking for a topic may create it.")
    delete_topic_enable: bool = boolean(True, "Whether topics may be deleted.")


RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replication:
    """How brokers copy from and stand in for each other."""

    replica_lag_time_max_ms: int = long(30_000, "A follower behind for longer leaves the ISR.")
    replica_socket_timeout_ms: int = integer(30_000, "Time-out of a follower's connection.")
    replica_socket_receive_buffer_bytes: int = integer(65536, "SO_RCVBUF of a follower's connection.")
    replica_fetch_max_bytes: int = integer(1048576, "Bytes a follower asks for, per partition.", low=0)
    replica_fetch_wait_max_ms: int = integer(500, "How long a follower's fetch may wait.")
    replica_fetch_backoff_ms: int = integer(1000, "The longest that a follower waits after an error.", low=0)
    replica_fetch_min_bytes: int = integer(1, "Bytes a follower's fetch waits for.")
    replica_fetch_response_max_bytes: int = integer(10485760, "Bytes of a follower's fetch.", low=0)
    num_replica_fetchers: int = integer(1, "Connections to each leader.")
    replica_selector_class: str | None = string(
        None,
        "What chooses the replica that a consumer reads from: by default its leader, with this class one in its rack.",
        choices=(RACK_AWARE_SELECTOR,),
    )
    num_replica_alter_log_dirs_threads: int | None = integer(
        None,
        "Replicas moved to other data directories at a time; as many as there are directories by default.",
        low=1,
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = long(
        LONG_MAX, "The most bytes a second that moves to other data directories copy together.", low=0
    )
    alter_log_dirs_replication_quota_window_size_seconds: int = integer(
        1, "The time for which they may copy at once.", low=1
    )
    leader_replication_throttled_rate: int = long(
        LONG_MAX,
        "The most bytes a second that replicas of leader.replication.throttled.replicas are sent while out of sync.",
        low=0,
    )
    follower_replication_throttled_rate: int = long(
        LONG_MAX,
        "The most bytes a second that replicas of follower.replication.throttled.replicas take while out of sync.",
        low=0,
    )
    replication_quota_window_num: int = integer(11, "Windows over which those rates are measured.", low=1)
    replication_quota_window_size_seconds: int = integer(1, "How long such a window is.", low=1)
    replica_high_watermark_checkpoint_interval_ms: int = long(5000, "How often high watermarks are written.")
    inter_broker_protocol_version: str = string(
        "3.9-IV0",
        "The oldest Apache Kafka that the brokers of this cluster have to understand: it chooses the versions of their requests.",
        pattern=PROTOCOL_VERSION_PATTERN,
        form="a version from 3.0 to 3.9, such as 3.7 or 3.7-IV4",
    )
    auto_leader_rebalance_enable: bool = boolean(True, "Whether preferred leaders are restored.")
    leader_imbalance_per_broker_percentage: int = integer(10, "Imbalance that is tolerated.")
    leader_imbalance_check_interval_seconds: int = long(300, "How often imbalance is looked for.", low=1)
    controller_socket_timeout_ms: int = integer(30_000, "Time-out of the controller's connections.")
    controlled_shutdown_enable: bool = boolean(True, "Whether a stopping broker hands over its leaders.")
    controlled_shutdown_max_retries: int = integer(3, "How often a controlled shutdown is tried again.")
    controlled_shutdown_retry_backoff_ms: int = long(5000, "How long it waits in between.")
    fetch_max_bytes: int = integer(
        57671680, "The most bytes of one fetch, whatever the client asks.", low=1024
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Consumer groups and their offsets."""

    group_min_session_timeout_ms: int = integer(6000, "The shortest session time-out.")
    group_max_session_timeout_ms: int = integer(1_800_000, "The longest session time-out.")
    group_initial_rebalance_delay_ms: int = integer(3000, "How long a new group waits for members.", low=0)
    group_max_size: int = integer(2**31 - 1, "The most members of a group.", low=1)
    offset_metadata_max_bytes: int = integer(4096, "The longest metadata of a committed offset.")
    offsets_load_buffer_size: int = integer(5242880, "Bytes read at once when offsets are loaded.", low=1)
    offsets_topic_replication_factor: int = integer(3, "Replicas of __consumer_offsets.", low=1)
    offsets_topic_num_partitions: int = integer(50, "Partitions of __consumer_offsets.", low=1)
    offsets_topic_segment_bytes: int = integer(104857600, "Segment size of __consumer_offsets.", low=1)
    offsets_topic_compression_codec: int = integer(
        0, "Codec of the batches in __consumer_offsets.", low=0, high=4
    )
    offsets_retention_minutes: int = integer(10080, "How long offsets of an empty group are kept.", low=1)
    offsets_retention_check_interval_ms: int = long(600_000, "How often old offsets are looked for.", low=1)
    offsets_commit_timeout_ms: int = integer(5000, "How long a commit may wait for replicas.", low=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transactions:
    """Transactions and idempotent producers."""

    transactional_id_expiration_ms: int = integer(604_800_000, "Unused transactional ids expire.", low=1)
    transaction_max_timeout_ms: int = integer(900_000, "The longest transaction.", low=1)
    transaction_state_log_replication_factor: int = integer(3, "Replicas of __transaction_state.", low=1)
    transaction_state_log_min_isr: int = integer(2, "min.insync.replicas of __transaction_state.", low=1)
    transaction_state_log_num_partitions: int = integer(50, "Partitions of __transaction_state.", low=1)
    transaction_state_log_segment_bytes: int = integer(104857600, "Its segment size.", low=1)
    transaction_remove_expired_transaction_cleanup_interval_ms: int = integer(
        3_600_000, "How often unused transactional ids are looked for.", low=1
    )
    transaction_partition_verification_enable: bool = boolean(
        True, "Whether leaders ask a transaction's coordinator before its first batch."
    )
    producer_id_expiration_ms: int = integer(86_400_000, "Producer state without use expires.", low=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """Over which time the usage of clients is measured."""

    quota_window_num: int = integer(11, "Windows over which the usage of clients is measured.", low=1)
    quota_window_size_seconds: int = integer(1, "How long such a window is.", low=1)
    controller_quota_window_num: int = integer(
        11, "Windows whose changes of the cluster a client may make at once.", low=1
    )
    controller_quota_window_size_seconds: int = integer(1, "How long such a window is.", low=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorization:
    """Who may do what."""

    authorizer_class_name: str = string(
        "",
        "Kafka's AclAuthorizer, or nothing: then everybody may do everything.",
        pattern=f"({re.escape(ACL_AUTHORIZER)})?",
        form=f"{ACL_AUTHORIZER}, or no value, and everybody may do everything",
    )
    super_users: str = string(
        "", "Who may do everything, whatever access control lists say: User:NAME;User:NAME."
    )
    allow_everyone_if_no_acl_found: bool = boolean(
        False, "Whether everybody may use a resource that no access control list is about."
    )
