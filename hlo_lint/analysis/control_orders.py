"""Orders of instructions beyond data dependencies, before and after a pass."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from hlo_lint.analysis.async_chains import is_done
from hlo_lint.analysis.calls import positions_of
from hlo_lint.analysis.pass_pairs import ChangedComputation, PassPair
from hlo_lint.analysis.step_map.links import Link, LinkKind
from hlo_lint.analysis.walks import control_successors, operands_first, reached
from hlo_lint.hlo.attributes.splitting import control_predecessors
from hlo_lint.hlo.ir import Computation, Instruction
from hlo_lint.hlo.opcodes import COMMUNICATES, EXTERNAL, FORWARDS, TUPLES
from hlo_lint.hlo.records import InstructionRecord, attributes_of, name_of, opcode_of, type_of

HAS_EFFECTS: Final = COMMUNICATES | EXTERNAL | {"async-start"}
"""Opcodes whose order devices, the host or other instructions can see."""
_HANDS_ON: Final = FORWARDS | TUPLES | {"after-all"}


def runs_before(ahead: Instruction, behind: Instruction, change: PassPair) -> bool:
    """True if, after the pass, the schedule or a path orders two instructions of a computation."""
    if change.after.is_scheduled and ahead.number < behind.number:
        return True
    return ahead.name in ancestors_of(behind.computation, behind.name)


def has_order(computation: Computation) -> bool:
    """True if an instruction with side effects waits for more than its operands."""
    rows = computation.rows
    return any(
        "control-predecessors=" in attributes_of(rows[number])
        for number in positions_of(computation, HAS_EFFECTS)
    )


def waiting(computation: ChangedComputation) -> Iterator[Instruction]:
    """The instructions whose line a pass changed, and that had control predecessors."""
    before = computation.before
    for number in computation.removed:
        if "control-predecessors=" in attributes_of(before.rows[number]):
            yield before.at(number)


def ends_of_replaced(change: PassPair) -> dict[str, tuple[Instruction, Instruction]]:
    """The first and the last instruction that replace an old instruction, by its name."""
    ordered = {
        name
        for computation in change.changed
        for second in waiting(computation)
        for name in (second.name, *control_predecessors(second.attributes_text))
    }
    links: dict[str, list[Link]] = defaultdict(list)
    for link in change.map.links(lambda row: name_of(row) in ordered):
        links[link.old.name].append(link)
    ends: dict[str, tuple[Instruction, Instruction]] = {}
    for name, (link, *others) in links.items():
        dones = [part for part in link.parts if is_done(part)]
        runners = link.parts[1:]
        if others or link.kind in (LinkKind.KEPT, LinkKind.CLONED, LinkKind.MERGED):
            continue
        if link.kind == LinkKind.MOVED:
            if len(runners) == 1 and runners[0].opcode in ("call", "fusion"):
                ends[name] = runners[0], runners[0]
        elif link.kind != LinkKind.CONVERTED or not dones:
            # XLA puts the order on the bitcast that its readers read (layout_normalization).
            read = [user for user in link.new.users if user.opcode == "bitcast"]
            is_behind = len(read) == 1 and "control-predecessors=" in read[0].attributes_text
            end = read[0] if is_behind else link.new
            ends[name] = end, link.new
        elif len(dones) == 1:
            ends[name] = link.new, dones[0]
    return ends


def has_effects(row: InstructionRecord) -> bool:
    """True if the order of an instruction is visible outside of the computation."""
    return opcode_of(row) in HAS_EFFECTS


def turned_edges(
    computation: ChangedComputation,
) -> Iterator[tuple[Instruction, Instruction, Instruction]]:
    """Control edges that the schedule violates: the old predecessor, then both new instructions.

    Pairs with side effects are left to `orders`.
    """
    before, after = computation.before, computation.after
    for number, position in computation.kept:
        for name in control_predecessors(attributes_of(before.rows[number])):
            second = after.at(position)
            earlier, first = before.instruction(name), after.instruction(name)
            if earlier is None or first is None or first.number < position:
                continue
            if not {first.opcode, second.opcode} <= HAS_EFFECTS:
                yield earlier, first, second


def orders(computation: ChangedComputation) -> Iterator[tuple[tuple[str, str], str]]:
    """Pairs with side effects in both computations, with the reason of their order before."""
    later = _done_later(computation)
    for pair in _control_orders(computation):
        if pair[1] not in later:
            yield pair, "control dependencies"
    before = computation.before
    if any("token[]" in type_of(before.rows[number]) for number in computation.removed):
        for number, row in enumerate(before.rows):
            name = name_of(row)
            if (
                opcode_of(row) in HAS_EFFECTS
                and name in computation.after.index
                and name not in later
            ):
                for first in _tokens_from(before.at(number)):
                    if first.name in computation.after.index:
                        yield (first.name, name), "tokens"


def _done_later(computation: ChangedComputation) -> frozenset[str]:
    """The names of dones that now end the start of the previous iteration."""
    before, after = computation.before, computation.after
    return frozenset(
        name_of(before.rows[number])
        for number, position in computation.kept
        if opcode_of(before.rows[number]) in ("recv-done", "send-done")
        and (start := before.at(number).producer()) is not None
        and start.name in after.index
        and start.name not in ancestors_of(after, name_of(after.rows[position]))
    )


def _tokens_from(instruction: Instruction) -> Iterator[Instruction]:
    """The instructions with side effects whose tokens reach an instruction."""

    def tokens(reader: Instruction) -> Iterator[Instruction]:
        if reader is instruction or reader.opcode in _HANDS_ON:
            yield from (source for source in reader.producers if "token[]" in source.type_text)

    for source in reached([instruction], tokens):
        if source is not instruction and source.opcode in HAS_EFFECTS:
            yield source


def _control_orders(computation: ChangedComputation) -> Iterator[tuple[str, str]]:
    """Pairs with side effects in both computations that control edges ordered before."""
    before, after = computation.before, computation.after
    ends: dict[tuple[str, bool], tuple[str, ...]] = {}
    for instruction in waiting(computation):
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
            for first in _nearest(earlier, computation, ends, upwards=True):
                for second in _nearest(instruction, computation, ends, upwards=False):
                    if first != second:
                        yield first, second


def _nearest(
    instruction: Instruction,
    change: ChangedComputation,
    cache: dict[tuple[str, bool], tuple[str, ...]],
    *,
    upwards: bool,
) -> tuple[str, ...]:
    """The nearest instructions with side effects, upwards or downwards, that the pass kept.

    The instruction itself if it has side effects. The walk goes through removed instructions, and
    through instructions whose operands changed.
    """
    computation, after = change.before, change.after

    def neighbours(node: Instruction) -> Sequence[Instruction]:
        kept = after.instruction(node.name)
        if kept is not None and (kept.opcode == node.opcode or kept.opcode in HAS_EFFECTS):
            if kept.opcode in HAS_EFFECTS:
                cache[node.name, upwards] = (node.name,)
            elif upwards or node is instruction or node.name in change.unchanged:
                cache[node.name, upwards] = ()
        if (node.name, upwards) in cache:
            return ()
        if upwards:
            names = map(computation.instruction, control_predecessors(node.attributes_text))
            return (*node.producers, *filter(None, names))
        return (
            *node.users,
            *map(computation.at, control_successors(computation).get(node.name, ())),
        )

    for node in operands_first([instruction], neighbours):
        ends = chain.from_iterable(cache.get((near.name, upwards), ()) for near in neighbours(node))
        cache.setdefault((node.name, upwards), tuple(dict.fromkeys(ends)))
    return cache[instruction.name, upwards]


def ancestors_of(computation: Computation, name: str) -> frozenset[str]:
    """The names of all instructions that have to run before an instruction."""

    def above(name: str) -> Iterator[str]:
        instruction = computation.instruction(name)
        if instruction is not None:
            yield from (operand.partition("#")[0] for operand in instruction.operand_names)
            yield from control_predecessors(instruction.attributes_text)

    return frozenset(reached(above(name), above))
