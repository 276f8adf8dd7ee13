"""Makes what is wrong with a release, as it lies on this machine, known to the plays."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Ansible loads this file by itself, without a package around it.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from headrace_inventory.bundles import release_problems, wanted_python


class FilterModule:
    """The filters of the plays."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"headrace_bundle_problems": release_problems, "headrace_bundle_python": wanted_python}
