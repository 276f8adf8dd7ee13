"""A redrive that kills itself at a commit: `python redrive_driver.py REGISTRY WAREHOUSE [WHEN NUMBER]`.

WHEN is `before` or `after`, NUMBER which of its commits; without them it redrives all there is.
"""

from __future__ import annotations

import sys
from typing import Any

from load_driver import die
from pyiceberg.catalog.sql import SqlCatalog

from headrace.events.registry_address import RegistryAddress
from headrace.load import redrive, tables
from headrace.load.registry import SchemaRegistry

real = SqlCatalog.commit_table


def kill_at(when: str, number: int) -> None:
    done = list[None]()

    def commit_table(*arguments: Any) -> Any:
        done.append(None)
        is_due = len(done) == number
        if is_due and when == "before":
            die()
        answer = real(*arguments)
        if is_due:
            die()
        return answer

    setattr(SqlCatalog, "commit_table", commit_table)  # noqa: B010


def main() -> None:
    registry, warehouse, *kill = sys.argv[1:]
    if kill:
        kill_at(kill[0], int(kill[1]))
    catalog = tables.open_catalog(warehouse)
    redrive.redrive(catalog, SchemaRegistry(RegistryAddress(registry)), redrive.Wanted(), is_dry=False)


if __name__ == "__main__":
    main()
