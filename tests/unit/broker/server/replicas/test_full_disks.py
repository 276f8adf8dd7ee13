"""When others are asked to lead what a full disk holds, and when it is taken again."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, cast

import pytest

from headrace.broker.errors import StorageError
from headrace.broker.handlers.refused_writes import RefusedWrites
from headrace.broker.server.replicas import full_disks
from headrace.broker.server.replicas.full_disks import FullDisks
from headrace.broker.tasks import Tasks


class Replicas:
    """A broker that leads `led` partitions a directory; what is asked of it is kept in order."""

    def __init__(self, **led: int) -> None:
        self.led = {f"/{name}": count for name, count in led.items()}
        self.away: set[str] = set()
        self.asked: list[list[str]] = []

    def hand_over(self, directories: Collection[str]) -> int:
        return sum(self.led.get(directory, 0) for directory in directories)

    def handed_over_in(self) -> set[str]:
        return self.away

    def ask_again(self, full: Collection[str]) -> bool:
        self.asked.append(sorted(full))
        return bool(self.away - set(full))


class Disks:
    """`full` ones have no room."""

    def __init__(self, *full: str) -> None:
        self.full = {*full}
        self.tried: list[str] = []

    def has_room(self, directory: str, size: int) -> bool:
        self.tried.append(directory)
        return directory not in self.full


class Scene:
    """Full disks, with each question to the controller counted."""

    def __init__(self, replicas: Replicas, disks: Disks) -> None:
        self.replicas, self.disks = replicas, disks
        self.refused_writes = RefusedWrites()
        self.questions = 0
        self.question = asyncio.Event()
        self.tasks = Tasks()
        FullDisks(cast("Any", disks), self.refused_writes, cast("Any", replicas), self._ask).start(self.tasks)

    def _ask(self) -> None:
        self.questions += 1
        self.question.set()

    def refuse(self, directory: str) -> None:
        self.refused_writes.refused(f"{directory}/t-0", StorageError("full"), 0)

    async def asked(self, times: int) -> None:
        """Wait until the controller was asked so often from now on."""
        async with asyncio.timeout(10):
            for _ in range(times):
                self.question.clear()
                await self.question.wait()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_disks, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(full_disks, "REFUSED_INTERVAL_MS", 20)


def test_the_controller_is_asked_until_others_lead_what_a_full_disk_holds() -> None:
    async def script() -> tuple[Scene, int]:
        scene = Scene(Replicas(a=3, b=4), Disks("/a"))
        await asyncio.sleep(0.01)
        assert (scene.questions, scene.disks.tried) == (0, []), (
            "nothing is tried before a disk refuses a write"
        )
        scene.refuse("/a")
        await scene.asked(3)
        scene.replicas.led["/a"] = 0
        await asyncio.sleep(0.05)
        questions = scene.questions
        await asyncio.sleep(0.05)
        await scene.tasks.stop()
        return scene, questions

    scene, questions = asyncio.run(script())
    assert scene.questions == questions, "nobody is asked any more"
    assert {*scene.disks.tried} == {"/a"}


def test_a_disk_that_refused_a_write_and_has_room_keeps_what_it_has() -> None:
    async def script() -> Scene:
        scene = Scene(Replicas(a=3), Disks())
        scene.refuse("/a")
        await asyncio.sleep(0.05)
        await scene.tasks.stop()
        return scene

    scene = asyncio.run(script())
    assert (scene.questions, {*scene.disks.tried}) == (0, {"/a"})


def test_a_disk_refuses_writes_until_it_has_room() -> None:
    """Also where nobody writes any more."""

    async def script() -> Scene:
        scene = Scene(Replicas(), Disks("/a", "/b"))
        scene.refuse("/a")
        scene.refuse("/b")
        await asyncio.sleep(0.1)
        assert scene.refused_writes.directories == {"/a", "/b"}
        scene.disks.full.remove("/a")
        await asyncio.sleep(0.5)
        await scene.tasks.stop()
        return scene

    refused_writes = asyncio.run(script()).refused_writes
    assert (refused_writes.directories, refused_writes.counts) == ({"/b"}, {"/a": 1, "/b": 1})


def test_what_others_have_is_asked_for_once_its_disk_has_room() -> None:
    async def script() -> Scene:
        scene = Scene(Replicas(), Disks("/a"))
        scene.replicas.away.add("/a")
        await asyncio.sleep(0.1)
        assert scene.questions == 0
        scene.disks.full.clear()
        await scene.asked(1)
        await scene.tasks.stop()
        return scene

    scene = asyncio.run(script())
    assert (scene.replicas.asked[0], scene.replicas.asked[-1]) == (["/a"], [])
