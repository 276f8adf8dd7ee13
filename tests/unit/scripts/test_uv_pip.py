"""uv is told where pip is configured to look: a machine behind a mirror of its own installs from there."""

from __future__ import annotations

import os
from pathlib import Path

from uv_pip import LIKE_PIP, pip_settings, uv_environment, uv_options


def test_what_is_said_for_an_installation_is_stronger_than_what_is_said_for_all() -> None:
    listing = (
        ":env:.timeout='9'\n"
        "freeze.timeout='1'\n"
        "global.index-url='https://mirror/simple'\n"
        "global.timeout='7'\n"
        "install.timeout='8'\n"
        "install.index-url='https://other/simple'\n"
    )
    assert pip_settings(listing) == {"index-url": "https://other/simple", "timeout": "9"}
    assert pip_settings("") == {}


def test_uv_is_told_of_indexes_certificates_and_proxies() -> None:
    settings = {
        "index-url": "https://user:word@mirror/simple",
        "extra-index-url": "\nhttps://a/simple\nhttps://b/simple",
        "trusted-host": "mirror",
        "cert": "/etc/ssl/mirror.pem",
        "proxy": "http://proxy:3128",
        "timeout": "180",
        "disable-pip-version-check": "1",
    }
    assert uv_environment(settings, {"HOME": "/home/u"}) == {
        **LIKE_PIP,
        "HOME": "/home/u",
        "UV_DEFAULT_INDEX": "https://user:word@mirror/simple",
        "UV_INDEX": "https://a/simple https://b/simple",
        "UV_INSECURE_HOST": "mirror",
        "SSL_CERT_FILE": "/etc/ssl/mirror.pem",
        "HTTP_PROXY": "http://proxy:3128",
        "HTTPS_PROXY": "http://proxy:3128",
        "UV_HTTP_TIMEOUT": "180",
    }


def test_what_uv_was_told_already_stays() -> None:
    environment = {"UV_DEFAULT_INDEX": "https://mine/simple", "UV_SYSTEM_CERTS": "false"}
    told = uv_environment({"index-url": "https://mirror/simple"}, environment)
    assert told == {**LIKE_PIP, **environment}


def test_folders_of_packages_that_are_not_there_are_left_out(tmp_path: Path) -> None:
    links = f"{tmp_path} {tmp_path / 'missing'} https://mirror/links"
    assert uv_environment({"find-links": links}, {})["UV_FIND_LINKS"] == f"{tmp_path},https://mirror/links"
    assert "UV_FIND_LINKS" not in uv_environment({"find-links": os.fspath(tmp_path / "missing")}, {})


def test_uv_asks_no_index_where_pip_asks_none() -> None:
    assert uv_options({"no-index": "true"}) == ["--no-index"]
    assert uv_options({"no-index": "false"}) == uv_options({}) == []
