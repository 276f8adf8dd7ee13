"""The pages of a process whose main thread works, over HTTP."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request

import pytest
from prometheus_client import CollectorRegistry

from headrace.broker.config.keys import ConfigurationError
from headrace.load.pages import Pages
from headrace.load.rounds import Rounds


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_metrics_and_probes_are_served_while_the_process_works() -> None:
    rounds = Rounds("headrace_test", 1.0)
    pages = Pages("127.0.0.1:0", CollectorRegistry(), rounds)
    try:
        assert get(pages.port, "/live")[0] == 200
        assert get(pages.port, "/ready")[0] == 503
        rounds.ended(0.25)
        assert get(pages.port, "/ready") == (200, '{"ready": true, "rounds": 1, "failed_rounds": 0}\n')
        status, text = get(pages.port, "/metrics")
        assert status == 200
        assert "headrace_test_round_seconds 0.25\n" in text
        assert "process_cpu_seconds_total " in text
        assert 'headrace_build_info{python="' in text
        assert get(pages.port, "/")[0] == 404
        with pytest.raises(ConfigurationError, match=r"--metrics-listener=.* an address that is free here"):
            Pages(f"127.0.0.1:{pages.port}", CollectorRegistry(), rounds)
    finally:
        pages.close()
    assert "pages" not in {thread.name for thread in threading.enumerate()}
