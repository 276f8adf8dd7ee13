"""Produce (key 0): the way of a client's batches into the logs that this broker leads, one file a step.

    read → (gather → (join)) → check → (verify) → append → (may park) → answer

`handler` is the way itself: it is given a request, and what came together with it, and goes through the steps.

1. `read` turns a frame into acks, a time limit and items: a topic, a partition and the records for it. From version 3 on it reads
   by hand, without the codec, what has nothing odd about it; the codec reads the rest, and says what is wrong. A request
   of one item, as librdkafka sends them, has a `Head`: all that stands before its records, which is the same for
   everything that a client sends to a partition, and is read once.

2. `gather` takes the requests that came together as far as they can be written together: of one item each, a plain batch for a
   partition whose log takes it as it is, all with the same acks, and with the same time limit where they may have to wait.
   What is not like that ends the gathering and is served alone, in its turn. A gathering has a run of batches for each
   partition, in the order of the requests. Nobody is promised an order between partitions (who wants one waits for the answer
   before sending on); within one it is kept, and what depends on what came before, such as the sequence numbers of an
   idempotent producer, the log judges batch by batch: whatever becomes of a request, the next one meets the log as if all had
   come alone.

3. `gathered` takes what was gathered further: where other connections have their turn at once, what is not large joins the
   round (`waiting.round`), at whose end each partition has one write for all of them; each connection is answered for
   itself, as soon as what it sent may be acknowledged. What a connection sends behind something that has joined is never
   appended before it.

4. `check` refuses what no log needs to look at (acks that there are not, no records, transactions, zstd before its
   time, topics that only brokers write), and makes message formats 0 and 1, which versions 0-2 carry, format 2. What was
   gathered has been looked at already: it is plain.

5. `verify` tells which batches are the first of a transaction in their partition: before those are appended the coordinator
   is asked whether the transaction has the partition (KIP-890), unless `transaction.partition.verification.enable` is false.
   `transaction` is the way of a request with a transactional id: what has to wait for the coordinator's answer is appended
   when that is there, the rest at once.

6. `append` hands records to the leader of their partition, those of a run with one write, and wakes once a run those who wait
   for the partition. An error belongs to its item, and leaves the log as it was. What became of an item is its `Outcome`.

7. `park` holds an answer back: with acks=all until the high watermark has passed the records, with `flush.messages`
   until they are on the disk, and not longer than the time limit. A leader that leads no more, or again, answers
   NOT_LEADER_OR_FOLLOWER, one with too few in sync NOT_ENOUGH_REPLICAS_AFTER_APPEND, a disk that failed
   KAFKA_STORAGE_ERROR. What was gathered is parked once, and answered together; what the client sends meanwhile is
   appended behind it (`server.sockets.channel` keeps the order).

8. `answer` writes the outcomes, by hand where all went well, else with the codec, in the order of the requests. acks=0 has
   no answer: an error closes the connection, as in Kafka; what was gathered behind the refused batch may be in the log then.

Bounds: a gathering has at most `gather.REQUESTS_MAX` requests and `gather.RUNS_MAX` runs, so that a turn (`server.sockets.turns`)
does not last much longer than it should; what joins a round has at most `gathered.JOINING_REQUESTS_MAX` requests and
`gathered.JOINING_SIZE_MAX` bytes, and a round ends when it is full. What has to be unpacked is never gathered, and a request
with many such batches is cut off after `handler.WORK_MS_MAX`: the rest of its items are refused with REQUEST_TIMED_OUT, to
be sent again.

Deviations: a mirror's copy takes nothing from clients: POLICY_VIOLATION.
"""
