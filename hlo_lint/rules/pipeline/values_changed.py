"""Passes that change the values that a module computes."""

from __future__ import annotations

from hlo_lint.rules.base import Bad, Good, Rule, WrongValues

_BEFORE = """
HloModule jit_f

ENTRY %main (x: f32[4,8], y: f32[8,4], b: f32[4]) -> f32[4,4] {
  %x = f32[4,8]{1,0} parameter(0)
  %y = f32[8,4]{1,0} parameter(1)
  %b = f32[4]{0} parameter(2)
  %dot = f32[4,4]{1,0} dot(%x, %y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %bias = f32[4,4]{1,0} broadcast(%b), dimensions={1}
  %sum = f32[4,4]{1,0} add(%dot, %bias)
  %half = f32[] constant(0.5)
  %halves = f32[4,4]{1,0} broadcast(%half), dimensions={}
  ROOT %scaled = f32[4,4]{1,0} multiply(%sum, %halves)
}
"""
_AFTER = """
HloModule jit_f

ENTRY %main (x: f32[4,8], y: f32[8,4], b: f32[4]) -> f32[4,4] {{
  %x = f32[4,8]{{1,0}} parameter(0)
  %y = f32[8,4]{{1,0}} parameter(1)
  %b = f32[4]{{0}} parameter(2)
  %gemm = (f32[4,4]{{1,0}}, s8[64]{{0}}) custom-call(%x, %y, %b), custom_call_target="__cublas$lt$matmul", backend_config={{"gemm_backend_config":{{"alpha_real":{alpha},"beta":0,"dot_dimension_numbers":{{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}},"epilogue":"BIAS"}}}}{mark}
  %result = f32[4,4]{{1,0}} get-tuple-element(%gemm), index=0
  ROOT %scaled = {root}
}}
"""  # noqa: E501
_WRONG = _AFTER.format(alpha=0.5, root="f32[4,4]{1,0} copy(%result)", mark="  // error")
_RIGHT = _AFTER.format(
    alpha=1,
    root="f32[4,4]{1,0} multiply(%result, %halves)",
    mark="\n  %half = f32[] constant(0.5)"
    "\n  %halves = f32[4,4]{1,0} broadcast(%half), dimensions={}",
)
_INPUT = "module_0001.jit_f.0001.hlo_normalization.after_pipeline-start.before_cublas-gemm-rewriter"
_OUTPUT = "module_0001.jit_f.0002.hlo_normalization.after_cublas-gemm-rewriter.before_algsimp.txt"


class ValuesChanged(Rule):
    """A pass that changes the values that the module computes.

    Only `hlo-lint validate` reports it, not `check`: it runs the modules.

    ## Why
    Whatever a pass rewrites, the program must compute the same values. A pass that violates this
    gives wrong numbers without a message, and the text does not show it.

    The dumps before and after the pass ran on the same seeded inputs, and a result differs by more
    than rounding allows. The finding is at the first instruction whose value differs. The notes
    state the location and size of the error, the inputs that show it, and the bound. A module that
    XLA rejects, although the module before the pass runs, is reported too.
    """

    evidence = (WrongValues(),)
    examples = (
        Bad(_WRONG, file=_OUTPUT, beside={f"{_INPUT}.txt": _BEFORE}),
        Good(_RIGHT, file=_OUTPUT, beside={f"{_INPUT}.txt": _BEFORE}),
    )
    command = "validate"
    enabled_by_default = False
