"""Where the time goes in cells whose budgets are out of reach so far; the page shows it beside a miss, and only there."""

from __future__ import annotations

from bench import audit_cells, fail_over_cells, log_in_cells, transaction_cells
from bench.workloads import CLUSTERED, FETCH_BY_TLS, PRODUCE_50_BY_50, PRODUCE_50_BY_TLS

_REPLICATED_50_BY_50 = next(
    workload for workload in CLUSTERED.values() if workload.batch == 50 and workload.connections == 50
)

PROFILES = {
    audit_cells.SCALE: (
        "some 700 producers are alive at a time here, and each publishes in every round. 36 % of the CPU gathers and judges what "
        "each tier holds of their streams, 25 % makes facts of what settles, 14 % is the outcome of all 7,800 that are open, "
        "and the rest takes in and folds counts and accounts (cProfile, 2026-11-24). What it would take: sums by topic of "
        "those that have nothing more to say, kept from round to round, in the place of a look at each."
    ),
    PRODUCE_50_BY_50.name: (
        "of the broker's CPU 54 % is Python (two fifths of it the append, a fifth the reading of requests), 37 % the kernel "
        "(writes to the log 14, receiving 8, answers 7, being preempted by the client's threads 8) and 5 % checksums (perf, "
        "2026-11-23). The client has 50 threads, each woken for a batch and for its answer, and takes two to three times the "
        "broker's CPU. 1.5 × Kafka's rate leaves the broker about 0.57 µs a message there, 28 µs a request. It takes 62; where "
        "the requests of all 50 connections lie ready when it looks, 32 to 37 (the turns' thread time in one process, quickest "
        "tenth of the rounds, 2026-11-24). To wait 1 to 4 ms between two looks, where many send, brings 4 to 17 % and takes 0 to "
        "10 % less CPU; 25 modules on that way compiled by mypyc bring 13 % and take 10 % less, for a second kind of broker to "
        "test (medians of 7 and 10 runs, 2026-11-28). What it would take: both, and the header's checks, offsets and index entry "
        "of a batch, some 6 µs, outside of the interpreter."
    ),
    PRODUCE_50_BY_TLS.name: (
        "librdkafka writes 55 TLS records for a batch of 50 (counted between it and a broker), and to read one takes 1.1 µs, of "
        "40 bytes as of 200; all but 0.1 of that is OpenSSL's (memory to memory, 2026-11-24). A client that writes its whole "
        "buffer, as Java's does, sends records of 16 KiB, which take 6 µs each, or 0.08 a message. What it would take: another "
        "library than OpenSSL 3.0."
    ),
    FETCH_BY_TLS.name: (
        "to encrypt 16 KiB takes 5.1 µs, or 0.06 a message; the rest of what TLS adds are copies, from the page cache, through "
        "OpenSSL's memory and into the socket, where sendfile makes none (memory to memory, 2026-11-24). What it would take: a "
        "kernel with TLS of its own."
    ),
    log_in_cells.LOG_INS: (
        "a log-in is a connection, four requests and their answers: 59 % of the CPU is Python, 30 % the kernel, half of that for "
        "sending, and 3 % the HMACs (perf, 2026-11-24), spread over accepting, frames, the exchange and closing. What it would "
        "take: fewer objects a connection."
    ),
    _REPLICATED_50_BY_50.name: (
        "of the three brokers' CPU 67 % is Python, 23 % the kernel (writes 8, receiving 6, sendfile 3, answers 2), 3 % uvloop "
        "and 3 % checksums (perf, 2026-11-23). The client has 150 threads here and takes more than half of the two cores: 2 × "
        "Kafka's rate leaves the brokers about 0.8 µs a message, 41 µs for what is parsed, checked and appended once by a leader "
        "and twice by followers. What it would take: as above, and a follower that appends a fetched run of batches without a "
        "look of its own at each."
    ),
    transaction_cells.TO_ONE.name: (
        "a transaction takes some 450 µs, of which EndTxn with all that follows from it takes 93, Produce 55 and "
        "AddPartitionsToTxn 50 (perf_counter around the gate, 2026-11-24), for three requests and five appends: three of its "
        "coordinator's state, its batch and its marker. The rest is receiving, taking turns and sending, a good part of it the "
        "kernel waking the client's threads. 16 ids lie in as many partitions of the coordinator's topic, so that there is "
        "nothing to append together. What it would take: fewer steps of the interpreter in each request and append."
    ),
    transaction_cells.TO_HUNDRED.name: (
        "librdkafka sends a Produce for each partition, so that a transaction is 102 requests and 203 appends. What it would "
        "take: Produce requests of several partitions in a transaction written together, as others are."
    ),
    transaction_cells.COPIED.name: (
        "a transaction is as in the cell of one batch, with AddOffsetsToTxn, TxnOffsetCommit, what the group's coordinator "
        "stores and a second marker besides; what is said of that cell holds here."
    ),
    fail_over_cells.STOPPED: (
        "for 0.3 s and more three brokers, the client and ZooKeeper want both cores: some 370 ms of CPU each broker that "
        "stays, 220 ms the leaving one's loop and 350 ms its threads, which closed 1,000 logs (perf by thread, 2026-11-24); "
        "and a message with its answer passes some five rounds of two loops. Since that profile closing them takes 60 ms, as"
        " logs without a batch are closed without a sync, the leaving broker follows nothing of what it led, which its new "
        "leaders proposed to have in sync again, and a follower asks for 100 new partitions a request, where one with all of"
        " them took up to 33 ms of the leader's loop in one piece (thread_time around each piece). What is left: of a "
        "staying controller's CPU 18 % takes what it told itself of leaders, 13 % fetches by itself, 11 % decides and 10 % "
        "tells the others (cProfile)."
    ),
    fail_over_cells.CONTROLLER_KILLED: (
        "no piece of the new controller's event loop takes more than 11 ms: reading the assignment of a topic of 5,000 "
        "partitions 7 to 11 ms, deciding who leads them ten slices of some 8 ms, each written and told before the next "
        "(perf_counter around both, 2026-11-24). For more than a second two brokers, the client and ZooKeeper want both "
        "cores. What it would take: more cores, or a controller in a process of its own."
    ),
}
"""By cell; figures that the table has are not repeated."""
