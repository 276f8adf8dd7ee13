/* Load generator on librdkafka: the same client for every broker that is measured.
 *
 *   load_generator produce BOOTSTRAP TOPIC PARTITIONS MESSAGES SIZE BATCH ACKS CODEC
 *   load_generator consume BOOTSTRAP TOPIC PARTITIONS MESSAGES
 *
 * BATCH is the number of messages a record batch may hold, 0 for batches of up to 1 MB. A run prints one line of JSON:
 * messages, seconds from the first call to the last acknowledgement (or message), payload bytes, and failures. It exits
 * with 1 when a message failed or the run did not end within five minutes.
 */
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SECONDS_MAX = 300, QUEUE_MESSAGES_MAX = 200000, POLL_EVERY = 256, CONSUME_MANY = 10000 };

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

static int produce(char **argv) {
    const int partitions = atoi(argv[2]), size = atoi(argv[4]), batch = atoi(argv[5]);
    const long messages = atol(argv[3]);
    const long stripe = batch > 0 ? batch : 4000;
    char why[512], number[32];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", argv[0]);
    set(conf, "acks", argv[6]);
    set(conf, "compression.codec", argv[7]);
    snprintf(number, sizeof number, "%d", batch > 0 ? batch : 100000);
    set(conf, "batch.num.messages", number);
    set(conf, "batch.size", "1000000");
    set(conf, "linger.ms", batch == 1 ? "0" : "50");
    snprintf(number, sizeof number, "%d", (int)QUEUE_MESSAGES_MAX);
    set(conf, "queue.buffering.max.messages", number);
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof why);
    if (!rk) die("producer", why);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, argv[1], NULL);
    const struct rd_kafka_metadata *metadata;
    if (rd_kafka_metadata(rk, 0, topic, &metadata, 30000)) die("metadata", "no answer");
    rd_kafka_metadata_destroy(metadata);

    /* Payloads come from a block of noise at moving offsets, so that a codec meets text-like variety, not zeros. */
    const size_t block = (size_t)size + 65536;
    char *noise = malloc(block);
    unsigned state = 12345;
    for (size_t i = 0; i < block; i++) {
        state = state * 1103515245u + 12345u;
        noise[i] = "abcdefghijklmnopqrstuvwxyz0123456789 /=&?."[(state >> 16) % 42];
    }
    const double start = now_seconds();
    for (long i = 0; i < messages; i++) {
        const int partition = (int)((i / stripe) % partitions);
        while (rd_kafka_produce(topic, partition, RD_KAFKA_MSG_F_COPY, noise + (i * 7919) % 65536, (size_t)size, NULL, 0, NULL) == -1) {
            if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL) die("produce", rd_kafka_err2str(rd_kafka_last_error()));
            rd_kafka_poll(rk, 10);
            if (now_seconds() - start > SECONDS_MAX) die("produce", "out of time");
        }
        if (i % POLL_EVERY == 0) rd_kafka_poll(rk, 0);
    }
    while (acknowledged + failed < messages && now_seconds() - start < SECONDS_MAX) rd_kafka_poll(rk, 20);
    failed += messages - acknowledged - failed;
    const int code = report(acknowledged, last_event - start, (double)acknowledged * size);
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(rk);
    free(noise);
    return code;
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
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, argv[1], NULL);
    const struct rd_kafka_metadata *metadata;
    if (rd_kafka_metadata(rk, 0, topic, &metadata, 30000)) die("metadata", "no answer");
    rd_kafka_metadata_destroy(metadata);
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
    if (argc == 10 && !strcmp(argv[1], "produce")) return produce(argv + 2);
    if (argc == 6 && !strcmp(argv[1], "consume")) return consume(argv + 2);
    fprintf(stderr, "usage: load_generator produce BOOTSTRAP TOPIC PARTITIONS MESSAGES SIZE BATCH ACKS CODEC\n"
                    "       load_generator consume BOOTSTRAP TOPIC PARTITIONS MESSAGES\n");
    return 2;
}
