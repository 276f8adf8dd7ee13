"""Fetch (key 1): the way from logs that this broker leads to a client or a follower, one file a step.

    read → session → plan → partition (each) → (may park) → head (each) → answer

`handler` is the way itself: it is given a request and goes through the steps.

1. `read` turns a frame into a FetchRequest: versions 9 and later, which consumers of today and followers use, by hand, without
   the codec; the codec reads the rest (old versions, forgotten topics, tagged fields, frames of uncommon size) and says what
   is wrong.

2. `handlers.fetch_sessions` (KIP-227) remember what a client asked for, so that it names only what changes: of the session's
   partitions those are read that moved, are asked for anew or had something to give, and of the answer only what is new to the
   client leaves. A request outside of any session passes by. Their number is max.incremental.fetch.session.cache.slots, and
   `fetch_sessions.PARTITIONS_COUNT_MAX` bounds what they remember.

3. `plan` says what has to be read. Each connection has a Reading (`call.client.reading`), which keeps from one request to the
   next what a partition without news was answered with, its bytes included, as long as neither the question nor the
   partition changes: so a client of a thousand quiet partitions costs little more than one of a single partition.

4. `partition` reads one: is it here, led (for consumers from version 11 on also followed), in the epoch that the client
   believes in; up to the high watermark, the last stable offset or, for a follower, the end; a diverging epoch is told,
   and to a consumer in the rack of another replica that it is better read from there (`handlers.read_replicas`). Where a
   follower is, its leader notes once, when the request arrives. What it finds is a Found (`found`): a slice of a
   segment file, never its bytes. Clients that know only message formats 0 and 1 are the exception: `legacy.fetched`
   converts for them, in bounded pieces. So are consumers that count batches and want their headers alone, which no other
   engine has (`batch_headers`).

5. A fetch that found less than its minimum is parked (`waiting.parking`) until one of its partitions moves, for a follower the
   end of its log, or its time is over. Errors, diverging epochs and a segment that others follow end the wait at once. A
   partition that the cluster does not have neither ends nor begins it. A wake-up reads again only what moved.

6. `head` writes what stands before a partition's records, `answer` the whole around the slices, which the connection hands to
   `os.sendfile`.

Invariants: nobody is given a record above the high watermark, but followers; with read_committed none above the last stable
offset; the first batch comes whole, however small the client's limits are.

Deviations: the first batch of versions 0 to 3 comes whole even where Kafka would cut it; sessions (KIP-227)
are refused beyond a number of partitions in all of them, where Kafka bounds the sessions only.
"""
