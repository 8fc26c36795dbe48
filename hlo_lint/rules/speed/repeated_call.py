"""Costly operations that run twice on the same operands."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Final

from hlo_lint.analysis.calls import MARKS, fusions_of, holders, with_opcodes
from hlo_lint.analysis.grouping import by_key
from hlo_lint.analysis.side_effects import MARKERS, SHARDY
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.opcodes import COLLECTIVES, COMMUNICATES
from hlo_lint.rules.base import Bad, Compilation, FinalModule, Findings, Good, Rule
from hlo_lint.rules.evidence import Counted
from hlo_lint.rules.findings import Finding, Severity

_PURE: Final = COLLECTIVES.union(
    "convolution custom-call dot reduce reduce-window select-and-scatter sort".split()
)
_COSTLY: Final = _PURE | COMMUNICATES
_REMATERIALIZED: Final = ".remat"
_CHOICES: Final = {"channel_id", "metadata"}
"""Attributes that do not affect the result."""
_PROGRAM: Final = """
f {{
  z = s32[] constant(0)
  hero = f32[64] custom-call(f32[64] x), custom_call_target="{target}"
  row = f32[1,64] bitcast(hero)
  ROOT u = f32[4,64] dynamic-update-slice(f32[4,64] b, row, s32[] i, z)
}}
c = f32[64] custom-call(f32[64] {operand}), custom_call_target="{target}"  // error
s = f32[4,64] fusion(f32[64] p, f32[4,64] b, s32[] i), kind=kCustom, calls=f
ROOT t = (f32[64], f32[4,64]) tuple(c, s)
"""
_FUSED: Final = """
f {{
  d = f32[8,8] dot(f32[8,8] x, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT n = f32[8,8] negate(d)
}}
g {{
  e = f32[8,8] dot(f32[8,8] y, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT m = f32[8,8] sine(e)
}}
a = f32[8,8] fusion(f32[8,8] p), kind=kOutput, calls=f
b = f32[8,8] fusion(f32[8,8] {operand}), kind=kOutput, calls=g  // error
ROOT t = (f32[8,8], f32[8,8]) tuple(a, b)
"""


class RepeatedCall(Rule):
    """A call, a dot, a reduction or a collective that runs twice on the same operands.

    ## Why
    A pass that splits an operation, or clones it for each user, may create the same costly
    operation twice, and no pass merges them after the last common-subexpression elimination. The
    rule reports repetitions in the final module, or those that passes have added since the first
    dump. Rematerialization repeats operations on purpose.

    A fusion of a kernel and the slices around it absorbs its hero. If the hero has other users, the
    pass must redirect them to the fusion's result. If it keeps the hero instead, the costly
    operation runs twice, and so do its side effects. The same happens if two fusions absorb it.
    """

    severity = Severity.WARNING
    opcodes = _COSTLY | {"fusion"}
    evidence = (Counted("bytes accessed", 384, 288, 2, None),)
    reports = "openxla/xla@dbcb883096"
    examples = (
        Bad.entry(_PROGRAM.format(operand="p", target="scale")),
        Good.entry(_PROGRAM.format(operand="q", target="scale")),
        Good.entry(_PROGRAM.format(operand="p", target="PinToDevice")),
        Bad.entry(_FUSED.format(operand="p")),
        Good.entry(_FUSED.format(operand="q")),
        Bad.step("""
              a = f32[16] all-gather(f32[8] p), replica_groups={{0,1}}, dimensions={0}
            - ROOT s = f32[16] subtract(a, a)
            + b = f32[16] all-gather(p), replica_groups={{0,1}}, dimensions={0}  // error
            + ROOT s = f32[16] subtract(a, b)
        """),
    )

    def check_twins(self, compilation: Compilation) -> Findings:
        """Costly operations of the last dump that repeat an earlier operation, new since dump 1."""
        dumps = compilation.dumps
        first, last = dumps[0].module, dumps[-1].module
        twins = list(_twins(last))
        # A lone text that is not scheduled may still meet cse.
        if not twins or (first is last and not last.is_scheduled):
            return
        is_of_source = () if first is last else {_kind(call) for call, _ in _twins(first)}
        for call, repeated in twins:
            if _kind(call) not in is_of_source:
                message = f"this {repeated.opcode} repeats %{call.name} on the same operands"
                yield Finding(repeated, message, file=len(dumps) - 1)

    def check(self, final: FinalModule) -> Findings:
        """Operations that a fusion computes again, and fusions that compute the same operation."""
        module = final.module
        bodies = {body.name for opcode in _COSTLY for body in holders(module).get(opcode, ())}
        runs_of: dict[Computation, dict[Hashable, Instruction]] = {}
        for fusion, body in fusions_of(module, bodies):
            runs = runs_of.get(fusion.computation)
            if runs is None:
                runs = runs_of[fusion.computation] = {}
                for call in with_opcodes(fusion.computation, _COSTLY):
                    runs.setdefault((_place(call, call.operand_names), _settings(call)), call)
            for hero, names in _heroes(body, fusion) if _REMATERIALIZED not in fusion.name else ():
                twin = runs.setdefault((_place(hero, names), _settings(hero)), fusion)
                if twin is fusion:
                    continue
                if twin.opcode == "fusion":
                    message = f"this fusion repeats the {hero.opcode} %{hero.name}"
                    yield Finding(fusion, f"{message}, which %{twin.name} computes too")
                else:
                    message = f"this {twin.opcode} runs again as %{hero.name} of %{fusion.name}"
                    yield Finding(twin, message)


def _twins(module: Module) -> Iterator[tuple[Instruction, Instruction]]:
    """Pairs of a costly operation and a later repetition of it in the same computation."""
    for computation in module.computations:
        costly = [
            call for call in with_opcodes(computation, _PURE) if _REMATERIALIZED not in call.name
        ]
        by_place = by_key((_place(call, call.operand_names), call) for call in costly)
        for calls in by_place.values():
            first: dict[Hashable, Instruction] = {}
            for call in calls if len(calls) > 1 else ():
                twin = first.setdefault(_settings(call), call)
                if twin is not call and _is_pure(call):
                    yield twin, call


def _is_pure(call: Instruction) -> bool:
    target = call.custom_call_target if call.opcode == "custom-call" else ""
    has_effects = "has_side_effect=true" in call.attributes_text or not call.operand_names
    is_mark = target in MARKERS or target in MARKS or target.startswith(SHARDY)
    return not has_effects and not is_mark


def _kind(instruction: Instruction) -> Hashable:
    """An operation without its operands, which passes may have renamed."""
    return instruction.opcode, instruction.type_text.partition("{")[0]


def _heroes(
    body: Computation, fusion: Instruction
) -> Iterator[tuple[Instruction, tuple[str, ...]]]:
    """Costly operations of a body that read only parameters, with the fusion's operand names."""
    given = fusion.operand_names
    for hero in with_opcodes(body, _COSTLY):
        numbers = [
            None if operand.instruction is None else operand.instruction.parameter_number
            for operand in hero.operands
        ]
        names = [given[index] for index in numbers if index is not None and index < len(given)]
        is_mark = hero.opcode == "custom-call" and hero.custom_call_target in MARKS
        if names and len(names) == len(numbers) and not is_mark:
            yield hero, tuple(names)


def _place(instruction: Instruction, reads: tuple[str, ...]) -> Hashable:
    """The opcode, the type and the operands of an operation: cheap to compare."""
    return instruction.opcode, instruction.type_text, reads


def _settings(instruction: Instruction) -> Hashable:
    """The attributes that two operations on the same operands have to share to be the same."""
    return frozenset([item for item in instruction.attributes.items() if item[0] not in _CHOICES])
