"""A registry's machine with its topic as a list; every decision travels through the topic's own record format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.registry.errors import RegistryError
from headrace.registry.machine import Decision, Machine, Submitted
from headrace.registry.records import decode, encode
from headrace.registry.schemas import Reference, schema_id

V1 = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
V2 = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int","default":0}]}'

Log = list[tuple[bytes, bytes | None]]


class Registry:
    """A machine with its topic as a list."""

    def __init__(self, identify: Callable[[str], int] = schema_id) -> None:
        self.machine = Machine(schema_id=identify)
        self.log: Log = []

    def write(self, decision: Decision) -> Any:
        for record in decision.records:
            self.log.append(encode(record))
            replay([self.log[-1]], self.machine)
        return decision.answer

    def register(self, subject: str, text: str, *references: Reference) -> int:
        submitted = Submitted(text=text, references=references)
        answer: int = self.write(self.machine.decide_register(subject, submitted))["id"]
        return answer


def replay(log: Log, machine: Machine, prefix: str = "") -> list[str]:
    decoded = [decode(key, value) for key, value in log]
    findings = [machine.apply(record, prefix) for record in decoded if record is not None]
    return [finding for finding in findings if finding]


def refused(action: Callable[[], Any]) -> tuple[int, int]:
    with pytest.raises(RegistryError) as caught:
        action()
    return caught.value.status, caught.value.code
