"""Every Terraform module is formatted, valid, tested with mocked providers, and described as it is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import terraform_regions
import terraform_tools
import yaml
from terraform_kit import CHECKOUT, MODULES, TERRAFORM, Workspace, needs_provider, needs_terraform

BLOCK = re.compile(r'^(variable|output) "(\w+)" \{\n(.*?)^\}$', re.M | re.S)
EXPECTED = re.compile(r"expect_failures = \[(.*?)\]")


def identifier(module: Path) -> str:
    return module.name


def blocks(module: Path, kind: str) -> list[tuple[str, str]]:
    """Name and body of each variable or output of a module, in the file's order."""
    text = (module / f"{kind}s.tf").read_text(encoding="utf-8")
    return [(name, body) for found, name, body in BLOCK.findall(text) if found == kind]


def expectations(module: Path) -> list[str]:
    """What the runs of a module's tests expect to fail."""
    files = module.joinpath("tests").rglob("*.tftest.hcl")
    return [found for file in files for found in EXPECTED.findall(file.read_text(encoding="utf-8"))]


@needs_terraform
def test_every_file_is_formatted() -> None:
    done = Workspace(TERRAFORM).run("fmt", "-check", "-recursive", "-no-color")
    assert done.returncode == 0, done.stdout


def test_files_by_region_are_current() -> None:
    for path, text in terraform_regions.files().items():
        assert path.read_text(encoding="utf-8") == text, (
            f"run scripts/terraform_regions.py: {path.name} is not current"
        )


def test_regions_are_each_named_once_in_order_and_mocked() -> None:
    names = terraform_regions.regions()
    assert names == sorted(set(names))
    mocks = (TERRAFORM / "pipeline" / "tests" / "pipeline.tftest.hcl").read_text(encoding="utf-8")
    for name in names:
        assert f'alias  = "{terraform_regions.alias(name)}"' in mocks


@pytest.mark.parametrize("module", MODULES, ids=identifier)
def test_a_module_has_all_of_its_files(module: Path) -> None:
    for name in ("main.tf", "variables.tf", "outputs.tf", "versions.tf", "README.md"):
        assert (module / name).is_file(), f"{module.name} has no {name}"
    assert list(module.glob("tests/*.tftest.hcl"))


def row(name: str, body: str) -> str:
    """A variable's or output's line of its module's README, as its block has it."""
    (description,) = re.findall(r'^  description = "(.*)"', body, re.M)
    types = re.findall(r"^  type += (.*)", body, re.M)
    if not types:
        return f"| `{name}` | {description} |"
    default = "".join(f"`{value}`" for value in re.findall(r"^  default += (.*)", body, re.M))
    short = {"map(object({": "map of objects", "object({": "object"}.get(types[0], types[0])
    return f"| `{name}` | {short} | {default} | {description} |"


@pytest.mark.parametrize("module", MODULES, ids=identifier)
def test_a_readme_has_every_variable_and_output_as_it_is(module: Path) -> None:
    readme = (module / "README.md").read_text(encoding="utf-8").splitlines()
    described = [row(name, body) for kind in ("variable", "output") for name, body in blocks(module, kind)]
    assert [line for line in readme if line.startswith("| `")] == described


@pytest.mark.parametrize("module", MODULES, ids=identifier)
def test_variables_and_outputs_are_in_alphabetical_order_and_described(module: Path) -> None:
    for kind in ("variable", "output"):
        found = blocks(module, kind)
        assert [name for name, _ in found] == sorted(name for name, _ in found)
        assert all("description = " in body for _, body in found)


@pytest.mark.parametrize("module", MODULES, ids=identifier)
def test_every_validation_has_a_test_that_expects_its_failure(module: Path) -> None:
    expected = expectations(module)
    for name, body in blocks(module, "variable"):
        validations = len(re.findall(r"^  validation \{", body, re.M))
        assert expected.count(f"var.{name}") >= validations, f"{module.name}: {name}"


def test_ports_are_those_of_the_roll_out() -> None:
    text = (CHECKOUT / "terraform" / "modules" / "network" / "security.tf").read_text(encoding="utf-8")
    ports = dict(re.findall(r"^    (\w+) += (\d+)$", text, re.MULTILINE))
    settings = yaml.safe_load((CHECKOUT / "playbooks" / "group_vars" / "all.yml").read_text(encoding="utf-8"))
    known = settings["headrace_ports"]
    assert ports.pop("endpoint") == "443"
    assert ports == {name: str(known[name]) for name in ports}
    assert {"broker_tls_sasl", "registry_tls", "zookeeper_tls"} <= ports.keys()


# In short: test_deploy_terraform_maps.py runs those of the variables, and test_deploy_terraform_security.py plans all modules.
@pytest.mark.long
@needs_provider
@pytest.mark.timeout(600)
@pytest.mark.parametrize("module", MODULES, ids=identifier)
def test_a_module_is_valid_and_passes_its_tests(module: Path, tmp_path: Path) -> None:
    settings = terraform_tools.environment(tmp_path)
    pipeline = terraform_tools.copy_of_terraform(tmp_path)
    workspace = Workspace(pipeline.parent / module.relative_to(TERRAFORM), settings)
    workspace.succeed("init")
    # A module whose providers are its caller's is no whole by itself: validating the pipeline validates it.
    if "configuration_aliases" not in (module / "versions.tf").read_text(encoding="utf-8"):
        workspace.succeed("validate")
    assert "0 failed" in workspace.succeed("test")


@pytest.mark.parametrize("name", ["cluster", "warehouse"])
def test_data_resources_are_equal_but_for_their_protection(name: str) -> None:
    text = (TERRAFORM / "modules" / name / "main.tf").read_text(encoding="utf-8")
    protected = re.findall(r'^resource "(\w+)" "protected" \{\n(.*?)^\}$', text, re.M | re.S)
    disposable = dict(re.findall(r'^resource "(\w+)" "disposable" \{\n(.*?)^\}$', text, re.M | re.S))
    assert len(protected) == len(disposable) > 0
    for kind, body in protected:
        unprotected = re.sub(r"\n  lifecycle \{\n    prevent_destroy = true\n  \}\n", "", body)
        assert unprotected != body
        chosen = disposable[kind].replace("local._disposable", "local._protected")
        assert unprotected == chosen.replace("var.protect_data ? 0 : 1", "var.protect_data ? 1 : 0")


def test_only_the_small_example_gives_up_protection() -> None:
    unprotected = [
        path.stem
        for path in TERRAFORM.glob("pipeline/examples/*.tfvars")
        if re.search(r"^protect_data\s*=\s*false", path.read_text(encoding="utf-8"), re.M)
    ]
    assert unprotected == ["small"]


@needs_terraform
@pytest.mark.parametrize("volume", ["", "vol-0123456789abcdef0"])
def test_the_first_boot_is_a_sound_script(volume: str, tmp_path: Path) -> None:
    template = (TERRAFORM / "modules" / "cluster" / "first_boot.sh.tftpl").read_text(encoding="utf-8")
    (tmp_path / "main.tf").write_text(
        f'output "script" {{\n  value = templatefile("first_boot.sh.tftpl", {{ volume_id = "{volume}" }})\n}}\n',
        encoding="utf-8",
    )
    (tmp_path / "first_boot.sh.tftpl").write_text(template, encoding="utf-8")
    workspace = Workspace(tmp_path)
    workspace.succeed("apply", "-auto-approve")
    script = workspace.run("output", "-raw", "script").stdout
    assert script.startswith("#!/bin/bash\n")
    assert ("mkfs" in script) == bool(volume)
    release = yaml.safe_load(
        (CHECKOUT / "inventory" / "aws" / "group_vars" / "all.yml").read_text(encoding="utf-8")
    )
    assert f" {release['release_python']}\n" in script
    checked = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize(("ci", "outcome"), [("", "1 skipped"), ("true", "1 failed")])
def test_a_machine_without_terraform_skips_but_for_where_changes_are_accepted(
    ci: str, outcome: str, tmp_path: Path
) -> None:
    one = f"{Path(__file__)}::{test_every_file_is_formatted.__name__}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", one],
        env={**os.environ, "PATH": str(tmp_path), "CI": ci},
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome in done.stdout
    assert ("terraform is not installed" in done.stdout) == (not ci)


def test_accepting_a_change_allows_no_skipping() -> None:
    assert "\nexport CI=true\n" in (CHECKOUT / ".ci" / "run").read_text(encoding="utf-8")
