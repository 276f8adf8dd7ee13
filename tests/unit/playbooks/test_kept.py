"""What a service ran last that passed its gate: kept before a change, gone back to, forgotten, whatever is interrupted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from playbooks_kit import load

service_module = load("headrace_service")
fingerprint = load("ansible.module_utils.headrace_fingerprint")
kept = load("ansible.module_utils.headrace_kept")


class Manager:
    """Runs a process that tells what it was started from, as run.sh does; `broken` contents do not serve."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments
        self.runs: str | None = None
        self.broken: set[str] = set()
        self.starts = 0

    def state(self) -> str:
        return "missing" if self.runs is None else "running"

    def process_id(self) -> int:
        return 1

    def start(self) -> None:
        path = Path(self.arguments["files"][0]["path"])
        content = Path(self.arguments["definition"]["path"]).read_text()
        definition = content.removeprefix("HEADRACE_DEFINITION=").split()[0]
        lines = [f"{definition}  definition", f"{fingerprint.digest(path.read_text())}  {path}"]
        lines += [
            f"{fingerprint.writing_of(str(each))}  {each}" for each in sorted(path.parent.glob("*.secret"))
        ]
        self.runs = "\n".join([*lines, "/releases/1"])
        self.starts += 1

    restart = start

    def complaint(self) -> str | None:
        path = Path(self.arguments["files"][0]["path"])
        return "it ended" if path.read_text() in self.broken else None

    def log_tail(self, log: str) -> list[str]:
        return []

    def comes_back(self) -> None:
        return None


class World:
    """One service on a host, with what a play wants of it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.file, self.folder = (
            folder / "config" / "service" / "settings",
            folder / "config" / "service" / "kept",
        )
        self.arguments: dict[str, Any] = {
            "name": "service",
            "manager": "systemd",
            "definition": {
                "path": str(folder / "unit"),
                "content": "HEADRACE_DEFINITION=@digest@ run\n",
                "mode": "0644",
            },
            "files": [],
            "secrets": {},
            "secret_dir": str(folder / "config" / "service"),
            "secret_group": None,
            "release": "/releases/1",
            "directories": [],
            "directory_owner": None,
            "health": None,
            "kept": str(self.folder),
            "gated": True,
            "deferred": False,
            "timeout_s": 0,
            "log": "log",
        }
        self.want("one")
        self.manager = Manager(self.arguments)
        monkeypatch.setattr(service_module, "Systemd", lambda name: self.manager)
        monkeypatch.setattr(fingerprint, "running", lambda pid: self.manager.runs or "")

    def want(self, content: str) -> None:
        self.arguments["files"] = [{"path": str(self.file), "content": content, "mode": "0640"}]
        if hasattr(self, "manager"):
            self.manager.arguments = self.arguments

    def bring(self, state: str, check_mode: bool = False) -> Any:
        self.arguments["state"] = state
        service = service_module.Service(self.arguments)
        return service_module.STATES[state](service, check_mode)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    found = World(tmp_path, monkeypatch)
    assert found.bring("started")["changed"]
    assert not kept.is_kept(str(found.folder))
    return found


def test_a_change_is_taken_back_with_its_rights_and_forgotten_once_it_settles(world: World) -> None:
    world.want("two")
    assert world.bring("current")["changed"]
    assert kept.started_from(str(world.folder)).endswith("/releases/1")
    assert world.bring("previous", check_mode=True)["step"] == "restart"
    assert world.file.read_text() == "two"
    assert world.bring("previous")["changed"]
    assert (world.file.read_text(), world.file.stat().st_mode & 0o777) == ("one", 0o640)
    assert world.bring("settled")["changed"]
    assert not world.folder.exists()
    assert not world.bring("previous")["changed"]


def test_a_secret_goes_back_as_the_writing_that_its_process_read(world: World) -> None:
    secret = world.file.with_name("key.secret")
    for content in ("first", "second"):
        world.arguments["secrets"] = {secret.name: content}
        world.arguments["gated"] = content == "second"
        world.bring("current")
        if content == "first":
            read = fingerprint.writing_of(str(secret))
    assert secret.read_text() == "second"
    world.bring("previous")
    assert (secret.read_text(), fingerprint.writing_of(str(secret))) == ("first", read)
    assert "first" not in (world.folder / kept.LISTING).read_text()
    world.bring("settled")
    assert secret.read_text() == "first"


def test_nobody_else_enters_the_folder(world: World) -> None:
    world.want("two")
    world.bring("current")
    assert world.folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in world.folder.iterdir()} <= {0o600, 0o640, 0o644}


def test_without_gates_a_change_settles_itself(world: World) -> None:
    world.arguments["gated"] = False
    world.want("two")
    world.bring("current")
    assert not world.folder.exists()


def test_another_change_before_the_gates_passed_goes_back_to_what_passed_last(world: World) -> None:
    for content in ("two", "three"):
        world.want(content)
        world.bring("current")
    world.bring("previous")
    assert world.file.read_text() == "one"


def test_what_an_interrupted_change_only_wrote_is_not_taken_for_good(world: World) -> None:
    """Killed after its files and before the restart: the process still runs the first ones."""
    world.want("two")
    world.arguments["state"] = "current"
    service = service_module.Service(world.arguments)
    service.keep()
    service_module.place([], service.wanted_files(), None)
    assert world.bring("started") == {"changed": False, "outdated": True}
    starts = world.manager.starts
    assert world.bring("previous")["step"] == "none"
    assert (world.file.read_text(), world.manager.starts) == ("one", starts)


def test_a_change_that_does_not_serve_is_left_to_its_turn_and_goes_back(world: World) -> None:
    world.manager.broken = {"two"}
    world.want("two")
    with pytest.raises(service_module.NotServingError):
        world.bring("current")
    assert world.bring("started")["outdated"]
    world.bring("previous")
    assert world.file.read_text() == "one"


def test_a_refused_content_leaves_nothing_to_go_back_to(world: World) -> None:
    world.arguments["files"] = [{**world.arguments["files"][0], "content": "two", "validate": "false %s"}]
    with pytest.raises(service_module.FilesError):
        world.bring("current")
    assert not world.bring("previous")["changed"]


def test_what_was_edited_by_hand_is_not_kept_and_the_failure_says_so(world: World) -> None:
    world.file.write_text("edited")
    world.manager.broken = {"two"}
    world.want("two")
    with pytest.raises(service_module.NotServingError, match=r"cannot be taken back: .*settings is not what"):
        world.bring("current")
    assert not kept.is_kept(str(world.folder))


def test_a_folder_without_its_listing_is_no_way_back(world: World) -> None:
    """What an interrupted `settled` leaves."""
    world.want("two")
    world.bring("current")
    os.unlink(world.folder / kept.LISTING)
    assert not world.bring("previous")["changed"]
    world.want("three")
    world.bring("current")
    world.bring("previous")
    assert world.file.read_text() == "two"
