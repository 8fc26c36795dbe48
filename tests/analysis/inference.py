"""Shape inference of one instruction: without its module, what it calls is not known."""

from __future__ import annotations

from hlo_lint.analysis.shape_inference import Inferred, ShapeInference
from hlo_lint.hlo.ir import Instruction, Module

CALLED = {
    text.partition(" ")[0]: text
    for text in """
%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0) %b = f32[] parameter(1) ROOT %s = f32[] add(%a, %b) }

%less (c: f32[], d: f32[]) -> pred[] {
  %c = f32[] parameter(0) %d = f32[] parameter(1)
  ROOT %l = pred[] compare(%c, %d), direction=LT }

%double (e: f32[3]) -> f32[3] {
  %e = f32[3]{0} parameter(0) ROOT %t = f32[3]{0} add(%e, %e) }

%cut (f: f32[4]) -> f32[3] {
  %f = f32[4]{0} parameter(0) ROOT %u = f32[3]{0} slice(%f), slice={[0:3]} }

%always (g: f32[3]) -> pred[] {
  %g = f32[3]{0} parameter(0) ROOT %v = pred[] constant(true) }

%largest (h: f32[], i: s32[], j: f32[], k: s32[]) -> (f32[], s32[]) {
  %h = f32[] parameter(0) %i = s32[] parameter(1) %j = f32[] parameter(2) %k = s32[] parameter(3)
  ROOT %w = (f32[], s32[]) tuple(%h, %i) }

%boxed (a: f32[], b: f32[]) -> (f32[]) {
  %a = f32[] parameter(0) %b = f32[] parameter(1) %s = f32[] add(%a, %b)
  ROOT %t = (f32[]) tuple(%s) }

%step (m: f32[3], n: f32[3]) -> (f32[3], f32[3]) {
  %m = f32[3]{0} parameter(0) %n = f32[3]{0} parameter(1)
  ROOT %x = (f32[3]{0}, f32[3]{0}) tuple(%m, %n) }
""".strip().split("\n\n")
}
"""Computations that instructions call, by their names."""


def rows(table: str) -> list[tuple[str, ...]]:
    """The cells of a table, row by row."""
    return [tuple(map(str.strip, line.split("|"))) for line in table.strip().splitlines()]


def infer(instruction: Instruction, module: Module | None = None) -> Inferred:
    """The shape that XLA would infer for an instruction; or why there is none."""
    inference = _inference(instruction, module)
    return inference.check_shape(instruction.computation, instruction.number, typed=False).inferred


def check(instruction: Instruction, module: Module | None = None) -> tuple[str, ...]:
    """The errors of an instruction's printed shape."""
    inference, computation = _inference(instruction, module), instruction.computation
    return tuple(
        message
        for wrong, message in inference.errors(computation)
        if wrong.number == instruction.number
    )


def _inference(instruction: Instruction, module: Module | None) -> ShapeInference:
    return ShapeInference((instruction.computation,) if module is None else module.computations)
