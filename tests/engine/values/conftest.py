"""The child process that runs programs on XLA:CPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hlo_lint.xla.cpu import XlaCpu


@pytest.fixture(scope="package", name="xla")
def running() -> Iterator[XlaCpu]:
    with XlaCpu() as child:
        yield child
