"""Where the time goes in cells whose budgets are out of reach so far; the page shows it beside a miss, and only there."""

from __future__ import annotations

from bench import audit_cells
from bench.workloads import CLUSTERED, PRODUCE_50_BY_50

_REPLICATED_50_BY_50 = next(
    workload for workload in CLUSTERED.values() if workload.batch == 50 and workload.connections == 50
)

PROFILES = {
    audit_cells.SCALE: (
        "some 700 producers are alive at a time here, and each publishes in every round. 54 % of the CPU judges their streams "
        "(what each tier holds of them is gathered and compared as small numpy arrays), 18 % making facts of what settles, 10 % "
        "the outcome of all that is open, and the rest taking in counts and accounts (cProfile of a twentieth, 2026-11-23). "
        "What it would take: sequences that are one run in all tiers, as nearly all are, judged without arrays."
    ),
    PRODUCE_50_BY_50.name: (
        "of the broker's CPU 54 % is Python (two fifths of it the append, a fifth the reading of requests), 37 % the kernel "
        "(writes to the log 14, receiving 8, answers 7, being preempted by the client's threads 8) and 5 % checksums (perf, "
        "2026-11-23). The client has 50 threads, each woken for a batch and for its answer, and takes two to three times the "
        "broker's CPU. 1.5 × Kafka's rate leaves the broker about 0.57 µs a message there, 28 µs a request. What it would "
        "take: the header's checks, offsets and index entry of a batch, some 6 µs, outside of the interpreter."
    ),
    _REPLICATED_50_BY_50.name: (
        "of the three brokers' CPU 67 % is Python, 23 % the kernel (writes 8, receiving 6, sendfile 3, answers 2), 3 % uvloop "
        "and 3 % checksums (perf, 2026-11-23). The client has 150 threads here and takes more than half of the two cores: 2 × "
        "Kafka's rate leaves the brokers about 0.8 µs a message, 41 µs for what is parsed, checked and appended once by a leader "
        "and twice by followers. What it would take: as above, and a follower that appends a fetched run of batches without a "
        "look of its own at each."
    ),
}
"""By cell; figures that the table has are not repeated."""
