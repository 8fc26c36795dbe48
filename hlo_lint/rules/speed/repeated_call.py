"""Costly operations that run beside a fusion that has taken them in."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Final

from hlo_lint.analysis.calls import fusions_of, holders
from hlo_lint.hlo.ir import Computation, Instruction
from hlo_lint.hlo.opcodes import COMMUNICATES
from hlo_lint.rules.base import Bad, FinalModule, Findings, Good, Rule
from hlo_lint.rules.findings import Finding, Severity

_COSTLY: Final = frozenset({"convolution", "custom-call", "dot", *COMMUNICATES})
_PROGRAM: Final = """
f {{
  x = f32[64]{{0}} parameter(0)
  b = f32[4,64]{{1,0}} parameter(1)
  i = s32[] parameter(2)
  z = s32[] constant(0)
  hero = f32[64]{{0}} custom-call(x), custom_call_target="scale"
  row = f32[1,64]{{1,0}} bitcast(hero)
  ROOT u = f32[4,64]{{1,0}} dynamic-update-slice(b, row, i, z)
}}

ENTRY e {{
  p = f32[64]{{0}} parameter(0)
  q = f32[64]{{0}} parameter(1)
  b = f32[4,64]{{1,0}} parameter(2)
  i = s32[] parameter(3)
  c = f32[64]{{0}} custom-call({read}), custom_call_target="scale"{mark}
  s = f32[4,64]{{1,0}} fusion(p, b, i), kind=kCustom, calls=f
  ROOT t = (f32[64]{{0}}, f32[4,64]{{1,0}}) tuple(c, s)
}}
"""


class RepeatedCall(Rule):
    """A library call, a dot or a collective that a fusion computes as well.

    ## Why
    A fusion of one kernel and the slices around it takes its hero in. Where something else reads
    the hero, too, a pass has to give that reader the fusion's result: if it leaves the hero where
    it was, the costly operation runs twice, and one that has effects has them twice.

    Reports: openxla/xla@dbcb883096.
    """

    severity = Severity.WARNING
    opcodes = frozenset({"fusion"})
    examples = (
        Bad.module(_PROGRAM.format(read="p", mark="  // error")),
        Good.module(_PROGRAM.format(read="q", mark="")),
    )

    def check(self, final: FinalModule) -> Findings:
        """Each such operation that stands outside of the fusion."""
        module = final.module
        bodies = {body.name for opcode in _COSTLY for body in holders(module).get(opcode, ())}
        outside: dict[Computation, dict[Hashable, Instruction]] = {}
        for fusion, body in fusions_of(module, bodies):
            computation = fusion.computation
            if computation not in outside:
                costly = [call for code in _COSTLY for call in computation.with_opcode(code)]
                outside[computation] = {_value(call, call.operand_names): call for call in costly}
            for hero, names in _heroes(body, fusion) if outside[computation] else ():
                twin = outside[computation].get(_value(hero, names))
                if twin is not None:
                    message = f"this {twin.opcode} runs again as %{hero.name} of %{fusion.name}"
                    yield Finding(twin, message)


def _heroes(
    body: Computation, fusion: Instruction
) -> Iterator[tuple[Instruction, tuple[str, ...]]]:
    """The costly operations of a body that read its parameters alone, and what they read."""
    given = fusion.operand_names
    for opcode in body.opcodes & _COSTLY:
        for hero in body.with_opcode(opcode):
            numbers = [
                None if operand.instruction is None else operand.instruction.parameter_number
                for operand in hero.operands
            ]
            names = [given[at] for at in numbers if at is not None and at < len(given)]
            if names and len(names) == len(numbers):
                yield hero, tuple(names)


def _value(instruction: Instruction, reads: tuple[str, ...]) -> Hashable:
    """An operation by all that decides what it computes."""
    attributes = {**instruction.attributes}
    attributes.pop("metadata", None)
    return instruction.opcode, instruction.type_text, reads, tuple(attributes.items())
