"""The releases of XLA's parser that tests ask."""

from __future__ import annotations

import pytest

from tests.oracle.xla import oracle_of

RELEASES = ("0.10", "0.12")


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if oracle_of(name) is None:
        pytest.skip(f"no jaxlib {name} at hand, neither here nor in HLO_LINT_ORACLES")
    return name
