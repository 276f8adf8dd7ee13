/* Load generator on librdkafka: the same client for every broker that is measured.
 *
 *   load_generator produce NAME=VALUE...   publish and count the acknowledgements
 *   load_generator consume NAME=VALUE...   read `messages` messages from offset 0, all connections together
 *   load_generator latency NAME=VALUE...   publish at a steady rate and read at the same time
 *   load_generator transact NAME=VALUE...  publish in transactions, one after the other, each of `batch` messages to each partition
 *
 * Names: bootstrap, topic, partitions (1), connections (1), messages (0: no end but `seconds`), seconds (0: no end but
 * `messages`), size (200), batch (messages a record batch may hold; 0: batches of up to 1 MB), acks (1), codec (none),
 * rate (messages a second), trace (none), input (none), schema (-1: values are noise of `size` bytes; else flat Avro events, flat_event.avsc, of 200
 * bytes on average behind the schema registry's frame), authority (none; else TLS, with the
 * certificates of this file).
 *
 * In `transact` each connection is a producer with a transactional id of its own, in a thread. With `input`, a topic that has at
 * least as many partitions as there are connections, each takes its messages from a partition of that, a batch a
 * transaction, in which it also commits how far it has read. It runs for `seconds`; what counts is what was committed.
 *
 * A connection's messages go round by message: each to the next partition, each message of the run to the next connection.
 *
 * `latency` is measured from the moment a message was due, so that a stalled client or broker is not excused, to its
 * arrival in the consumer; the first second warms up and is left out. Each connection is a client instance of its own;
 * partitions are shared among those that read. SIGTERM ends it early; `trace` names a file that gets a line for each message
 * that counts: when it was due (seconds of the monotonic clock) and its latency in milliseconds.
 *
 * A run prints one line of JSON: messages, seconds from the first call to the last acknowledgement (or message), payload
 * bytes, failures, and for `latency` percentiles in milliseconds. With acks=0 the run lasts until the broker has answered
 * a question behind all messages, and what it then holds is what counts. It exits with 1 when a message failed or the run
 * did not end within five minutes.
 */
#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SECONDS_MAX = 300, STRAGGLER_SECONDS_MAX = 60, QUEUE_MESSAGES_MAX = 200000, QUEUE_SINGLES_MAX = 10000, QUEUE_MESSAGES_MIN = 10000 };
enum { POLL_EVERY = 256, CONSUME_MANY = 10000, CONNECTIONS_MAX = 1000, QUEUED_KILOBYTES = 65536, QUEUED_KILOBYTES_MIN = 2048 };
enum { NOISE_SIZE = 65536, VALUE_SIZE_MAX = 65536, EVENT_SIZE_MAX = 512, PATH_SIZE_MIN = 20, PATH_SIZES = 41, AGENTS = 61, AGENT_SIZE = 83 };
static const double WARM_UP_SECONDS = 1;

typedef struct {
    const char *bootstrap, *topic, *acks, *codec, *trace, *input, *authority;
    long partitions, connections, messages, size, batch, rate, schema;
    double seconds;
} Options;

typedef struct {
    rd_kafka_t *rk[CONNECTIONS_MAX];
    rd_kafka_topic_t *topic[CONNECTIONS_MAX];
    long count;
} Clients;

typedef struct {
    rd_kafka_t *rk;
    rd_kafka_topic_t *topic;
    rd_kafka_queue_t *queue;
    pthread_t thread;
    double *latencies, *dues, counted_from; /* NULL: none are kept */
    long latency_count, latency_space;
} Reader;

static long acknowledged, failed;
static double last_event;
static atomic_long seen, seen_bytes, read_errors;
static atomic_int stopped;
static volatile sig_atomic_t is_ended;

static double now_seconds(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void sleep_until(double due) {
    const struct timespec ts = {.tv_sec = (time_t)due, .tv_nsec = (long)((due - (double)(time_t)due) * 1e9)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
}

static void die(const char *what, const char *why) {
    fprintf(stderr, "load_generator: %s: %s\n", what, why);
    exit(2);
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char why[512];
    if (rd_kafka_conf_set(conf, name, value, why, sizeof why) != RD_KAFKA_CONF_OK) die(name, why);
}

static void set_number(rd_kafka_conf_t *conf, const char *name, long value) {
    char number[32];
    snprintf(number, sizeof number, "%ld", value);
    set(conf, name, number);
}

static void connect_to(rd_kafka_conf_t *conf, const Options *options) {
    set(conf, "bootstrap.servers", options->bootstrap);
    if (!options->authority) return;
    set(conf, "security.protocol", "ssl");
    set(conf, "ssl.ca.location", options->authority);
}

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
    (void)rk;
    (void)opaque;
    if (message->err) {
        if (failed++ == 0) fprintf(stderr, "load_generator: %s\n", rd_kafka_err2str(message->err));
    } else {
        acknowledged++;
    }
    last_event = now_seconds();
}

static int report(long messages, double seconds, double bytes, const char *more) {
    printf("{\"messages\": %ld, \"seconds\": %.6f, \"bytes\": %.0f, \"failed\": %ld%s}\n", messages, seconds, bytes, failed, more);
    return failed == 0 ? 0 : 1;
}

/* Values come from a block of noise at moving offsets, so that a codec meets text-like variety, not zeros. */
static const char *make_noise(void) {
    static char noise[NOISE_SIZE + VALUE_SIZE_MAX];
    unsigned state = 12345;
    for (size_t i = 0; i < sizeof noise; i++) {
        state = state * 1103515245u + 12345u;
        noise[i] = "abcdefghijklmnopqrstuvwxyz0123456789 /=&?."[(state >> 16) % 42];
    }
    return noise;
}

/* Avro's long: zigzag, seven bits a byte, the lowest first. */
static char *put_long(char *to, long long value) {
    unsigned long long left = ((unsigned long long)value << 1) ^ (unsigned long long)(value >> 63);
    while (left >= 0x80) {
        *to++ = (char)(left | 0x80);
        left >>= 7;
    }
    *to++ = (char)left;
    return to;
}

static char *put_string(char *to, const char *text, size_t size) {
    to = put_long(to, (long long)size);
    memcpy(to, text, size);
    return to + size;
}

static size_t put_event(char *event, const char *noise, long schema, long long start_ms, long i) {
    static const char producer[] = "0b0c3a1e-6a3f-4a0b-8f6e-2f1e7f1d2c3b", server[] = "web-1.dc-east";
    char *to = event;
    *to++ = 0;
    for (int shift = 24; shift >= 0; shift -= 8) *to++ = (char)(schema >> shift);
    to = put_long(to, start_ms + i / 1000);
    to = put_string(to, producer, sizeof producer - 1);
    to = put_long(to, i);
    to = put_string(to, server, sizeof server - 1);
    to = put_string(to, noise + (i * 7919) % NOISE_SIZE, (size_t)(PATH_SIZE_MIN + i * 31 % PATH_SIZES));
    to = put_long(to, i % 50 ? 200 : 404);
    to = put_long(to, i * 6151 % 20000);
    to = put_string(to, noise + (i % AGENTS) * 997, AGENT_SIZE);
    return (size_t)(to - event);
}

static rd_kafka_topic_t *find_topic(rd_kafka_t *rk, const char *name) {
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, name, NULL);
    const struct rd_kafka_metadata *metadata;
    if (rd_kafka_metadata(rk, 0, topic, &metadata, 30000)) die("metadata", "no answer");
    rd_kafka_metadata_destroy(metadata);
    return topic;
}

/* Producers that wait for company unless batches hold one message or latency is what counts. */
static void open_producers(Clients *clients, const Options *options, int is_hasty) {
    const long queue = (options->batch == 1 ? QUEUE_SINGLES_MAX : QUEUE_MESSAGES_MAX) / options->connections;
    clients->count = options->connections;
    for (long c = 0; c < clients->count; c++) {
        char why[512];
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        connect_to(conf, options);
        set(conf, "acks", options->acks);
        set(conf, "compression.codec", options->codec);
        set_number(conf, "batch.num.messages", options->batch > 0 ? options->batch : 100000);
        set(conf, "batch.size", "1000000");
        set(conf, "linger.ms", is_hasty || options->batch == 1 ? "0" : "50");
        set(conf, "socket.nagle.disable", is_hasty ? "true" : "false");
        set_number(conf, "queue.buffering.max.messages", queue > QUEUE_MESSAGES_MIN || options->batch == 1 ? queue : QUEUE_MESSAGES_MIN);
        rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
        clients->rk[c] = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof why);
        if (!clients->rk[c]) die("producer", why);
        clients->topic[c] = find_topic(clients->rk[c], options->topic);
    }
}

static void poll_all(const Clients *clients, int timeout_ms) {
    for (long c = 0; c < clients->count; c++) rd_kafka_poll(clients->rk[c], timeout_ms);
}

static void close_all(const Clients *clients) {
    for (long c = 0; c < clients->count; c++) {
        rd_kafka_topic_destroy(clients->topic[c]);
        rd_kafka_destroy(clients->rk[c]);
    }
}

static void publish(const Clients *clients, long c, long partition, const char *value, size_t size, double start) {
    while (rd_kafka_produce(clients->topic[c], (int)partition, RD_KAFKA_MSG_F_COPY, (void *)value, size, NULL, 0, NULL) == -1) {
        if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL) die("produce", rd_kafka_err2str(rd_kafka_last_error()));
        poll_all(clients, 0);
        rd_kafka_poll(clients->rk[c], 10);
        if (now_seconds() - start > SECONDS_MAX) die("produce", "out of time");
    }
}

static void await_acknowledgements(const Clients *clients, long sent, double start) {
    while (acknowledged + failed < sent && now_seconds() - start < SECONDS_MAX) poll_all(clients, clients->count == 1 ? 20 : 1);
    failed += sent - acknowledged - failed;
}

/* Where a partition ends. Its leader may not yet know that it leads a topic that was created just now. */
static int64_t ask_end(rd_kafka_t *rk, const char *topic, long partition) {
    const double start = now_seconds();
    int64_t low, end;
    rd_kafka_resp_err_t error;
    while ((error = rd_kafka_query_watermark_offsets(rk, topic, (int)partition, &low, &end, 30000))) {
        if (now_seconds() - start > 30) die("no end offset", rd_kafka_err2str(error));
        usleep(100000);
    }
    return end;
}

/* How many messages the broker holds, asked on each connection behind everything that was sent there. */
static long count_in_log(const Clients *clients, const Options *options) {
    int64_t low, high;
    long held = 0;
    for (long c = 0; c < clients->count; c++)
        if (rd_kafka_query_watermark_offsets(clients->rk[c], options->topic, 0, &low, &high, SECONDS_MAX * 1000)) die("acks=0", "no answer behind it");
    last_event = now_seconds();
    for (long p = 0; p < options->partitions; p++) held += (long)ask_end(clients->rk[0], options->topic, p);
    return held;
}

static int produce(const Options *options) {
    static Clients clients;
    const long long start_ms = (long long)time(NULL) * 1000;
    const char *noise = make_noise();
    char event[EVENT_SIZE_MAX];
    double bytes = 0;
    long i = 0;
    open_producers(&clients, options, 0);
    const double start = now_seconds();
    for (; options->messages == 0 || i < options->messages; i++) {
        const long c = i % clients.count, partition = (i / clients.count + c) % options->partitions;
        const char *value = options->schema >= 0 ? event : noise + (i * 7919) % NOISE_SIZE;
        const size_t size = options->schema >= 0 ? put_event(event, noise, options->schema, start_ms, i) : (size_t)options->size;
        publish(&clients, c, partition, value, size, start);
        bytes += (double)size;
        if (i % POLL_EVERY == 0) {
            poll_all(&clients, 0);
            if (options->seconds > 0 && now_seconds() - start >= options->seconds) {
                i++;
                break;
            }
        }
    }
    await_acknowledgements(&clients, i, start);
    if (!strcmp(options->acks, "0")) {
        const long held = count_in_log(&clients, options);
        failed += i - held;
        acknowledged = held;
    }
    const double seconds = last_event - start;
    close_all(&clients);
    return report(acknowledged, seconds, bytes, "");
}

static void keep_latency(Reader *reader, const rd_kafka_message_t *message, double now) {
    double due;
    memcpy(&due, message->payload, sizeof due);
    if (due < reader->counted_from || reader->latency_count >= reader->latency_space) return;
    reader->dues[reader->latency_count] = due;
    reader->latencies[reader->latency_count++] = now - due;
}

static void *read_on(void *argument) {
    Reader *reader = argument;
    rd_kafka_message_t **many = calloc(CONSUME_MANY, sizeof *many);
    while (!atomic_load(&stopped)) {
        const ssize_t count = rd_kafka_consume_batch_queue(reader->queue, 10, many, reader->latencies ? 1 : CONSUME_MANY);
        long bytes = 0, good = 0;
        const double now = reader->latencies ? now_seconds() : 0;
        for (ssize_t i = 0; i < count; i++) {
            if (many[i]->err) atomic_fetch_add(&read_errors, 1);
            else {
                good++;
                bytes += (long)many[i]->len;
                if (reader->latencies) keep_latency(reader, many[i], now);
            }
            rd_kafka_message_destroy(many[i]);
        }
        atomic_fetch_add(&seen_bytes, bytes);
        atomic_fetch_add(&seen, good);
    }
    free(many);
    return NULL;
}

static void open_reader(Reader *reader, const Options *options, long connections, int is_hasty) {
    char why[512];
    const long kilobytes = QUEUED_KILOBYTES / connections;
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    connect_to(conf, options);
    set(conf, "queued.min.messages", "1000000");
    set_number(conf, "queued.max.messages.kbytes", kilobytes > QUEUED_KILOBYTES_MIN ? kilobytes : QUEUED_KILOBYTES_MIN);
    set(conf, "fetch.wait.max.ms", is_hasty ? "500" : "100");
    set(conf, "socket.nagle.disable", is_hasty ? "true" : "false");
    set(conf, "enable.partition.eof", "false");
    reader->rk = rd_kafka_new(RD_KAFKA_CONSUMER, conf, why, sizeof why);
    if (!reader->rk) die("consumer", why);
    reader->topic = find_topic(reader->rk, options->topic);
    reader->queue = rd_kafka_queue_new(reader->rk);
}

/* Reader r of n takes each n-th partition, or one of them when there are more readers than partitions. Where they end is
 * asked before anything is fetched: an answer would have to wait behind a fetch that waits. */
static void assign(Reader *reader, const Options *options, long r, long connections, int is_from_end) {
    const long step = connections < options->partitions ? connections : options->partitions, first = r % options->partitions;
    int64_t *from = calloc((size_t)options->partitions, sizeof *from);
    for (long p = first; is_from_end && p < options->partitions; p += step) from[p] = ask_end(reader->rk, options->topic, p);
    for (long p = first; p < options->partitions; p += step)
        if (rd_kafka_consume_start_queue(reader->topic, (int)p, from[p], reader->queue)) die("consume", "cannot start");
    free(from);
}

static void start_readers(Reader *readers, long connections) {
    for (long r = 0; r < connections; r++)
        if (pthread_create(&readers[r].thread, NULL, read_on, &readers[r])) die("consume", "no thread");
}

static void stop_readers(Reader *readers, const Options *options, long connections) {
    const long step = connections < options->partitions ? connections : options->partitions;
    atomic_store(&stopped, 1);
    for (long r = 0; r < connections; r++) {
        pthread_join(readers[r].thread, NULL);
        for (long p = r % options->partitions; p < options->partitions; p += step) rd_kafka_consume_stop(readers[r].topic, (int)p);
        rd_kafka_queue_destroy(readers[r].queue);
        rd_kafka_topic_destroy(readers[r].topic);
        rd_kafka_destroy(readers[r].rk);
    }
}

static void await_messages(long messages, double seconds_max) {
    const double start = now_seconds();
    while (atomic_load(&seen) < messages && now_seconds() - start < seconds_max) sleep_until(now_seconds() + 0.001);
    failed += atomic_load(&read_errors);
    if (atomic_load(&seen) < messages) failed += messages - atomic_load(&seen);
}

static int consume(const Options *options) {
    static Reader readers[CONNECTIONS_MAX];
    for (long r = 0; r < options->connections; r++) open_reader(&readers[r], options, options->connections, 0);
    const double start = now_seconds();
    for (long r = 0; r < options->connections; r++) assign(&readers[r], options, r, options->connections, 0);
    start_readers(readers, options->connections);
    await_messages(options->messages, SECONDS_MAX);
    const double seconds = now_seconds() - start;
    const long messages = atomic_load(&seen);
    const double bytes = (double)atomic_load(&seen_bytes);
    stop_readers(readers, options, options->connections);
    return report(messages, seconds, bytes, "");
}

static int compare(const void *a, const void *b) {
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double percentile_ms(const double *sorted, long count, double share) {
    const long index = (long)(share * (double)count);
    return sorted[index < count ? index : count - 1] * 1e3;
}

static int report_latencies(Reader *readers, long connections, long sent, double seconds, double bytes) {
    long count = 0;
    for (long r = 0; r < connections; r++) count += readers[r].latency_count;
    if (count == 0) die("latency", "no message arrived after the warm-up");
    double *all = malloc((size_t)count * sizeof *all), *to = all;
    for (long r = 0; r < connections; r++) {
        memcpy(to, readers[r].latencies, (size_t)readers[r].latency_count * sizeof *to);
        to += readers[r].latency_count;
    }
    qsort(all, (size_t)count, sizeof *all, compare);
    char more[256];
    snprintf(more, sizeof more, ", \"p50_ms\": %.4f, \"p99_ms\": %.4f, \"p999_ms\": %.4f, \"max_ms\": %.4f", percentile_ms(all, count, 0.5),
             percentile_ms(all, count, 0.99), percentile_ms(all, count, 0.999), all[count - 1] * 1e3);
    return report(sent, seconds, bytes, more);
}

static void write_trace(const char *path, const Reader *readers, long connections) {
    FILE *file = fopen(path, "w");
    if (!file) die("trace", "the file cannot be written");
    for (long r = 0; r < connections; r++)
        for (long i = 0; i < readers[r].latency_count; i++) fprintf(file, "%.6f %.4f\n", readers[r].dues[i], readers[r].latencies[i] * 1e3);
    if (fclose(file)) die("trace", "the file cannot be written");
}

static void end_early(int number) {
    (void)number;
    is_ended = 1;
}

static int latency(const Options *options) {
    static Clients clients;
    static Reader readers[CONNECTIONS_MAX];
    static char value[VALUE_SIZE_MAX];
    const long connections = options->connections < options->partitions ? options->connections : options->partitions;
    const long most = (long)((options->seconds + WARM_UP_SECONDS) * (double)options->rate);
    long messages = 0;
    signal(SIGTERM, end_early);
    memcpy(value, make_noise(), sizeof value);
    open_producers(&clients, options, 1);
    for (long r = 0; r < connections; r++) {
        open_reader(&readers[r], options, connections, 1);
        readers[r].latency_space = most;
        readers[r].latencies = malloc((size_t)most * sizeof *readers[r].latencies);
        readers[r].dues = malloc((size_t)most * sizeof *readers[r].dues);
        assign(&readers[r], options, r, connections, 1);
    }
    const double start = now_seconds() + 0.1;
    for (long r = 0; r < connections; r++) readers[r].counted_from = start + WARM_UP_SECONDS;
    start_readers(readers, connections);
    for (; messages < most && !is_ended; messages++) {
        const double due = start + (double)messages / (double)options->rate;
        const long c = messages % clients.count;
        rd_kafka_poll(clients.rk[c], 0);
        if (now_seconds() < due) sleep_until(due);
        memcpy(value, &due, sizeof due);
        publish(&clients, c, messages % options->partitions, value, (size_t)options->size, start);
    }
    await_acknowledgements(&clients, messages, start);
    await_messages(messages, STRAGGLER_SECONDS_MAX);
    const double seconds = now_seconds() - start;
    stop_readers(readers, options, connections);
    close_all(&clients);
    if (options->trace) write_trace(options->trace, readers, connections);
    return report_latencies(readers, connections, messages, seconds, (double)messages * (double)options->size);
}

typedef struct {
    const Options *options;
    const char *noise;
    long number, transactions, messages;
    rd_kafka_t *producer, *consumer;
    rd_kafka_topic_t *topic;
    pthread_t thread;
} Transactor;

static void must(const char *what, rd_kafka_error_t *error) {
    if (error) die(what, rd_kafka_error_string(error));
}

static void open_transactor(Transactor *of) {
    char why[512], name[64];
    const Options *options = of->options;
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    snprintf(name, sizeof name, "bench-%ld", of->number);
    set(conf, "bootstrap.servers", options->bootstrap);
    set(conf, "transactional.id", name);
    set_number(conf, "batch.num.messages", options->batch);
    set(conf, "batch.size", "1000000");
    set(conf, "linger.ms", "50");
    of->producer = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof why);
    if (!of->producer) die("producer", why);
    of->topic = find_topic(of->producer, options->topic);
    must("init_transactions", rd_kafka_init_transactions(of->producer, 60000));
    if (!options->input) return;
    conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", options->bootstrap);
    set(conf, "group.id", name);
    set(conf, "enable.auto.commit", "false");
    of->consumer = rd_kafka_new(RD_KAFKA_CONSUMER, conf, why, sizeof why);
    if (!of->consumer) die("consumer", why);
    rd_kafka_poll_set_consumer(of->consumer);
    rd_kafka_topic_partition_list_t *own = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(own, options->input, (int)of->number)->offset = 0;
    /* The first group's coordinator is made when it is asked for, and waited for here: a transaction would run out of time. */
    if (rd_kafka_committed(of->consumer, own, 60000)) die("consumer", "no coordinator");
    own->elems[0].offset = 0;
    if (rd_kafka_assign(of->consumer, own)) die("consumer", "no assignment");
    rd_kafka_topic_partition_list_destroy(own);
}

static void put(Transactor *of, long partition, const char *value, size_t size) {
    while (rd_kafka_produce(of->topic, (int)partition, RD_KAFKA_MSG_F_COPY, (void *)value, size, NULL, 0, NULL) == -1) {
        if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL) die("produce", rd_kafka_err2str(rd_kafka_last_error()));
        rd_kafka_poll(of->producer, 10);
    }
}

/* A batch of the input goes to a partition of the output, and how far that was is part of the transaction. */
static void copy_batch(Transactor *of) {
    const Options *options = of->options;
    rd_kafka_topic_partition_list_t *position = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_t *next = rd_kafka_topic_partition_list_add(position, options->input, (int)of->number);
    for (long i = 0; i < options->batch; i++) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(of->consumer, 30000);
        if (!message || message->err) die("input", message ? rd_kafka_message_errstr(message) : "give it more");
        put(of, of->number % options->partitions, message->payload, message->len);
        next->offset = message->offset + 1;
        rd_kafka_message_destroy(message);
    }
    rd_kafka_consumer_group_metadata_t *group = rd_kafka_consumer_group_metadata(of->consumer);
    must("send_offsets", rd_kafka_send_offsets_to_transaction(of->producer, position, group, 60000));
    rd_kafka_consumer_group_metadata_destroy(group);
    rd_kafka_topic_partition_list_destroy(position);
}

static void *transact_on(void *argument) {
    Transactor *of = argument;
    const Options *options = of->options;
    const long each = options->input ? options->batch : options->batch * options->partitions;
    while (!atomic_load(&stopped)) {
        must("begin", rd_kafka_begin_transaction(of->producer));
        if (options->input) copy_batch(of);
        else
            for (long i = 0; i < each; i++)
                put(of, i / options->batch, of->noise + ((of->messages + i) * 7919) % NOISE_SIZE, (size_t)options->size);
        must("commit", rd_kafka_commit_transaction(of->producer, 60000));
        of->transactions++;
        of->messages += each;
    }
    return NULL;
}

static int transact(const Options *options) {
    static Transactor all[CONNECTIONS_MAX];
    long transactions = 0, messages = 0;
    for (long c = 0; c < options->connections; c++) {
        all[c] = (Transactor){.options = options, .noise = make_noise(), .number = c};
        open_transactor(&all[c]);
    }
    const double start = now_seconds();
    for (long c = 0; c < options->connections; c++)
        if (pthread_create(&all[c].thread, NULL, transact_on, &all[c])) die("transact", "no thread");
    sleep_until(start + options->seconds);
    atomic_store(&stopped, 1);
    for (long c = 0; c < options->connections; c++) {
        pthread_join(all[c].thread, NULL);
        transactions += all[c].transactions;
        messages += all[c].messages;
    }
    const double seconds = now_seconds() - start;
    for (long c = 0; c < options->connections; c++) {
        if (all[c].consumer) rd_kafka_consumer_close(all[c].consumer), rd_kafka_destroy(all[c].consumer);
        rd_kafka_topic_destroy(all[c].topic);
        rd_kafka_destroy(all[c].producer);
    }
    char more[64];
    snprintf(more, sizeof more, ", \"transactions\": %ld", transactions);
    return report(messages, seconds, (double)messages * (double)options->size, more);
}

static int take(Options *options, const char *name, const char *value) {
    const struct { const char *name; const char **text; long *number; } known[] = {
        {"bootstrap", &options->bootstrap, NULL},    {"topic", &options->topic, NULL},
        {"acks", &options->acks, NULL},              {"codec", &options->codec, NULL},
        {"partitions", NULL, &options->partitions},  {"connections", NULL, &options->connections},
        {"messages", NULL, &options->messages},      {"size", NULL, &options->size},
        {"batch", NULL, &options->batch},            {"rate", NULL, &options->rate},
        {"schema", NULL, &options->schema},          {"trace", &options->trace, NULL},
        {"input", &options->input, NULL},
        {"authority", &options->authority, NULL},
    };
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        if (!strcmp(name, known[k].name)) {
            if (known[k].text) *known[k].text = value;
            else *known[k].number = atol(value);
            return 1;
        }
    if (strcmp(name, "seconds")) return 0;
    options->seconds = atof(value);
    return 1;
}

static void check(const Options *options) {
    if (!options->bootstrap || !options->topic) die("usage", "bootstrap=HOST:PORT and topic=NAME are needed");
    if (options->connections < 1 || options->connections > CONNECTIONS_MAX) die("usage", "connections is from 1 to 1000");
    if (options->partitions < 1) die("usage", "partitions is at least 1");
    if (options->size < (long)sizeof(double) || options->size > VALUE_SIZE_MAX) die("usage", "size is from 8 to 65536");
    if (options->messages <= 0 && options->seconds <= 0) die("usage", "messages=N or seconds=S is needed");
}

int main(int argc, char **argv) {
    Options options = {.acks = "1", .codec = "none", .partitions = 1, .connections = 1, .size = 200, .rate = 1000, .schema = -1};
    for (int i = 2; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (!equals) die("usage", argv[i]);
        *equals = 0;
        if (!take(&options, argv[i], equals + 1)) die("usage: no such name", argv[i]);
    }
    if (argc > 1) {
        check(&options);
        if (!strcmp(argv[1], "produce")) return produce(&options);
        if (!strcmp(argv[1], "consume")) return consume(&options);
        if (!strcmp(argv[1], "latency")) return latency(&options);
        if (!strcmp(argv[1], "transact")) return transact(&options);
    }
    die("usage", "produce, consume, latency or transact, then NAME=VALUE...");
}
