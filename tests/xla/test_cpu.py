"""XLA:CPU in a child process: results, refusals, limits."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from hlo_lint.xla.cpu import NotRun, XlaCpu
from tests.conftest import ROOT, completed
from tests.texts import entry

pytestmark = pytest.mark.slow

SUM = entry("""
  x = f32[2] parameter(0)
  y = bf16[2] parameter(1)
  wide = f32[2] convert(y)
  sum = f32[2] add(x, wide)
  yes = pred[] constant(true)
  ROOT r = (f32[2], bf16[2], pred[]) tuple(sum, y, yes)
""")
ENDLESS = entry(
    "  p = s32[] parameter(0)\n  ROOT w = s32[] while(p), condition=condition, body=body",
    "condition { p = s32[] parameter(0) ROOT yes = pred[] constant(true) }\n"
    "body { p = s32[] parameter(0) ROOT same = s32[] copy(p) }\n",
)
HUGE = entry("""
  p = f32[] parameter(0)
  ROOT b = f32[9000000000] broadcast(p), dimensions={}
""")


@pytest.fixture(scope="module")
def xla() -> Iterator[XlaCpu]:
    with XlaCpu(seconds=2) as running:
        yield running


def sum_of(xla: XlaCpu) -> list[float]:
    import ml_dtypes

    inputs = [np.array([1, 2], np.float32), np.array([3, 4], ml_dtypes.bfloat16)]
    results = xla.run(SUM, inputs)
    assert results[1].dtype == ml_dtypes.bfloat16
    assert bool(results[2])
    return [float(each) for each in results[0]]


def test_results_are_the_leaves_of_the_root(xla: XlaCpu) -> None:
    assert sum_of(xla) == [4, 6]


@pytest.mark.skipif("HLO_LINT_ORACLES" not in os.environ, reason="needs another jaxlib")
def test_release_without_one_of_the_flags_keeps_the_others() -> None:
    text = entry("""
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  quotient = f32[] divide(x, y)
  ROOT twice = f32[] divide(quotient, y)
""")
    inputs = [np.array(1e30, np.float32), np.array(1e20, np.float32)]
    for python in os.environ["HLO_LINT_ORACLES"].split(os.pathsep):
        with XlaCpu(python) as other:
            assert other.run(text, inputs, plain=True) == [0]  # algsimp: x / (y * y)
            assert other.run(text, inputs) == [np.float32(1e-10)]


def test_text_that_xla_refuses_is_a_message_and_the_child_goes_on(xla: XlaCpu) -> None:
    with pytest.raises(NotRun, match=r"^1:\d+: expects"):
        xla.run("HloModule m rubbish", [])
    assert sum_of(xla) == [4, 6]


def test_call_without_an_implementation_is_a_message(xla: XlaCpu) -> None:
    text = SUM.replace("add(x, wide)", 'custom-call(x, wide), custom_call_target="nobody"')
    inputs = [np.array([1, 2], np.float32), np.array([3, 4], np.float32)]
    with pytest.raises(NotRun, match="nobody"):
        xla.run(text, inputs)


def test_endless_loop_ends_at_the_limit_and_another_child_starts(xla: XlaCpu) -> None:
    with pytest.raises(NotRun, match="still at it after 2 seconds"):
        xla.run(ENDLESS, [np.array(1, np.int32)])
    assert sum_of(xla) == [4, 6]


def test_more_memory_than_the_limit_is_a_message(xla: XlaCpu) -> None:
    with pytest.raises(NotRun, match=r"[Mm]emory|MB"):
        xla.run(HUGE, [np.array(1, np.float32)])


ORACLE = os.environ.get("HLO_LINT_ORACLES", "")
ALONE = f"""
import numpy
from hlo_lint.xla.cpu import XlaCpu
from hlo_lint.hlo.parser.literals import numpy_dtype

with XlaCpu() as xla:
    y = numpy.array([0.5, 0.25], numpy_dtype("bf16"))
    sum, same, yes = xla.run({SUM!r}, [numpy.array([1, 2], numpy.float32), y])
assert sum.tolist() == [1.5, 2.25] and same.dtype == y.dtype and bool(yes), sum
try:
    import jax
except ImportError:
    print("jaxlib alone")
"""


@pytest.mark.skipif(not ORACLE, reason="no Python with jaxlib 0.11 alone: HLO_LINT_ORACLES")
def test_jaxlib_needs_no_jax() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [ORACLE.split(os.pathsep)[0], "-c", ALONE]
    result = completed(command, env=environment)
    assert (result.returncode, result.stdout) == (0, "jaxlib alone\n"), result.stderr


IN_CHILD = """
import sys
from hlo_lint.xla.cpu import run_text

text = b"HloModule m\\n\\nENTRY e { ROOT c = f64[] constant(0.5) }"
types, (data,) = run_text(text, types=[], flags={})
print(types, data.hex(), sys.modules["jax"])
"""


def test_child_does_not_import_jax() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", IN_CHILD]
    result = completed(command, env=environment)
    assert result.stdout == "[['f64', []]] 000000000000e03f None\n", result.stderr
