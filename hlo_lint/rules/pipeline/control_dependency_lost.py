"""Orders between instructions with side effects that a pass no longer keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from hlo_lint.analysis.async_chains import is_done
from hlo_lint.analysis.calls import positions_of
from hlo_lint.analysis.pass_pairs import ChangedComputation, PassPair
from hlo_lint.analysis.walks import control_successors, operands_first, reached
from hlo_lint.hlo.attributes.splitting import control_predecessors
from hlo_lint.hlo.ir import Computation, Instruction
from hlo_lint.hlo.opcodes import FORWARDS
from hlo_lint.hlo.records import InstructionRecord, attributes_of, name_of, opcode_of, type_of
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
_SCHEDULE = """
HloModule m, is_scheduled=true

ENTRY e {{
  p = f32[8]{{0}} parameter(0)
  q = f32[8]{{0}} parameter(1)
  {copy}
  {first}
  n = f32[8]{{0}} negate(q){control}
  {then}
  ROOT a = f32[8]{{0}} add({read}, n)
}}
"""
_ORDERED = _PROGRAM.format(
    between="c = s32[] negate(p), control-predecessors={a}", after=", control-predecessors={c}"
)
_CALLED: Final = """
HloModule m

f {{
  x = s32[] parameter(0)
  a.1 = s32[] custom-call(x), custom_call_target="first"
  b.1 = s32[] custom-call(x), custom_call_target="second", control-predecessors={{a.1}}
  ROOT t.1 = (s32[], s32[]) tuple(a.1, b.1)
}}

ENTRY e {{
  p = s32[] parameter(0)
  ROOT c = (s32[], s32[]) call(p), to_apply=f
}}
"""
_IN_PLACE: Final = """
HloModule m

ENTRY e {{
  p = s32[] parameter(0)
  a.2 = s32[] custom-call(p), custom_call_target="first"
  b.2 = s32[] custom-call(p), custom_call_target="second"{after}
  ROOT t.2 = (s32[], s32[]) tuple(a.2, b.2)
}}
"""
_ALONE: Final = """
HloModule m

ENTRY e {
  p = s32[] parameter(0)
  a = s32[] custom-call(p), custom_call_target="first"
  n = s32[] negate(p), control-predecessors={a}
  ROOT t = (s32[], s32[]) tuple(a, n)
}
"""
_PERMUTED: Final = """
HloModule m, replica_count=2

ENTRY e {{
  p = s32[] parameter(0)
  a = s32[] custom-call(p), custom_call_target="first"
  d = {types} collective-permute{suffix}(p), source_target_pairs={{{{0,1}},{{1,0}}}}{after}
{done}
  ROOT t = (s32[], s32[]) tuple(a, {read})
}}
"""
_FUSED: Final = """
HloModule m

f {{
  x = s32[] parameter(0)
  ROOT n.1 = s32[] negate(x)
}}

ENTRY e {{
  p = s32[] parameter(0)
  a = s32[] custom-call(p), custom_call_target="first"
  k = s32[] fusion(p), kind=kLoop, calls=f{after}
  ROOT t = (s32[], s32[]) tuple(a, k)
}}
"""


class ControlDependencyLost(Rule):
    """A pass after which two instructions that were in an order are in none any more.

    ## Why
    `control-predecessors` keep an order that no operand shows: between calls with side effects,
    between sends, receives and other collectives. A pass that removes or inlines an instruction has
    to relay its control dependencies to what stays. If it does not, the scheduler may run the two
    in any order: side effects happen in the wrong order, and collectives deadlock where devices
    choose differently. The same holds for tokens, which order infeeds, outfeeds, sends and calls.

    The order that a control dependency gave two instructions that are still there is kept, whatever
    they are. Of a scheduled module, it is lost where the two stand the other way round. A copy that
    became asynchronous ends where it is done.

    An order is kept where any path of operands and control dependencies leads from one to the
    other, or where the module is scheduled and has them in this order. In what a pass inlines,
    outlines or clones, control dependencies of one instruction on another are looked at; what it
    puts into a fusion, makes asynchronous, or no longer so, is followed there.

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
        Bad(
            _SCHEDULE.format(
                copy="",
                first="s = (f32[8]{0:S(1)}, f32[8]{0}, u32[]) copy-start(p)",
                then="d = f32[8]{0:S(1)} copy-done(s)",
                control="  // error",
                read="d",
            ),
            file=_AFTER,
            beside={
                _BEFORE: _SCHEDULE.format(
                    copy="c = f32[8]{0} copy(p)",
                    first="",
                    then="",
                    control=", control-predecessors={c}",
                    read="c",
                )
            },
        ),
        Bad(
            _ALONE.replace(", control-predecessors={a}", "  // error"),
            file=_AFTER,
            beside={_BEFORE: _ALONE},
        ),
        Bad(
            _FUSED.format(after="  // error"),
            file=_AFTER,
            beside={_BEFORE: _ALONE},
        ),
        Bad(
            _PERMUTED.format(suffix="", types="s32[]", after="  // error", done="", read="d"),
            file=_AFTER,
            beside={
                _BEFORE: _PERMUTED.format(
                    suffix="-start",
                    types="(s32[], s32[])",
                    after=", control-predecessors={a}",
                    done="  e = s32[] collective-permute-done(d)",
                    read="e",
                )
                .replace(" d ", " s ")
                .replace("(d)", "(s)")
            },
        ),
        Good(
            _FUSED.format(after=", control-predecessors={a}"),
            file=_AFTER,
            beside={_BEFORE: _ALONE},
        ),
        Bad(
            _IN_PLACE.format(after="  // error"),
            file=_AFTER,
            beside={_BEFORE: _CALLED.format()},
        ),
        Good(
            _IN_PLACE.format(after=", control-predecessors={a.2}"),
            file=_AFTER,
            beside={_BEFORE: _CALLED.format()},
        ),
        Good(
            _SCHEDULE.format(copy="", first="", then="", control="", read="p"),
            file=_AFTER,
            beside={
                _BEFORE: _SCHEDULE.format(
                    copy="t = (f32[8]{0}) tuple(p)",
                    first="o = (f32[8]{0}) opt-barrier(t)",
                    then="",
                    control=", control-predecessors={o}",
                    read="o#0",
                )
            },
        ),
        Good(
            _PROGRAM.format(between="", after=", control-predecessors={a}"),
            file=_AFTER,
            beside={_BEFORE: _ORDERED},
        ),
    )

    def check_moved(self, change: PassPair) -> Findings:
        """Each such pair in a computation that a pass has inlined, outlined or cloned."""
        if not any(map(_has_order, change.removed)):
            return
        clones = {(old.computation.name, old.name): new for old, new in change.moved(_has_effects)}
        for (name, second), behind in clones.items():
            computation = change.before.computation(name)
            old = None if computation is None else computation.instruction(second)
            for first in () if old is None else control_predecessors(old.attributes_text):
                ahead = clones.get((name, first))
                if ahead is None or ahead.computation is not behind.computation:
                    continue
                if not _runs_before(ahead, behind, change):
                    yield Finding(
                        behind,
                        f"{change.pass_name} lost the order of %{ahead.name} and %{behind.name}",
                        notes=(
                            f"before it, they were %{first} and %{second} of %{name}, and a "
                            "control dependency made the first run before the second",
                        ),
                    )

    def check_replaced(self, change: PassPair) -> Findings:
        """Each such pair of which a pass made one asynchronous, or put one into a fusion."""
        if not any(one.mentions("control-predecessors=") for one in change.removed):
            return
        ends = _replaced(change)
        for computation in change.changed if ends else ():
            before, after = computation.before, computation.after
            for second in map(before.at, computation.removed):
                for name in control_predecessors(second.attributes_text):
                    ahead = ends.get(name, (None, after.instruction(name)))[1]
                    behind = ends.get(second.name, (after.instruction(second.name), None))[0]
                    if not (ahead and behind) or ends.keys().isdisjoint((name, second.name)):
                        continue
                    if ahead.computation is not after or behind.computation is not after:
                        continue
                    if ahead is not behind and not _runs_before(ahead, behind, change):
                        yield Finding(
                            behind,
                            f"{change.pass_name} lost the order of %{ahead.name} and "
                            f"%{behind.name}",
                            notes=(
                                f"before it, they were %{name} and %{second.name}, and a control "
                                "dependency made the first run before the second",
                            ),
                        )

    def check(self, change: PassPair) -> Findings:
        """Each such pair, at the instruction that came second."""
        for computation in change.changed:
            after = computation.after
            for before, ahead, behind in _turned(computation) if change.after.is_scheduled else ():
                yield Finding(
                    behind,
                    f"{change.pass_name} scheduled %{behind.name} before %{ahead.name}",
                    notes=(f"before it, a control dependency made %{before.name} run first",),
                )
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


def _runs_before(ahead: Instruction, behind: Instruction, change: PassPair) -> bool:
    """True if the schedule or a path says so, after the pass, of two in one computation."""
    if change.after.is_scheduled and ahead.number < behind.number:
        return True
    return ahead.name in _ancestors(behind.computation, behind.name)


def _has_order(computation: Computation) -> bool:
    """True if an instruction with side effects waits for others besides its operands."""
    rows = computation.rows
    return any(
        "control-predecessors=" in attributes_of(rows[number])
        for number in positions_of(computation, _HAS_EFFECTS)
    )


def _replaced(change: PassPair) -> dict[str, tuple[Instruction, Instruction]]:
    """By the name of an instruction that is gone: what begins in its place, and what ends."""
    ends: dict[str, tuple[Instruction, Instruction]] = {}
    for old, start, (_, *parts) in change.succeeded(_has_effects):
        dones = [part for part in parts if is_done(part)]
        if len(dones) == 1:
            ends[old.name] = start, dones[0]
        elif start.opcode == old.opcode.removesuffix("-start"):
            ends[old.name] = start, start
    ordered = {
        name
        for computation in change.changed
        for row in map(computation.before.rows.__getitem__, computation.removed)
        if (names := control_predecessors(attributes_of(row)))
        for name in (name_of(row), *names)
    }
    for computation in change.changed if ordered else ():
        for old, new in computation.replaced(lambda row: name_of(row) in ordered):
            ends.setdefault(old.name, (new, new))
    for old, new in change.moved(lambda row: name_of(row) in ordered):
        runners = list(change.runners(new.computation))
        if len(runners) == 1 and runners[0].opcode == "fusion":
            ends[old.name] = runners[0], runners[0]
    return ends


def _has_effects(row: InstructionRecord) -> bool:
    return opcode_of(row) in _HAS_EFFECTS


def _turned(
    computation: ChangedComputation,
) -> Iterator[tuple[Instruction, Instruction, Instruction]]:
    """Control edges that the schedule runs against: the first as it was, and the two as they are.

    Of two with side effects the order is looked at elsewhere.
    """
    before, after = computation.before, computation.after
    for number, position in computation.kept:
        if "control-predecessors=" not in attributes_of(before.rows[number]):
            continue
        second = after.at(position)
        for name in control_predecessors(attributes_of(before.rows[number])):
            earlier = before.instruction(name)
            first = None if earlier is None else _as_it_is(earlier, after)
            if earlier is None or first is None or first.number < position:
                continue
            if not {first.opcode, second.opcode} <= _HAS_EFFECTS:
                yield earlier, first, second


def _as_it_is(instruction: Instruction, after: Computation) -> Instruction | None:
    """The instruction of the name, else the end of the asynchronous copy that users read now."""
    kept = after.instruction(instruction.name)
    if kept is not None:
        return kept
    for user in instruction.users:
        same = after.instruction(user.name)
        if same is None or same.opcode != user.opcode:
            continue
        for name, operand in zip(user.operand_names, same.operands, strict=False):
            now = operand.instruction if name == instruction.name else None
            if now is not None and now.opcode == f"{instruction.opcode}-done":
                return now
    return None


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

    def tokens(at: Instruction) -> Iterator[Instruction]:
        if at is instruction or at.opcode in _HANDS_ON:
            yield from (source for source in at.producers if "token[]" in source.type_text)

    for source in reached([instruction], tokens):
        if source is not instruction and source.opcode in _HAS_EFFECTS:
            yield source


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
            there = after.instruction(name)
            alike = [(kept, instruction), (there, earlier)]
            if all(new is not None and new.opcode == old.opcode for new, old in alike):
                yield name, instruction.name
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
    computation = instruction.computation

    def neighbours(at: Instruction) -> Sequence[Instruction]:
        kept = after.instruction(at.name)
        if kept is not None and (kept.opcode == at.opcode or kept.opcode in _HAS_EFFECTS):
            cache[at.name, upwards] = (at.name,) if kept.opcode in _HAS_EFFECTS else ()
        if (at.name, upwards) in cache:
            return ()
        if upwards:
            names = map(computation.instruction, control_predecessors(at.attributes_text))
            return (*at.producers, *filter(None, names))
        return (*at.users, *map(computation.at, control_successors(computation).get(at.name, ())))

    for at in operands_first([instruction], neighbours):
        ends = chain.from_iterable(cache.get((near.name, upwards), ()) for near in neighbours(at))
        cache.setdefault((at.name, upwards), tuple(dict.fromkeys(ends)))
    return cache[instruction.name, upwards]


def _ancestors(computation: Computation, name: str) -> frozenset[str]:
    """Names of all that has to run before an instruction."""

    def above(name: str) -> Iterator[str]:
        at = computation.instruction(name)
        if at is not None:
            yield from (operand.partition("#")[0] for operand in at.operand_names)
            yield from control_predecessors(at.attributes_text)

    return frozenset(reached(above(name), above))
