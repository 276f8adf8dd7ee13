"""What a host hands over for a support bundle, within its bounds, and what becomes of it."""

from __future__ import annotations

import http.server
import socket
import tarfile
import threading
from pathlib import Path
from typing import Any

import pytest
from playbooks_kit import load

from headrace_views.bundle import members, safe, unpacked, write

support = load("headrace_support")


def collection(**arguments: Any) -> Any:
    return support.Collection({"bytes_max": 1000, "seconds_max": 60, **arguments})


@pytest.fixture
def config(tmp_path: Path) -> Path:
    folder = tmp_path / "config"
    folder.mkdir()
    contents = {"server.properties": "a=1\nssl.key.password=c4n4ry\n", "catalog.properties": "key=c4n4ry-2\n"}
    for name, text in {**contents, "log.txt": "it said c4n4ry-2\n", "tls.pem": "c4n4ry-3"}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o644)
    (folder / "catalog.properties").chmod(0o640)
    return folder


def test_secret_files_and_keys_stay_and_what_they_hold_is_nowhere(config: Path) -> None:
    found = collection()
    support.collect_configuration(found, [str(config)])
    files, missing = unpacked(found.payload())
    assert files[f"files{config}/server.properties"] == "a=1\nssl.key.password=REDACTED\n"
    assert files[f"files{config}/log.txt"] == "it said REDACTED\n"
    assert [name for name in files if "catalog" in name or "tls" in name] == []
    assert f"-rw-r----- {config}/catalog.properties" in files["not-taken"]
    assert f"{config}/tls.pem" in files["not-taken"]
    assert "c4n4ry" not in "".join(files.values())
    assert missing == []


def test_a_link_to_a_secret_is_not_followed(config: Path) -> None:
    (config / "link").symlink_to(config / "catalog.properties")
    found = collection()
    support.collect_configuration(found, [str(config)])
    assert f"files{config}/link" not in found.files


def test_a_metrics_page_is_taken_and_one_that_does_not_answer_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with (
        http.server.HTTPServer(("127.0.0.1", 0), MetricsPage) as server,
        socket.create_server(("127.0.0.1", 0)) as idle,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found = collection()
        support.collect_pages(found, {"headrace-broker-1": f"http://127.0.0.1:{server.server_port}/metrics"})
        monkeypatch.setattr(support, "PAGE_S_MAX", 0.1)
        support.collect_pages(found, {"headrace-load": f"http://127.0.0.1:{idle.getsockname()[1]}/metrics"})
        server.shutdown()
    assert found.files == {"metrics/headrace-broker-1": "headrace_up{password=REDACTED\n"}
    assert [each.partition(":")[0] for each in found.missing] == ["metrics/headrace-load"]


class MetricsPage(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'headrace_up{password="c4n4ry"} 1\n')

    def log_message(self, *arguments: object) -> None:
        """Nothing to say."""


def test_what_does_not_fit_is_missing() -> None:
    found = collection(bytes_max=10)
    found.add("small", lambda: "12345")
    found.add("large", lambda: "1234567")
    found.add("gone", lambda: Path("/no/such/file").read_text())
    assert (found.files, found.missing) == (
        {"small": "12345"},
        ["large: there was no room left", "gone: No such file or directory"],
    )


def test_what_there_is_no_time_for_is_missing() -> None:
    clock = iter([0.0, 1.0, 31.0])
    found = support.Collection({"bytes_max": 10, "seconds_max": 30}, lambda: next(clock))
    found.add("first", lambda: "1")
    found.add("second", lambda: "2")
    assert (found.files, found.missing) == ({"first": "1"}, ["second: there was no time left"])


def test_only_the_end_of_a_long_log_is_taken(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(100)))
    assert support.end_of(str(log), 20) == "line 98\nline 99\n"
    assert support.end_of("/proc/self/status", 1 << 16).startswith("Name:")


def test_hosts_that_hand_over_nothing_are_named(tmp_path: Path) -> None:
    found = collection()
    found.add("../../etc/passwd", lambda: "x")
    found.missing.append("clock: not allowed")
    files, missing = members(
        {
            "e-1": {"payload": found.payload()},
            "e-2": {"unanswered": "Host e-2 does not answer."},
            "e-3": {"payload": "no payload"},
        },
        [{"name": "cluster dc-east", "code": 1, "said": "bad"}],
        {"ABOUT": "x"},
    )
    assert files["hosts/e-1/etc/passwd"] == "x"
    assert files["answers/cluster-dc-east"] == "exit 1\nbad\n"
    assert missing[:2] == ["Host e-1: clock: not allowed.", "Host e-2 does not answer."]
    assert missing[2].startswith("Host e-3: what it handed over cannot be read")
    assert files["MISSING"].splitlines() == missing


def test_the_archive_is_its_owners_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "support", "headrace-1", {"MISSING": "x\n"}, 1000.0)
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as tar:
        (member,) = tar.getmembers()
    assert (member.name, member.mode) == ("headrace-1/MISSING", 0o600)
    assert list(path.parent.iterdir()) == [path]


def test_a_name_stays_below_its_host() -> None:
    assert safe("/etc/../x") == "etc/x"
