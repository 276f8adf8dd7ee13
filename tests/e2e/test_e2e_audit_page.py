"""The live page of the audit in a browser, while events flow and some of them are lost and doubled on purpose."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from audit_world import AuditWorld
from browser import Browser, chromium
from processes import eventually
from selenium.webdriver.common.keys import Keys
from test_e2e_audit_faults import change_table, changed
from zookeeper_process import ZooKeeperProcess

HEADRACE = str(Path(sys.executable).with_name("headrace"))
pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture
def world(tmp_path: Path, zookeeper: ZooKeeperProcess) -> Iterator[AuditWorld]:
    """Lost and doubled between datacenters and on the way to the table."""
    world = AuditWorld(tmp_path, zookeeper)
    try:
        world.noise(3)
        world.publish(500)
        world.count("live")
        world.copy(changed({100, 101}, {110}))
        world.count("offline")
        world.load()
        change_table(world, {200}, {210})
        yield world
    finally:
        world.end()


@pytest.fixture
def url(world: AuditWorld) -> Iterator[str]:
    command = [HEADRACE, "audit", "serve", "--bootstrap", world.offline.bootstrap, "--interval", "0.5"]
    command += ["--warehouse", str(world.warehouse), "--listen", "127.0.0.1:0", "--allow-accept"]
    served = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert served.stdout is not None
    said, _, url = served.stdout.readline().strip().partition(" ")
    assert said == "serving"
    yield url
    served.terminate()
    assert served.wait(20) == 0


def rows(browser: Browser) -> int:
    return browser.count("#findings tbody tr")


def test_a_browser_shows_what_happens_at_both_widths(world: AuditWorld, url: str) -> None:
    with chromium() as browser:
        browser.look_at(url, 1280)
        eventually(lambda: "loss" in browser.text("header.verdict").lower(), what="the verdict")
        assert rows(browser) == 4
        assert browser.count("figure svg") >= 2
        assert browser.faults() == {}
        browser.keep("wide")
        check_narrowed(browser)
        check_times(browser)
        check_accepted(browser)
        check_growth(world, browser)
        for width, is_dark in ((1280, True), (420, False), (420, True)):
            browser.look_at(url, width, is_dark=is_dark)
            eventually(lambda: rows(browser) == 4, what="the findings")
            assert browser.faults() == {}
            browser.keep(f"{width}-{'dark' if is_dark else 'light'}")
        check_colours(browser, url)


def check_narrowed(browser: Browser) -> None:
    """By the form, with the keyboard alone; the address of what is seen can be given away."""
    browser.ask("document.querySelector('#findings select[name=kind]').focus()")
    field = browser.driver.switch_to.active_element
    field.send_keys("duplicate")
    field.send_keys(Keys.TAB)
    browser.ask("document.querySelector('#findings form').requestSubmit()")
    eventually(lambda: "kind=duplicate" in browser.driver.current_url, what="the address")
    eventually(lambda: rows(browser) == 2, what="the doubled alone")
    assert "2 of 4" in browser.text("#findings")
    browser.driver.back()
    eventually(lambda: rows(browser) == 4, what="all findings again")


def is_told(browser: Browser, text: str, wanted: bool) -> bool:
    return (text in browser.text("#findings")) == wanted


def check_accepted(browser: Browser) -> None:
    """A finding is accepted and opened again, by the dialog; the filter tells both kinds apart."""
    for verb, is_accepted in (("accept", True), ("reopen", False)):
        browser.ask(f"document.querySelector('[data-{verb}]').click()")
        assert browser.ask("return document.getElementById('accepting').open")
        browser.keep(f"dialog-{verb}")
        for name, text in (("by", "ada"), ("reason", "by hand")):
            browser.ask(f"document.querySelector('#accepting [name={name}]').value = '{text}'")
        browser.ask("document.querySelector('#accepting form').requestSubmit()")
        eventually(lambda: not browser.count("#accepting[open]"), what="an answer")
        told = functools.partial(is_told, browser, "by hand", is_accepted)
        eventually(told, what=verb)
        assert browser.faults() == {}
    browser.ask("document.querySelector('#findings select[name=state]').value = 'accepted'")
    browser.ask("document.querySelector('#findings form').requestSubmit()")
    eventually(lambda: "0 of 4" in browser.text("#findings"), what="nothing accepted")
    browser.driver.back()
    eventually(lambda: rows(browser) == 4, what="all findings again")


def check_times(browser: Browser) -> None:
    utc = browser.text("#findings time")
    browser.ask("document.getElementById('times').click()")
    assert browser.text("#findings time").endswith("ago")
    browser.ask("document.getElementById('times').click()")
    assert browser.text("#findings time") == utc


def check_growth(world: AuditWorld, browser: Browser) -> None:
    """What is published meanwhile is seen without the page being opened again."""
    before = browser.text(".station b")
    browser.ask("window.isTheSame = true")
    world.publish(77)
    world.count("live")
    world.copy()
    world.count("offline")
    eventually(lambda: browser.text(".station b") != before, what="the page's counts")
    assert browser.ask("return window.isTheSame")
    assert browser.faults() == {}


def check_colours(browser: Browser, url: str) -> None:
    shades = []
    for is_dark in (False, True):
        browser.look_at(url, 420, is_dark=is_dark)
        shades.append(browser.ask("return getComputedStyle(document.body).backgroundColor"))
    assert shades[0] != shades[1]
