"""A short run of `make fuzz` against a real broker: an ordinary client is served before, between and after."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from fuzz_clients import GROWTH_MAX, SETTINGS, Flood, Witness, resident_size
from processes import DevCluster

FRAMES_COUNT = 25_000
# By then groups, sessions and buffers have nearly the size that they keep: the next 50,000 frames add some 10 MiB.
WARM_UP_COUNT = 10_000
CONNECTIONS_COUNT = 16


@pytest.mark.long
def test_frames_of_every_kind_before_and_after_valid_sessions(dev_cluster: Callable[..., DevCluster]) -> None:
    cluster = dev_cluster(set=SETTINGS)
    process = cluster.broker_process()
    witness = Witness(cluster.addresses[0])
    witness.make_topics()
    witness.session()
    seed = os.environ.get("FUZZ_SEED", "headrace")
    flood = Flood(cluster, seed, connections=CONNECTIONS_COUNT)
    flood.run(WARM_UP_COUNT)
    witness.session()
    before = resident_size(process)
    flood.run(FRAMES_COUNT - WARM_UP_COUNT)
    witness.session()
    assert resident_size(process) - before <= GROWTH_MAX
    witness.close()
    failed = [line for line in cluster.broker_log().splitlines() if 'event="request failed"' in line]
    assert not failed, f"seed {seed}: {failed[0]}"
    assert min(flood.tally.answered, flood.tally.closed) > FRAMES_COUNT // 4
    assert cluster.stop() == 0
