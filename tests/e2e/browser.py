"""A headless Chromium that looks at a page as people do: what it draws, what it complains of, what covers what."""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

PICTURES = Path(__file__).parents[2] / "var" / "browser"
"""Where the pictures of the last run stay."""
OVERLAPPING = """
const boxes = [...document.querySelectorAll("section, header, figure, .lane, .station, .hop, h2, table")]
  .map((each) => [each, each.getBoundingClientRect()])
  .filter(([, box]) => box.width > 0 && box.height > 0);
const scrolls = (each) => each.closest(".scroll");
const found = [];
for (const [one, a] of boxes) for (const [two, b] of boxes) {
  if (one === two || one.contains(two) || two.contains(one)) continue;
  if (!(one.compareDocumentPosition(two) & Node.DOCUMENT_POSITION_FOLLOWING)) continue;
  if (scrolls(one) || scrolls(two)) continue;
  const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
  const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
  if (wide > 1 && high > 1) found.push(`${one.tagName}.${one.className} covers ${two.tagName}.${two.className}`);
}
return found;
"""
EMPTY_PLOTS = """
return [...document.querySelectorAll("figure svg")]
  .map((each) => [Math.round(each.getBoundingClientRect().height), each.querySelectorAll("path, rect, use, text").length])
  .filter(([height, drawn]) => height < 80 || drawn < 1);
"""
DEAD_LINKS = """
return [...document.querySelectorAll('a[href^="#"]')].map((each) => each.getAttribute("href"))
  .filter((href) => !document.getElementById(href.slice(1)));
"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser for the time of the block. Skips where there is none, but not where CI is set."""
    driver = shutil.which("chromedriver")
    if driver is None:
        why = "No chromedriver is installed: scripts/setup long installs Debian's chromium-driver."
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    options = webdriver.ChromeOptions()
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--force-color-profile=srgb",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = webdriver.Chrome(options, Service(driver))
    try:
        yield Browser(started)
    finally:
        started.quit()


class Browser:
    """One window."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver
        self.complaints: list[str] = []

    def look_at(self, url: str, width: int, *, is_dark: bool = False) -> None:
        """Open a page in a window of that width, in pixels."""
        sized = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", sized)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        self.driver.get(url)

    def ask(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def text(self, selector: str) -> str:
        """What is to be read there; empty where there is nothing."""
        return str(self.ask("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def count(self, selector: str) -> int:
        return int(self.ask("return document.querySelectorAll(arguments[0]).length", selector))

    def faults(self) -> dict[str, Any]:
        """What is wrong with how the page is drawn, and what the browser complained of; nothing when all is well."""
        self.complaints += [entry["message"] for entry in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]
        found = {
            "complaints": self.complaints,
            "covered": self.ask(OVERLAPPING),
            "empty plots": self.ask(EMPTY_PLOTS),
            "dead links": self.ask(DEAD_LINKS),
            "wider than the window": self.ask(
                "const it = document.documentElement; return it.scrollWidth - it.clientWidth"
            ),
        }
        return {name: each for name, each in found.items() if each}

    def keep(self, name: str) -> None:
        """Keep a picture of the whole page."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        size = self.ask("const it = document.documentElement; return [it.clientWidth, it.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}
        shot = self.driver.execute_cdp_cmd(
            "Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip}
        )
        (PICTURES / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))
