"""What is in the bundles of a release follows from extras and lock; nothing that only developers need is in one."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from release_contents import EXTRAS, Pin, ReleaseError, checked_version, closure, pinned, pins, with_version

CHECKOUT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCK = (CHECKOUT / "requirements.lock").read_text(encoding="utf-8")


def required_by(name: str) -> Sequence[str]:
    return distribution(name).requires or []


def test_pins_carry_every_hash_of_the_lock() -> None:
    found = pins(LOCK)
    assert len(found) == len(re.findall(r"(?m)^[a-z].*==", LOCK))
    assert sum(len(pin.digests) for pin in found.values()) == LOCK.count("--hash=sha256:")


def test_a_pin_is_a_line_of_a_requirements_file() -> None:
    one, two = "a" * 64, "b" * 64
    lock = f"kafka-Python[lz4,zstd]==3.0.2 \\\n    --hash=sha256:{one} \\\n    --hash=sha256:{two}\n    # via headrace\n"
    pin = pins(lock.lower())["kafka-python"]
    assert pin == Pin("kafka-python", "3.0.2", (one, two))
    assert pin.line() == f"kafka-python==3.0.2 --hash=sha256:{one} --hash=sha256:{two}"


def test_a_bundle_has_what_its_extras_need_and_no_more() -> None:
    project = {
        "dependencies": ["click>=8"],
        "optional-dependencies": {
            "one": ["Some_Thing[fast]>=2", "headrace[two]"],
            "two": ["other; python_version < '3'", "last; sys_platform == 'linux'"],
            "three": ["unasked"],
        },
    }
    stated = {
        "click": [],
        "last": ["click"],
        "quick": ["last"],
        "some-thing": ["quick; extra == 'fast'", "slow; extra == 'careful'"],
    }
    assert closure(project, ["one"], stated.__getitem__) == ["click", "last", "quick", "some-thing"]


@pytest.mark.parametrize("bundle", EXTRAS)
def test_no_bundle_has_a_tool_of_developers_or_of_those_who_roll_out(bundle: str) -> None:
    optional = PROJECT["optional-dependencies"]
    tools = {
        canonicalize_name(Requirement(line).name)
        for extra in ("deploy", "dev")
        for line in optional[extra]
        if line not in optional["audit"]
    }
    found = closure(PROJECT, EXTRAS[bundle], required_by)
    # confluent-kafka needs requests too.
    assert not (tools - {"headrace", "requests"}) & set(found)
    assert pinned(found, pins(LOCK))


def test_only_the_load_has_spark() -> None:
    assert [name for name in EXTRAS if "pyspark" in closure(PROJECT, EXTRAS[name], required_by)] == ["load"]
    assert "confluent-kafka" not in closure(PROJECT, EXTRAS["broker"], required_by)
    # Counters decode what they count as loads do.
    assert "pyruhvro" in closure(PROJECT, EXTRAS["audit"], required_by)


def test_what_the_lock_lacks_ends_with_a_sentence() -> None:
    with pytest.raises(ReleaseError, match=r"requirements.lock has no absent: lock it anew\."):
        pinned(["absent"], {})


@pytest.mark.parametrize("version", ["1.2.0", "0.1.0+lab.1", "2.0rc1"])
def test_a_version_is_taken_as_it_is_written(version: str) -> None:
    assert checked_version(version) == version
    assert f'\nversion = "{version}"\n' in with_version((CHECKOUT / "pyproject.toml").read_text(), version)


@pytest.mark.parametrize(
    ("version", "sentence"),
    [("../x", "is none: write it like"), ("1.0-rc1", "is written '1.0rc1'"), ("v1.0", "is written '1.0'")],
)
def test_another_version_is_refused(version: str, sentence: str) -> None:
    with pytest.raises(ReleaseError, match=sentence):
        checked_version(version)
