"""Every command in README.md, CONTRIBUTING.md and docs/ is run.

A fence marked `sh` or `python` is an example. The blocks of one page run in order in one shell, in a scratch folder that
holds a copy of the checkout's files by links. What a page cannot run by itself carries a comment on the line before the fence:

    <!-- background: TEXT -->   start it, go on when its output holds TEXT, stop it with SIGTERM at the page's end (exit 0 wanted)
    <!-- run by: FILE -->       the commands are run by that file of the repository, which must hold each of their lines

Other fences (`text`, `properties`, `json`, ...) show output or files and are no commands.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from long_runs import acceptance, long

ROOT = Path(__file__).resolve().parents[2]
# Their commands start Spark or brokers many times; test_e2e_load_iceberg.py asks Spark in short.
LONG_PAGES = {"querying.md", "mirror.md", "topics.md"}
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
RUNNABLE = {"sh", "python"}
PLAIN = {"text", "properties", "json", "yaml", "sql", "ini", "hcl"}
FENCE = re.compile(
    r"(?:^<!-- (?P<kind>background|run by): (?P<detail>.*?) -->\n)?^```(?P<language>\w*)\n(?P<body>.*?)^```$",
    re.M | re.S,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One fenced block of a page and how it is run."""

    language: str
    body: str
    kind: str | None
    detail: str


def examples_of(page: Path) -> list[Example]:
    """All runnable blocks of a page, in order."""
    found = []
    for match in FENCE.finditer(page.read_text()):
        language = match["language"]
        assert language in RUNNABLE | PLAIN, (
            f"{page.name}: a fence marked {language!r} is neither an example nor output"
        )
        if language in RUNNABLE:
            found.append(
                Example(
                    language=language, body=match["body"], kind=match["kind"], detail=match["detail"] or ""
                )
            )
    return found


def lines_of(example: Example) -> list[str]:
    """The commands of a block, without comments and empty lines."""
    return [line.strip() for line in example.body.splitlines() if line.strip() and not line.startswith("#")]


def start_background(example: Example, folder: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a block that goes on running and wait for the text that says it is ready."""
    output = folder / "background.out"
    with output.open("wb") as sink:
        process = subprocess.Popen(
            ["bash", "-c", "exec " + example.body.strip()],
            cwd=folder,
            env=environment,
            stdout=sink,
            stderr=sink,
        )
    deadline = time.monotonic() + 60
    while example.detail not in output.read_text():
        assert process.poll() is None, f"ended early: {output.read_text()}"
        assert time.monotonic() < deadline, f"never said {example.detail!r}: {output.read_text()}"
        time.sleep(0.1)
    return process


def run_block(example: Example, folder: Path, environment: dict[str, str]) -> None:
    """Run a block to its end and require success."""
    command = ["bash", "-euo", "pipefail", "-c"] if example.language == "sh" else ["python", "-c"]
    done = subprocess.run(
        [*command, example.body],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, f"{example.body}\n{done.stdout}\n{done.stderr}"


def test_examples_named_elsewhere_are_really_run_there() -> None:
    """`run by` points at a file that holds each line of the block."""
    pointed = 0
    for page in PAGES:
        for example in examples_of(page):
            if example.kind != "run by":
                continue
            text = (ROOT / example.detail).read_text()
            for line in lines_of(example):
                assert line in text, f"{page.name}: {example.detail} does not run `{line}`"
                pointed += 1
    assert pointed > 0


@pytest.mark.parametrize(
    "page",
    [README, *(long(page) if page.name in LONG_PAGES else acceptance(page) for page in PAGES[1:])],
    ids=lambda page: page.name,
)
def test_commands_of_the_page_work(page: Path, tmp_path: Path) -> None:
    """The blocks of a page succeed in order, background ones stop cleanly."""
    environment = {**os.environ, "PATH": f"{ROOT / '.venv/bin'}:{os.environ['PATH']}"}
    for entry in ROOT.iterdir():
        if entry.name not in {"var", ".git"}:
            (tmp_path / entry.name).symlink_to(entry)
    running: list[subprocess.Popen[bytes]] = []
    try:
        for example in examples_of(page):
            if example.kind == "background":
                running.append(start_background(example, tmp_path, environment))
            elif example.kind is None:
                run_block(example, tmp_path, environment)
    finally:
        for process in reversed(running):
            process.send_signal(signal.SIGTERM)
        codes = [process.wait(timeout=60) for process in reversed(running)]
    assert codes == [0] * len(running)
