"""Further warehouses of an inventory: what is refused, and what the auditor and the gates are told of them."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner
from inventory_kit import good_inventory

from headrace.audit import further
from headrace.audit.commands.further_options import further_options
from headrace.audit.further import Further
from headrace_inventory import warehouses
from headrace_inventory.problems import inventory_problems

ARCHIVE = {"location": "s3://lake/archive", "catalog_properties": {"type": "glue"}, "topics": ["pageviews"]}


def problems(named: Any, secret: Any = None) -> list[str]:
    groups, hostvars = good_inventory()
    hostvars["off-audit-1"]["audit_further_warehouses"] = named
    if secret is not None:
        hostvars["off-audit-1"]["audit_further_secret"] = secret
    return inventory_problems(groups, hostvars)


@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        (
            {"Archive": ARCHIVE},
            "in audit_further_warehouses the name 'Archive': take up to 31 lower-case letters",
        ),
        ({"archive": {}}, "in audit_further_warehouses for archive no location: say where its tables are"),
        (
            {"archive": "s3://lake"},
            "in audit_further_warehouses for archive no location: say where its tables are",
        ),
        (
            {"archive": {**ARCHIVE, "topic": "x"}},
            "for archive the key topic, which nothing reads: it may have location,",
        ),
        (
            {"archive": {**ARCHIVE, "topics": "pageviews"}},
            "for archive a topics of the wrong kind: location is a text,",
        ),
        (
            {"archive": {**ARCHIVE, "topics": ["clicks"]}},
            "for archive the topic clicks, whose events nobody counts:",
        ),
        (
            {"archive": {"location": "/var/lib/headrace/warehouse"}},
            "for archive the location of headrace_warehouse, which is counted already: take it out.",
        ),
        (
            {"archive": {"location": "/a b"}},
            "for archive the location '/a b': one with blanks or quotes cannot be rolled out",
        ),
        ({f"w{at}": ARCHIVE for at in range(9)}, "9 warehouses in audit_further_warehouses: name at most 8."),
        (
            {"archive": {**ARCHIVE, "catalog_properties": {"s3.secret-access-key": "canary"}}},
            "in audit_further_warehouses the key s3.secret-access-key, which everybody may read there: put it into "
            "audit_further_secret, in a file that ansible-vault encrypts.",
        ),
    ],
)
def test_what_no_auditor_could_count_is_refused(named: Any, sentence: str) -> None:
    (problem,) = problems(named)
    assert problem.startswith("Host off-audit-1 has ")
    assert sentence in problem
    assert "canary" not in problem


@pytest.mark.parametrize(
    ("secret", "sentence"),
    [
        (
            {"other": {"token": "canary"}},
            "in audit_further_secret the name other, which audit_further_warehouses does not",
        ),
        ({"archive": "canary"}, "in audit_further_secret something that is no dictionary:"),
    ],
)
def test_secrets_belong_to_a_warehouse(secret: Any, sentence: str) -> None:
    (problem,) = problems({"archive": ARCHIVE}, secret)
    assert sentence in problem
    assert "canary" not in problem


def test_good_ones_are_taken() -> None:
    assert (
        problems({"archive": ARCHIVE, "near": {"location": "/srv/near"}}, {"archive": {"token": "t"}}) == []
    )


def loaded_by(**variables: Any) -> list[str]:
    """What is wrong with an inventory in which a second host loads with these variables."""
    groups, hostvars = good_inventory()
    (first,) = groups["load"]
    for group, hosts in groups.items():
        if first in hosts:
            groups[group] = [*hosts, "off-load-2"]
    hostvars["off-load-2"] = {**hostvars[first], "headrace_address": "10.9.9.9", **variables}
    return inventory_problems(groups, hostvars)


def test_each_load_has_topics_or_a_warehouse_of_its_own() -> None:
    (problem,) = loaded_by()
    assert problem.startswith(
        "Hosts off-load-1 and off-load-2 both load the topic pageviews into /var/lib/headrace/warehouse: give one of them "
    )
    assert loaded_by(headrace_warehouse="s3://lake/archive") == []
    assert loaded_by(headrace_catalog_properties={"type": "glue"}) == []
    assert loaded_by(headrace_loaded_topics=["headrace.monitoring"]) == []


def test_two_loads_on_one_machine_need_names() -> None:
    here = {"headrace_warehouse": "s3://lake/archive", "headrace_machine": "off-load-1"}
    (problem,) = loaded_by(**here)
    assert problem == (
        "off-load-1 and off-load-2 would each run a service headrace-load on off-load-1: give one of them another machine, "
        "or a headrace_service_prefix of its own."
    )
    assert loaded_by(**here, headrace_service_prefix="archive-") == []


def test_the_auditor_is_told_all_of_them(tmp_path: Any) -> None:
    variables = {
        "audit_further_warehouses": {"archive": ARCHIVE, "near": {"location": "/srv/near"}},
        "audit_further_secret": {"archive": {"token": "t"}},
    }
    folder = str(tmp_path)
    for file in warehouses.further_files(variables, folder):
        (tmp_path / file["path"].rpartition("/")[2]).write_text(file["content"])
    for name, content in warehouses.further_secrets(variables).items():
        (tmp_path / name).write_text(content)
    told: list[Further] = []

    @click.command()
    @further_options
    def command(further: tuple[Further, ...]) -> None:
        told.extend(further)

    arguments = warehouses.further_arguments(variables, ["dc-east", "dc-west"], folder, folder)
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 0, done.output
    archive, near = told
    assert (archive.name, archive.location) == ("archive", "s3://lake/archive")
    assert archive.properties == {"type": "glue", "token": "t"}
    assert "dc-west.pageviews" in archive
    assert "dc-west.clicks" not in archive
    assert near == Further(name="near", location="/srv/near", properties={})
    assert warehouses.further_folders(variables) == ["/srv/near"]


def test_an_inventory_without_any_tells_nothing() -> None:
    assert warehouses.further_arguments({}, ["dc-east"], "/x", "/y") == []
    assert (warehouses.further_files({}, "/x"), warehouses.further_secrets({})) == ([], {})


def test_the_rules_are_those_of_the_audit() -> None:
    assert warehouses.NAME.pattern == further.NAME.pattern
    assert warehouses.WAREHOUSES_MAX == further.FURTHER_MAX
