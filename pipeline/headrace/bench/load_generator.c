/* Load generator on librdkafka: the same client for every broker that is measured.
 *
 *   load_generator produce BOOTSTRAP TOPIC PARTITIONS MESSAGES SIZE BATCH ACKS CODEC
 *   load_generator events BOOTSTRAP TOPIC PARTITIONS MESSAGES SCHEMA_ID
 *   load_generator consume BOOTSTRAP TOPIC PARTITIONS MESSAGES
 *
 * `produce` publishes noise of SIZE bytes; `events` publishes flat Avro events (flat_event.avsc) of 200 bytes on average
 * behind the schema registry's frame. BATCH is the number of messages a record batch may hold, 0 for batches of up to 1 MB. A run prints one line of JSON:
 * messages, seconds from the first call to the last acknowledgement (or message), payload bytes, and failures. It exits
 * with 1 when a message failed or the run did not end within five minutes.
 */
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SECONDS_MAX = 300, QUEUE_MESSAGES_MAX = 200000, POLL_EVERY = 256, CONSUME_MANY = 10000 };
enum { NOISE_SIZE = 65536, VALUE_SIZE_MAX = 65536, EVENT_SIZE_MAX = 512, PATH_SIZE_MIN = 20, PATH_SIZES = 41, AGENTS = 61, AGENT_SIZE = 83 };

typedef struct {
    int size;           /* of a value of noise */
    long schema_id;     /* -1: noise, else events of this schema */
    long long start_ms; /* when the first event happened */
} Values;

static long acknowledged, failed;
static double last_event;

static double now_seconds(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void die(const char *what, const char *why) {
    fprintf(stderr, "load_generator: %s: %s\n", what, why);
    exit(2);
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char why[512];
    if (rd_kafka_conf_set(conf, name, value, why, sizeof why) != RD_KAFKA_CONF_OK) die(name, why);
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

static int report(long messages, double seconds, double bytes) {
    printf("{\"messages\": %ld, \"seconds\": %.6f, \"bytes\": %.0f, \"failed\": %ld}\n", messages, seconds, bytes, failed);
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

static size_t put_event(char *event, const char *noise, const Values *values, long i) {
    static const char producer[] = "0b0c3a1e-6a3f-4a0b-8f6e-2f1e7f1d2c3b", server[] = "web-1.dc-east";
    char *to = event;
    *to++ = 0;
    for (int shift = 24; shift >= 0; shift -= 8) *to++ = (char)(values->schema_id >> shift);
    to = put_long(to, values->start_ms + i / 1000);
    to = put_string(to, producer, sizeof producer - 1);
    to = put_long(to, i);
    to = put_string(to, server, sizeof server - 1);
    to = put_string(to, noise + (i * 7919) % NOISE_SIZE, (size_t)(PATH_SIZE_MIN + i * 31 % PATH_SIZES));
    to = put_long(to, i % 50 ? 200 : 404);
    to = put_long(to, i * 6151 % 20000);
    to = put_string(to, noise + (i % AGENTS) * 997, AGENT_SIZE);
    return (size_t)(to - event);
}

static rd_kafka_t *new_producer(const char *bootstrap, long batch, const char *acks, const char *codec) {
    char why[512], number[32];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", bootstrap);
    set(conf, "acks", acks);
    set(conf, "compression.codec", codec);
    snprintf(number, sizeof number, "%ld", batch > 0 ? batch : 100000);
    set(conf, "batch.num.messages", number);
    set(conf, "batch.size", "1000000");
    set(conf, "linger.ms", batch == 1 ? "0" : "50");
    snprintf(number, sizeof number, "%d", (int)QUEUE_MESSAGES_MAX);
    set(conf, "queue.buffering.max.messages", number);
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof why);
    if (!rk) die("producer", why);
    return rk;
}

static rd_kafka_topic_t *find_topic(rd_kafka_t *rk, const char *name) {
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, name, NULL);
    const struct rd_kafka_metadata *metadata;
    if (rd_kafka_metadata(rk, 0, topic, &metadata, 30000)) die("metadata", "no answer");
    rd_kafka_metadata_destroy(metadata);
    return topic;
}

static int produce(rd_kafka_t *rk, const char *name, int partitions, long messages, long batch, const Values *values) {
    const long stripe = batch > 0 ? batch : 4000;
    const char *noise = make_noise();
    char event[EVENT_SIZE_MAX];
    double bytes = 0;
    rd_kafka_topic_t *topic = find_topic(rk, name);
    const double start = now_seconds();
    for (long i = 0; i < messages; i++) {
        const int partition = (int)((i / stripe) % partitions);
        const int is_event = values->schema_id >= 0;
        const char *value = is_event ? event : noise + (i * 7919) % NOISE_SIZE;
        const size_t size = is_event ? put_event(event, noise, values, i) : (size_t)values->size;
        while (rd_kafka_produce(topic, partition, RD_KAFKA_MSG_F_COPY, (void *)value, size, NULL, 0, NULL) == -1) {
            if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL) die("produce", rd_kafka_err2str(rd_kafka_last_error()));
            rd_kafka_poll(rk, 10);
            if (now_seconds() - start > SECONDS_MAX) die("produce", "out of time");
        }
        bytes += (double)size;
        if (i % POLL_EVERY == 0) rd_kafka_poll(rk, 0);
    }
    while (acknowledged + failed < messages && now_seconds() - start < SECONDS_MAX) rd_kafka_poll(rk, 20);
    failed += messages - acknowledged - failed;
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(rk);
    return report(acknowledged, last_event - start, bytes);
}

static int produce_noise(char **argv) {
    const Values values = {.size = atoi(argv[4]), .schema_id = -1};
    if (values.size < 0 || values.size > VALUE_SIZE_MAX) die("produce", "SIZE is from 0 to 65536");
    rd_kafka_t *rk = new_producer(argv[0], atol(argv[5]), argv[6], argv[7]);
    return produce(rk, argv[1], atoi(argv[2]), atol(argv[3]), atol(argv[5]), &values);
}

static int produce_events(char **argv) {
    const Values values = {.schema_id = atol(argv[4]), .start_ms = (long long)time(NULL) * 1000};
    return produce(new_producer(argv[0], 0, "1", "none"), argv[1], atoi(argv[2]), atol(argv[3]), 0, &values);
}

static int consume(char **argv) {
    const int partitions = atoi(argv[2]);
    const long messages = atol(argv[3]);
    static rd_kafka_message_t *many[CONSUME_MANY];
    char why[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", argv[0]);
    set(conf, "queued.min.messages", "1000000");
    set(conf, "fetch.wait.max.ms", "100");
    set(conf, "enable.partition.eof", "false");
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_CONSUMER, conf, why, sizeof why);
    if (!rk) die("consumer", why);
    rd_kafka_topic_t *topic = find_topic(rk, argv[1]);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
    const double start = now_seconds();
    for (int p = 0; p < partitions; p++)
        if (rd_kafka_consume_start_queue(topic, p, RD_KAFKA_OFFSET_BEGINNING, queue)) die("consume", "cannot start");
    long seen = 0;
    double bytes = 0;
    while (seen < messages && now_seconds() - start < SECONDS_MAX) {
        const ssize_t count = rd_kafka_consume_batch_queue(queue, 100, many, CONSUME_MANY);
        for (ssize_t i = 0; i < count; i++) {
            if (many[i]->err) failed++;
            else { seen++; bytes += (double)many[i]->len; }
            rd_kafka_message_destroy(many[i]);
        }
    }
    const double seconds = now_seconds() - start;
    if (seen < messages) failed += messages - seen;
    for (int p = 0; p < partitions; p++) rd_kafka_consume_stop(topic, p);
    rd_kafka_queue_destroy(queue);
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(rk);
    return report(seen, seconds, bytes);
}

int main(int argc, char **argv) {
    if (argc == 10 && !strcmp(argv[1], "produce")) return produce_noise(argv + 2);
    if (argc == 7 && !strcmp(argv[1], "events")) return produce_events(argv + 2);
    if (argc == 6 && !strcmp(argv[1], "consume")) return consume(argv + 2);
    fprintf(stderr, "usage: load_generator produce BOOTSTRAP TOPIC PARTITIONS MESSAGES SIZE BATCH ACKS CODEC\n"
                    "       load_generator events BOOTSTRAP TOPIC PARTITIONS MESSAGES SCHEMA_ID\n"
                    "       load_generator consume BOOTSTRAP TOPIC PARTITIONS MESSAGES\n");
    return 2;
}
