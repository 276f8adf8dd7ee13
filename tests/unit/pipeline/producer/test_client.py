"""Opening a producer: nothing is asked for before all that it was given is known to fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.events.avro_schemas import schema_text
from headrace.producer import Producer
from headrace.producer import client as client_module

WITHOUT_ENVELOPE = '{"type": "record", "name": "Order", "fields": [{"name": "product", "type": "string"}]}'


def opened(spool: Path, **given: Any) -> Producer:
    return Producer(
        **{
            "bootstrap": "127.0.0.1:1",
            "registry_url": "http://127.0.0.1:1",
            "schemas": {"orders": schema_text("rejected_line")},
            "server": "web-1",
            "service": "shop",
            "datacenter": "dc-east",
            "spool": spool,
            **given,
        }
    )


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"schemas": {"orders": WITHOUT_ENVELOPE}}, "first field `header`"),
        ({"schemas": {"orders": schema_text("rejected_line"), "rest": "{"}}, "no JSON"),
        ({"bootstrap": ["127.0.0.1:9092"]}, "bootstrap is .* give it as text"),
        ({"bootstrap": "127.0.0.1"}, "HOST:PORT"),
        ({"bootstrap": "http://127.0.0.1:9092"}, "HOST:PORT"),
        ({"bootstrap": "127.0.0.1:99999"}, "HOST:PORT"),
        ({"registry_url": None}, "registry_url is None"),
        ({"registry_url": "127.0.0.1:8081"}, "is no URL of a registry"),
        ({"window_size_ms": 0}, "window_size_ms"),
        ({"client_config": {"transactional.id": "a"}}, "client_config"),
        ({"security": {"security.protocol": 3}}, "security has security.protocol as int: give text"),
    ],
)
def test_no_schema_is_registered_where_something_does_not_fit(
    given: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(client_module, "register", lambda *arguments, **_: asked.append(arguments[1]))
    with pytest.raises(ValueError, match=sentence):
        opened(tmp_path, **given)
    assert asked == []


def test_settings_that_librdkafka_does_not_take_are_one_sentence_and_leave_no_spool_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(client_module, "register", lambda *_, **__: 1)
    with pytest.raises(ValueError, match=r'^client_config or security: .*"linger.mss"'):
        opened(tmp_path, client_config={"linger.mss": 5})
    assert list(tmp_path.iterdir()) == []
