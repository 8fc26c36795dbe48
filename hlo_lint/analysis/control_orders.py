"""Orders of instructions beyond data dependencies that a pass lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from hlo_lint.analysis.async_chains import is_done
from hlo_lint.analysis.calls import positions_with
from hlo_lint.analysis.pass_pairs import ChangedComputation, PassPair
from hlo_lint.analysis.step_map.links import Link, LinkKind
from hlo_lint.analysis.walks import control_successors, operands_first, reached
from hlo_lint.hlo.attributes.splitting import control_predecessors
from hlo_lint.hlo.ir import Computation, Instruction
from hlo_lint.hlo.opcodes import COMMUNICATES, EXTERNAL, FORWARDS, TUPLES
from hlo_lint.hlo.records import name_of, opcode_of, type_of

_HAS_EFFECTS: Final = COMMUNICATES | EXTERNAL | {"async-start"}
"""Opcodes whose order devices, the host or other instructions can see."""
_HANDS_ON: Final = FORWARDS | TUPLES | {"after-all"}


class LostOrder(NamedTuple):
    """Two instructions that were ordered before a pass, and are not after it."""

    ahead: Instruction
    behind: Instruction
    reason: str
    """The reason for their order before the pass."""


def lost_orders(pair: PassPair) -> Iterator[LostOrder]:
    """Lost or reversed orders, each once."""
    waiting = [
        computation.at(number)
        for computation in pair.removed
        for number in positions_with(computation, "control-predecessors=")
    ]
    lost: dict[tuple[Instruction, Instruction], str] = {}
    images = _images(waiting, pair) if waiting else {}
    for waiter in waiting:
        for name in control_predecessors(waiter.attributes_text):
            awaited = waiter.computation.instruction(name)
            ours = images.get(awaited, ()) if awaited else ()
            theirs = images.get(waiter, ())
            # Clones are listed by iteration or call, so equal positions belong together.
            pairs = zip(ours, theirs, strict=True) if len(ours) == len(theirs) else ()
            reason = f"they were %{name} and %{waiter.name}, ordered by a control dependency"
            for (_, last), (first, _) in pairs:
                if last.computation is first.computation and not _runs_before(last, first, pair):
                    lost.setdefault((last, first), reason)
    for body in pair.changed:
        for (name, other), means in _orders(body, waiting):
            ahead, behind = body.after.instruction(name), body.after.instruction(other)
            if ahead and behind and not _runs_before(ahead, behind, pair):
                lost.setdefault((ahead, behind), f"{means} made %{name} run before %{other}")
    for (ahead, behind), reason in lost.items():
        yield LostOrder(ahead, behind, reason)


def _runs_before(ahead: Instruction, behind: Instruction, pair: PassPair) -> bool:
    """True if, after the pass, the schedule or a path orders two instructions of a computation."""
    # Both may have become one fusion.
    if ahead is behind or (pair.after.is_scheduled and ahead.number < behind.number):
        return True
    if ahead.name in control_predecessors(behind.attributes_text):
        return True
    if ahead.name in _ancestors_of(behind.computation, behind.name):
        return True
    # A result of a call may be computed before its other effects happen.
    is_call = behind.opcode == "call"
    return is_call and behind.name in _ancestors_of(ahead.computation, ahead.name)


def _images(
    waiting: Sequence[Instruction], pair: PassPair
) -> Mapping[Instruction, Sequence[tuple[Instruction, Instruction]]]:
    """The first and the last instruction of each successor of ordered instructions."""
    names = dict.fromkeys(
        name for old in waiting for name in (old.name, *control_predecessors(old.attributes_text))
    )
    images: dict[Instruction, list[tuple[Instruction, Instruction]]] = defaultdict(list)
    for body in pair.changed:
        for name in filter(body.keeps, names):
            old, new = body.before.instruction(name), body.after.instruction(name)
            if old is not None and new is not None:
                images[old].append((new, new))
    for link in pair.map.links(lambda row: name_of(row) in names):
        # One instruction for several stands for neither of their places.
        if link.kind != LinkKind.MERGED:
            images[link.old].append(_ends(link, pair))
    return images


def _ends(link: Link, pair: PassPair) -> tuple[Instruction, Instruction]:
    new, dones = link.new, [part for part in link.parts if is_done(part)]
    # A copy that memory-space-assignment made asynchronous ends at its done.
    if link.kind == LinkKind.CONVERTED and len(dones) == 1:
        return new, dones[0]
    partner = pair.map.partner(link.old.computation)
    runners = [part for part in link.parts[1:] if part.computation is partner]
    # A fusion that it moved into stands for it outside.
    if link.kind == LinkKind.MOVED and len(runners) == 1 and new.computation is not partner:
        return runners[0], runners[0]
    # XLA puts the order on the bitcast that its readers read (layout_normalization).
    read = [user for user in new.users if user.opcode == "bitcast"]
    is_behind = len(read) == 1 and "control-predecessors=" in read[0].attributes_text
    return read[0] if is_behind else new, new


def _orders(
    body: ChangedComputation, waiting: Sequence[Instruction]
) -> Iterator[tuple[tuple[str, str], str]]:
    """Pairs of kept instructions with side effects, with the reason of their order before."""
    before = body.before
    later = _done_later(body)
    ends: dict[tuple[str, bool], tuple[str, ...]] = {}
    for waiter in waiting:
        kept = body.after.instruction(waiter.name)
        still = control_predecessors(kept.attributes_text) if kept is not None else ()
        for name in control_predecessors(waiter.attributes_text):
            awaited = before.instruction(name)
            if awaited is None or name in still or waiter.computation is not before:
                continue
            for first in _nearest(awaited, body, ends, upwards=True):
                for second in _nearest(waiter, body, ends, upwards=False):
                    if first != second and second not in later:
                        yield (first, second), "control dependencies"
    if any("token[]" in type_of(before.rows[number]) for number in body.removed):
        for instruction in before.instructions:
            if instruction.opcode in _HAS_EFFECTS and instruction.name not in later:
                for source in _tokens_from(instruction):
                    yield (source.name, instruction.name), "tokens"


def _done_later(computation: ChangedComputation) -> frozenset[str]:
    """The names of dones that now end the start of the previous iteration."""
    before, after = computation.before, computation.after
    return frozenset(
        name_of(before.rows[number])
        for number, position in computation.kept
        if opcode_of(before.rows[number]) in ("recv-done", "send-done")
        and (start := before.at(number).producer()) is not None
        and start.name in after.index
        and start.name not in _ancestors_of(after, name_of(after.rows[position]))
    )


def _tokens_from(instruction: Instruction) -> Iterator[Instruction]:
    """The instructions with side effects whose tokens reach an instruction."""

    def tokens(reader: Instruction) -> Iterator[Instruction]:
        if reader is instruction or reader.opcode in _HANDS_ON:
            yield from (source for source in reader.producers if "token[]" in source.type_text)

    for source in reached([instruction], tokens):
        if source is not instruction and source.opcode in _HAS_EFFECTS:
            yield source


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
        if kept is not None and (kept.opcode == node.opcode or kept.opcode in _HAS_EFFECTS):
            if kept.opcode in _HAS_EFFECTS:
                cache[node.name, upwards] = (node.name,)
            elif upwards or node is instruction or change.keeps(node.name):
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


def _ancestors_of(computation: Computation, name: str) -> frozenset[str]:
    """The names of all instructions that have to run before an instruction."""

    def above(name: str) -> Iterator[str]:
        instruction = computation.instruction(name)
        if instruction is not None:
            yield from (operand.partition("#")[0] for operand in instruction.operand_names)
            yield from control_predecessors(instruction.attributes_text)

    return frozenset(reached(above(name), above))
