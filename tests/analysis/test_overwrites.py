"""Writes into a buffer that values share: a chain of updates takes time linear in its length."""

from __future__ import annotations

import pytest

import hlo_lint
from hlo_lint.analysis import overwrites
from tests.conftest import calls_of
from tests.texts import entry


def _module(updates: int, last: str) -> str:
    """A schedule of so many updates of one buffer; the last instruction reads two values."""
    head = "  p = f32[8] parameter(0)\n  c = s32[] constant(0)\n  u = f32[1] constant({1})\n"
    lines = [f"  d{n + 1} = f32[8] dynamic-update-slice(d{n}, u, c)" for n in range(updates)]
    lines = [f"{head}  d0 = f32[8] copy(p)", *lines, f"  ROOT r = f32[8] {last}"]
    return entry("\n".join(lines), header=", is_scheduled=true")


def _calls(updates: int) -> int:
    module = hlo_lint.parse(_module(updates, f"negate(d{updates})"))
    return calls_of(lambda: [*overwrites.overwrites(module)])


def test_a_chain_of_updates_costs_the_same_for_each() -> None:
    assert _calls(400) < 11 * _calls(40)


@pytest.mark.parametrize("value", [0, 7, 38])
def test_each_write_over_a_value_that_is_read_later_is_found(value: int) -> None:
    module = hlo_lint.parse(_module(40, f"add(d40, d{value})"))
    late = [
        (overwrite.writer.name, overwrite.value[0].name, overwrite.reader.name)
        for overwrite in overwrites.overwrites(module)
    ]
    assert late == [(f"d{later}", f"d{value}", "r") for later in range(value + 1, 41)]
