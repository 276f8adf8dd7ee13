"""The live page of 1,000 topics and 10,000 findings in a browser: it is drawn without a fault, and follows what changes."""

from __future__ import annotations

import pytest
from browser import chromium
from processes import eventually

from bench.large_page import changed, large_view, served

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
COUNT = "return document.querySelector('#findings td.number:nth-child(9)')?.textContent"


@pytest.mark.parametrize("width", [1280, 420])
def test_a_large_page_is_drawn_and_follows_what_changes(width: int) -> None:
    view = large_view()
    with served(view) as (url, board), chromium() as browser:
        browser.look_at(url, width)
        eventually(lambda: "As of" in browser.text("#state"), what="the first event")
        assert browser.faults() == {}
        assert browser.ask(COUNT) == "1"
        board.put_up(changed(view))
        eventually(lambda: browser.ask(COUNT) == "2", what="the update")
        assert browser.faults() == {}
