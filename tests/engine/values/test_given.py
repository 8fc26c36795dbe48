"""Inputs of a user: snapshots that XLA writes, compared with the arrays that the program got."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import hlo_lint
from hlo_lint.dumps.selection import one_file
from hlo_lint.engine.values.given import read_inputs
from hlo_lint.text.errors import DumpError, UsageError
from hlo_lint.xla.cpu import XlaCpu
from tests.oracle.xla import Oracle, oracles
from tests.texts import entry

pytestmark = pytest.mark.slow

TEXT = entry("""
  a = s4[3]{0} parameter(0)
  b = pred[9]{0} parameter(1)
  c = f32[2,3]{0,1} parameter(2)
  d = s64[2]{0} parameter(3)
  e = s32[3]{0} parameter(4)
  f = bf16[2]{0} parameter(5)
  g = c64[1]{0} parameter(6)
  h = u16[2]{0} parameter(7)
  i = f8e4m3fn[2]{0} parameter(8)
  j = f32[0,2]{1,0} parameter(9)
  k = f64[] parameter(10)
  l = u64[1]{0} parameter(11)
  ROOT r = s64[2]{0} negate(d)
""")
ARRAYS: list[NDArray[Any]] = [
    np.array([-3, 2, 7], ml_dtypes.int4), np.array([1, 0, 0, 1, 1, 0, 0, 0, 1], bool),
    np.arange(6, dtype="f").reshape(2, 3), np.array([-5, 1 << 40]), np.array([-1, 2, 300], "i4"),
    np.array([1.5, -2], ml_dtypes.bfloat16), np.array([1 + 2j], "c8"), np.array([1, 65535], "u2"),
    np.array([1, -2], ml_dtypes.float8_e4m3fn), np.zeros((0, 2), "f"), np.array(0.1),
    np.array([(1 << 64) - 1], "u8"),
]  # fmt: skip


def snapshot(folder: Path, kind: str, python: str | None = None) -> Path:
    """The snapshot of a run of the text."""
    flags = f"--xla_dump_to={folder} --xla_dump_hlo_{kind}snapshots"
    with XlaCpu(python, environment={"XLA_FLAGS": flags}) as xla:
        xla.run(TEXT, ARRAYS, plain=True)
    return next(folder.glob("*snapshot*"))


@pytest.mark.parametrize("kind", ["", "unoptimized_"])
@pytest.mark.parametrize("oracle", oracles(), ids=lambda oracle: oracle.version)
def test_a_snapshot_has_the_arrays_of_the_run(tmp_path: Path, kind: str, oracle: Oracle) -> None:
    path = snapshot(tmp_path, kind, oracle.python)
    given = read_inputs(path, one_file(path).module)
    assert list(given) == list(range(len(ARRAYS)))
    for array, expected in zip(given.values(), ARRAYS, strict=True):
        assert array.dtype == expected.dtype
        np.testing.assert_array_equal(array, expected)


def test_a_snapshot_of_another_program_and_a_damaged_one_are_refused(tmp_path: Path) -> None:
    path = snapshot(tmp_path, "")
    other = hlo_lint.parse(TEXT.replace("pred[9]", "pred[8]"))
    with pytest.raises(UsageError, match=r"1 has the shape \(9,\), the parameter pred\[8\]"):
        read_inputs(path, other)
    module = one_file(path).module
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DumpError):
        read_inputs(path, module)
