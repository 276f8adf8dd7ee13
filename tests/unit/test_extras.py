"""What a host installs is enough for all that it runs: nothing that its extras lack is imported by its programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.acceptance

CHECKOUT = Path(__file__).resolve().parents[2]
# A kind of host: the extras of its release, and the packages and modules of Ansible's that it runs with them.
KINDS = {
    "broker": ("broker,mirror", "headrace.broker", "headrace.mirror", "headrace_topics", "headrace_replicas"),
    "registry": ("registry", "headrace.registry"),
    "load or audit": ("load", "headrace.load", "headrace.audit"),
}
# Argument 1: extras; the others: what to import, submodules and imports inside functions included.
PROGRAM = """
import ast, importlib, pkgutil, re, sys
from importlib.metadata import distribution, packages_distributions
from packaging.requirements import Requirement
from playbooks_kit import load


def closure(name, extras, known):
    '''The names of the distributions that pip would install.'''
    key = re.sub('[-_.]+', '-', name).lower()
    if extras <= known.get(key, set()) and key in known:
        return known
    known[key] = known.get(key, set()) | extras
    for text in distribution(name).requires or []:
        needed = Requirement(text)
        if needed.marker is None or any(needed.marker.evaluate({'extra': extra}) for extra in extras | {''}):
            closure(needed.name, set(needed.extras), known)
    return known


installed = closure('headrace', set(sys.argv[1].split(',')), {})
owners = packages_distributions()
lacking = {
    package for package, names in owners.items()
    if not any(re.sub('[-_.]+', '-', name).lower() in installed for name in names)
} - {'ansible'}


class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in lacking:
            raise ModuleNotFoundError(f'{name} is not installed on such a host', name=name)


def lazy_imports(path):
    tree = ast.parse(open(path, encoding='utf-8').read())
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Import):
                    yield from (alias.name for alias in node.names)
                elif isinstance(node, ast.ImportFrom):
                    yield node.module


sys.meta_path.insert(0, Lacking())
for name in sys.argv[2:]:
    module = importlib.import_module(name) if '.' in name else load(name)
    found = [module.__name__]
    found += [each.name for each in pkgutil.walk_packages(getattr(module, '__path__', []), name + '.')]
    for each in found:
        if not each.endswith('__main__'):
            for lazy in lazy_imports(importlib.import_module(each).__file__):
                importlib.import_module(lazy)
    print(name, len(found))
"""


@pytest.mark.parametrize("kind", KINDS)
def test_a_hosts_extras_have_all_that_its_programs_import(kind: str) -> None:
    extras, *names = KINDS[kind]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, extras, *names],
        cwd=CHECKOUT / "tests" / "unit",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert [line.split()[0] for line in done.stdout.splitlines()] == names
