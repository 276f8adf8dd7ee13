"""A demo of which one broker is lost for good, its data with it, at any moment of the replay: still every event, once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from demo_process import SERVICES, DemoProcess, copy_of_local
from odd_demo import assert_everything_is_there, environment_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
BROKERS = sorted(service for service in SERVICES if "-broker-" in service)
FIRST, LAST = 0.2, 0.8


@pytest.mark.parametrize("broker", BROKERS)
def test_a_demo_ends_complete_though_a_broker_never_comes_back(
    alone: None, tmp_path: Path, broker: str
) -> None:
    inventory = copy_of_local(tmp_path, network=79)
    with DemoProcess(tmp_path, inventory=inventory, environment=environment_of(tmp_path)) as demo:
        moment = random.Random(broker).uniform(FIRST, LAST)
        demo.wait_until_published(moment)
        demo.lose(broker)
        assert demo.wait() == 0, f"lost at {moment:.0%} of the replay: {demo.text()}"
    assert {each.name for each in (demo.root / "data").glob("*-broker-*")} == {*BROKERS} - {broker}
    assert_everything_is_there(demo.report())
