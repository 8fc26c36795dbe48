"""Kernels alone: the cut of each, and the verdict on its code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hlo_lint import parse
from hlo_lint.apps.isolation import judged_kernels
from hlo_lint.dumps.directory import open_dump
from hlo_lint.engine.isolation.compilers import AbsentKernels, RunningKernels
from hlo_lint.engine.isolation.cut import KernelCut, cuts_of
from hlo_lint.engine.isolation.judge import AloneStatus, judge_kernel, reason_not_alone
from hlo_lint.xla.compiler import Ending, XlaCompiler
from hlo_lint.xla.cpu import XlaCpu
from tests.conftest import DUMPS

PROGRAM = """\
HloModule m, is_scheduled=true

f {
  a = f32[4]{0} parameter(0)
  i = s32[] parameter(1)
  d = f32[1]{0} dynamic-slice(a, i), dynamic_slice_sizes={1}
  ROOT n = f32[1]{0} negate(d)
}

body {
  t = (s32[], f32[4]{0}) parameter(0)
  c = s32[] get-tuple-element(t), index=0
  one = s32[] constant(1)
  next = s32[] add(c, one)
  x = f32[4]{0} get-tuple-element(t), index=1
  s = f32[1]{0} fusion(x, c), kind=kLoop, calls=f
  u = f32[4]{0} dynamic-update-slice(x, s, c)
  ROOT r = (s32[], f32[4]{0}) tuple(next, u)
}

still {
  t = (s32[], f32[4]{0}) parameter(0)
  c = s32[] get-tuple-element(t), index=0
  end = s32[] constant(3)
  ROOT less = pred[] compare(c, end), direction=LT
}

ENTRY e {
  p = f32[4]{0} parameter(0)
  zero = s32[] constant(0)
  k = s32[] copy(zero)
  t = (s32[], f32[4]{0}) tuple(k, p)
  w = (s32[], f32[4]{0}) while(t), condition=still, body=body
  ROOT q = f32[4]{0} get-tuple-element(w), index=1
}
"""


def cuts() -> dict[str, KernelCut]:
    return {cut.instruction.name: cut for cut in cuts_of(parse(PROGRAM))}


def test_a_kernel_is_cut_out_of_its_loop_and_a_loop_begins_at_its_constant() -> None:
    fusion, loop = cuts()["s"].text, cuts()["w"].text
    assert set(cuts()) == {"s", "next", "u", "less", "k", "w"}
    assert "ROOT %s = f32[1]{0} fusion(%x, %c), kind=kLoop, calls=f" in fusion
    assert "%zero_given = s32[] constant(0)\n  %k = s32[] copy(%zero_given)" in loop


@pytest.fixture(scope="module", name="xla")
def running() -> Iterator[XlaCpu]:
    with XlaCpu(seconds=20) as child:
        yield child


@pytest.mark.slow
def test_right_kernels_are_right(xla: XlaCpu) -> None:
    verdicts = {
        name: judge_kernel(cut, RunningKernels(xla, {}), xla).status for name, cut in cuts().items()
    }
    assert verdicts.pop("w") is AloneStatus.NOT_ASKED  # a loop of floats
    assert set(verdicts.values()) == {AloneStatus.RIGHT}


@pytest.mark.parametrize(("configured", "is_asked"), [('"loop_index":"0"', False), ("", True)])
def test_a_slice_at_the_iteration_is_not_asked_alone(configured: str, is_asked: bool) -> None:
    config = f'backend_config={{"dynamic_slice_config":{{{configured}}}}}'
    text = PROGRAM.replace("dynamic_slice_sizes={1}", f"dynamic_slice_sizes={{1}}, {config}")
    (cut,) = (cut for cut in cuts_of(parse(text)) if cut.instruction.name == "s")
    assert (reason_not_alone(cut) == "") is is_asked


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong", "status"),
    [("negate(", "abs(", AloneStatus.WRONG), ("negate(", "no-such(", AloneStatus.REFUSED)],
)
def test_other_code_is_not_right(xla: XlaCpu, right: str, wrong: str, status: AloneStatus) -> None:
    class Otherwise(RunningKernels):
        def _compiled(self, text: str, flags: dict[str, Any]) -> Any:
            return super()._compiled(text.replace(right, wrong), flags)

        def run(self, cut: KernelCut, inputs: Any) -> Any:
            source = self._sources[cut]
            self._sources[cut] = source._replace(text=source.text.replace(right, wrong))
            return super().run(cut, inputs)

    assert judge_kernel(cuts()["s"], Otherwise(xla, {}), xla).status is status


@pytest.mark.slow
def test_the_kernels_of_a_dump_are_right() -> None:
    (compilation,) = judged_kernels(open_dump(DUMPS / "cpu-jax0.10.2" / "mlp_train"))
    statuses = {kernel.verdict.status for kernel in compilation.kernels}
    assert statuses == {AloneStatus.RIGHT}
    assert any(kernel.source.startswith("programs.py:") for kernel in compilation.kernels)


def test_a_kernel_of_a_tpu_that_takes_flags_of_a_collective_is_not_asked() -> None:
    """No program gets such an argument: XLA:TPU dies of it (`v5e_2x2_train`)."""
    flag = "u32[]{:S(2)}"
    body = f"ENTRY e {{ f = {flag} parameter(0) ROOT n = {flag} negate(f) }}"
    (cut,) = cuts_of(parse(f"HloModule m, is_scheduled=true\n{body}"))
    ending = AbsentKernels(XlaCompiler(platform="tpu"), "", is_tpu=True).compile(cut)
    assert ending == Ending("unknown", "no copy moves an argument to the memory S(2)")
