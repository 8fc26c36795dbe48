"""Orders between instructions with side effects that a pass no longer keeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hlo_lint.analysis.pass_pairs import ChangedComputation, PassPair
from hlo_lint.hlo.attributes.splitting import control_predecessors
from hlo_lint.hlo.ir import Computation, Instruction
from hlo_lint.hlo.opcodes import FORWARDS
from hlo_lint.hlo.records import attributes_of, name_of, opcode_of, type_of
from hlo_lint.rules.base import Bad, Findings, Good, Rule
from hlo_lint.rules.findings import Finding, Severity

_HAS_EFFECTS: Final = frozenset(
    "all-gather all-gather-start all-reduce all-reduce-start all-to-all async-start "
    "collective-broadcast collective-permute collective-permute-start custom-call infeed outfeed "
    "ragged-all-to-all recv recv-done reduce-scatter send send-done".split()
)
"""Opcodes whose order devices, the host or other instructions can see."""
_HANDS_ON: Final = FORWARDS | {"after-all", "get-tuple-element", "tuple"}
_PROGRAM = """
HloModule m

ENTRY e {{
  p = s32[] parameter(0)
  q = s32[] parameter(1)
  a = s32[] custom-call(p), custom_call_target="first"
  {between}
  b = s32[] custom-call(q), custom_call_target="second"{after}
  ROOT t = (s32[], s32[]) tuple(a, b)
}}
"""
_BEFORE = "module_0001.m.0001.simplification.after_pipeline-start.before_dce.txt"
_AFTER = "module_0001.m.0002.simplification.after_dce.before_pipeline-end.txt"
_TOKENS = """
HloModule m

ENTRY e {{
  t = token[] after-all()
  i = (f32[8], token[]) infeed(t)
  u = token[] get-tuple-element(i), index=1
  j = (f32[8], token[]) infeed({taken}){mark}
  a = f32[8] get-tuple-element(i), index=0
  b = f32[8] get-tuple-element(j), index=0
  ROOT r = f32[8] subtract(a, b)
}}
"""
_ORDERED = _PROGRAM.format(
    between="c = s32[] negate(p), control-predecessors={a}", after=", control-predecessors={c}"
)


class ControlDependencyLost(Rule):
    """A pass after which two instructions with side effects are in no order any more.

    ## Why
    `control-predecessors` keep an order that no operand shows: between calls with side effects,
    between sends, receives and other collectives. A pass that removes or inlines an instruction has
    to relay its control dependencies to what stays. If it does not, the scheduler may run the two
    in any order: side effects happen in the wrong order, and collectives deadlock where devices
    choose differently. The same holds for tokens, which order infeeds, outfeeds, sends and calls.

    An order is kept where any path of operands and control dependencies leads from one to the
    other, or where the module is scheduled and has them in this order.

    Reports: openxla/xla#21680 (call-inliner).
    """

    severity = Severity.WARNING
    examples = (
        Bad(
            _PROGRAM.format(between="", after="  // error"),
            file=_AFTER,
            beside={_BEFORE: _ORDERED},
        ),
        Bad(
            _TOKENS.format(taken="t", mark="  // error"),
            file=_AFTER,
            beside={_BEFORE: _TOKENS.format(taken="u", mark="")},
        ),
        Good(
            _PROGRAM.format(between="", after=", control-predecessors={a}"),
            file=_AFTER,
            beside={_BEFORE: _ORDERED},
        ),
    )

    def check(self, change: PassPair) -> Findings:
        """Each such pair, at the instruction that came second."""
        for computation in change.changed:
            after = computation.after
            paths: dict[str, frozenset[str]] = {}
            for (first, second), means in dict(_orders(computation)).items():
                ancestors = paths.get(second)
                if ancestors is None:
                    ancestors = paths[second] = _ancestors(after, second)
                if first in ancestors:
                    continue
                if change.after.is_scheduled and after.index[first] < after.index[second]:
                    continue
                yield Finding(
                    after.at(after.index[second]),
                    f"{change.pass_name} lost the order of %{first} and %{second}",
                    notes=(
                        f"before it, {means} made %{first} run before %{second}; now no path leads "
                        "from one to the other",
                    ),
                )


def _orders(computation: ChangedComputation) -> Iterator[tuple[tuple[str, str], str]]:
    """Pairs with side effects that are in both computations, and what ordered them before."""
    for pair in _control_orders(computation):
        yield pair, "control dependencies"
    before = computation.before
    if any("token[]" in type_of(before.rows[number]) for number in computation.removed):
        for number, row in enumerate(before.rows):
            if opcode_of(row) in _HAS_EFFECTS and name_of(row) in computation.after.index:
                for first in _tokens_from(before.at(number)):
                    if first.name in computation.after.index:
                        yield (first.name, name_of(row)), "tokens"


def _tokens_from(instruction: Instruction) -> Iterator[Instruction]:
    """The instructions with side effects whose tokens an instruction takes."""
    reached: set[str] = set()
    waiting = [instruction]
    while waiting:
        for operand in waiting.pop().operands:
            source = operand.instruction
            if source is None or "token[]" not in source.type_text or source.name in reached:
                continue
            reached.add(source.name)
            if source.opcode in _HAS_EFFECTS:
                yield source
            elif source.opcode in _HANDS_ON:
                waiting.append(source)


def _control_orders(computation: ChangedComputation) -> Iterator[tuple[str, str]]:
    """Pairs with side effects that are in both computations and were ordered by control edges."""
    before, after = computation.before, computation.after
    ends: dict[tuple[str, bool], tuple[str, ...]] = {}
    for number in computation.removed:
        if "control-predecessors=" not in attributes_of(before.rows[number]):
            continue
        instruction = before.at(number)
        kept = after.instruction(instruction.name)
        still = () if kept is None else control_predecessors(kept.attributes_text)
        for name in control_predecessors(instruction.attributes_text):
            if kept is not None and name in still:
                continue
            earlier = before.instruction(name)
            if earlier is None:
                continue
            for first in _nearest(earlier, after, ends, upwards=True):
                for second in _nearest(instruction, after, ends, upwards=False):
                    if first != second:
                        yield first, second


def _nearest(
    instruction: Instruction,
    after: Computation,
    cache: dict[tuple[str, bool], tuple[str, ...]],
    *,
    upwards: bool,
) -> tuple[str, ...]:
    """The nearest instructions with side effects, on the way up or down, that are still there.

    Itself, if it is one; through what the pass removed, and no further.
    """
    key = instruction.name, upwards
    cached = cache.get(key)
    if cached is not None:
        return cached
    cache[key] = ()  # against a circle
    kept = after.instruction(instruction.name)
    if kept is not None and (kept.opcode == instruction.opcode or kept.opcode in _HAS_EFFECTS):
        cached = (instruction.name,) if kept.opcode in _HAS_EFFECTS else ()
    else:
        computation = instruction.computation
        if upwards:
            names = (*instruction.operand_names, *control_predecessors(instruction.attributes_text))
            neighbours = [computation.instruction(name.partition("#")[0]) for name in names]
        else:
            neighbours = [*instruction.users, *_control_successors(instruction)]
        ends = (
            end
            for neighbour in neighbours
            if neighbour is not None
            for end in _nearest(neighbour, after, cache, upwards=upwards)
        )
        cached = tuple(dict.fromkeys(ends))
    cache[key] = cached
    return cached


def _control_successors(instruction: Instruction) -> list[Instruction]:
    return [
        successor
        for successor in instruction.computation.instructions
        if "control-predecessors=" in successor.attributes_text
        and instruction.name in control_predecessors(successor.attributes_text)
    ]


def _ancestors(computation: Computation, name: str) -> frozenset[str]:
    """Names of all that has to run before an instruction."""
    ancestors: set[str] = set()
    todo = [name]
    while todo:
        at = computation.instruction(todo.pop())
        if at is None:
            continue
        for above in (*at.operand_names, *control_predecessors(at.attributes_text)):
            above = above.partition("#")[0]
            if above not in ancestors:
                ancestors.add(above)
                todo.append(above)
    return frozenset(ancestors)
