"""What all tests share: only one of them at a time has a whole pipeline on the machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from demo_process import BusyError, alone_on_this_machine


@pytest.fixture(scope="module")
def alone() -> Iterator[None]:
    """The right to roll out, until the module's end; without it the test fails with a sentence."""
    try:
        with alone_on_this_machine():
            yield
    except BusyError as error:
        pytest.fail(str(error), pytrace=False)
