"""The successors of the instructions of a module after a pass.

Structure decides first: unchanged operands, then equal values, then the readers. Names come last,
and only where structure does not contradict. An instruction whose fate is unknown has no link.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Final, TypeVar

from hlo_lint.analysis.calls import calls_of
from hlo_lint.analysis.grouping import by_key
from hlo_lint.analysis.pass_pairs import ChangedComputation, PassPair
from hlo_lint.analysis.step_map.links import Link, LinkKind
from hlo_lint.analysis.step_map.value_classes import Place, ValueClasses
from hlo_lint.hlo.ir import Computation, Instruction
from hlo_lint.hlo.opcodes import COMMUNICATES, without_sugar
from hlo_lint.hlo.records import InstructionRecord, name_of, opcode_of, type_of
from hlo_lint.text.patterns import late

T = TypeVar("T", bound=Hashable)
IsRelevant = Callable[[InstructionRecord], bool]

_ABSORBED: Final = COMMUNICATES | {"convolution", "dot", "reduce", "sort"}
"""Opcodes of which passes combine several into one."""
_NUMBERS = late(r"(\.(\d+|clone))+$")
"""The end of the name of a clone."""
_find_word = late(r"\.[a-z_]+(\.?\d+)?$").search
"""The end of the name of XLA's copy of an instruction: `.remat`, `.clone2`."""

_MAX_MADE: Final = 1 << 17
"""The number of instructions that the replacements of a step may have together, so that a step that
chains thousands of them is not read thousands of times."""


class StepMap:
    """The links from a module before a pass to the module after it; both are mapped on demand."""

    def __init__(self, pair: PassPair) -> None:
        self._pair = pair
        self._bodies = {id(body.before): body for body in pair.changed}
        self._bodies_after = {id(body.after): body for body in pair.changed}
        self._links: dict[IsRelevant, Sequence[Link]] = {}
        self._left = _MAX_MADE

    @cached_property
    def classes(self) -> ValueClasses:
        """The numbers of equal values."""
        return ValueClasses(self._pair)

    def _is_claimed(self, place: Place, *, is_before: bool) -> bool:
        """True if an instruction certainly is one of the other side: all but attributes."""
        computation, number = place
        body = (self._bodies if is_before else self._bodies_after).get(id(computation))
        return (
            body is not None and body.keeps_names and body.is_certain(number, is_before=is_before)
        )

    def links(self, is_relevant: IsRelevant) -> Sequence[Link]:
        """The links of the relevant instructions that the pass changed, removed or copied."""
        if is_relevant not in self._links:  # several rules ask for the same
            self._links[is_relevant] = tuple(self._found(is_relevant))
        return self._links[is_relevant]

    def _found(self, is_relevant: IsRelevant) -> Iterator[Link]:
        gone: list[Instruction] = []
        for body in self._pair.changed:
            for number in body.removed:
                if not is_relevant(body.before.rows[number]):
                    continue
                old, position = body.before.at(number), body.same.get(number)
                if position is not None:
                    new = body.after.at(position)
                    yield Link(old, new, LinkKind.KEPT, (new,), is_equal=True)
                else:
                    gone.append(old)
            yield from self._copies(body, is_relevant)
        for computation in self._pair.removed:
            if id(computation) not in self._bodies:
                rows = computation.rows
                gone += [computation.at(n) for n, row in enumerate(rows) if is_relevant(row)]
        if gone:
            yield from self._fates(gone)

    def _copies(self, body: ChangedComputation, is_relevant: IsRelevant) -> Iterator[Link]:
        """Copies of relevant instructions beside the original."""
        before, after = body.before, body.after
        for number in body.added:
            row = after.rows[number]
            word = _find_word(name_of(row))
            original = before.index.get(name_of(row)[: word.start()]) if word else None
            if original is None or name_of(row) in before.index:
                continue
            old = before.rows[original]
            is_alike = (opcode_of(old), type_of(old)) == (opcode_of(row), type_of(row))
            if is_alike and is_relevant(old):
                new = after.at(number)
                yield Link(before.at(original), new, LinkKind.CLONED, (new,))

    def _fates(self, gone: Sequence[Instruction]) -> Iterator[Link]:
        """The links of instructions that did not keep their name and operands."""
        left = list(gone)
        new: set[Instruction] = set()
        # A kept name is cheap to follow; values are numbered for what has lost its name.
        for stage in (self._named, self._equal, self._alike, self._loops, self._replaced):
            linked: set[Instruction] = set()
            for link in stage(left) if left else ():
                linked.add(link.old)
                new.add(link.new)
                yield link
            left = [old for old in left if old not in linked]
        yield from self._absorbed(left)
        # Further clones of an instruction, such as those of later iterations, have its name alone.
        for link in self._moved(gone):
            if link.new not in new:
                yield link

    def _equal(self, gone: Sequence[Instruction]) -> Iterator[Link]:
        """Links to instructions of equal values."""
        before, after = self.classes.before, self.classes.after
        for link in self._of_class(gone, before.classes_of, before.members, after.members):
            yield link._replace(is_equal=True)

    def _alike(self, gone: Sequence[Instruction]) -> Iterator[Link]:
        """Links to instructions of equal opcode, type and operands."""
        before, after = self.classes.before, self.classes.after
        yield from self._of_class(gone, before.alike_of, before.alike, after.alike)

    def _of_class(
        self,
        gone: Sequence[Instruction],
        classes_of: Mapping[Place, Sequence[T]],
        members: Mapping[T, Sequence[Place]],
        others: Mapping[T, Sequence[Place]],
    ) -> Iterator[Link]:
        done: set[tuple[Place, Place]] = set()
        wanted = dict.fromkeys((old.computation, old.number) for old in gone)
        numbers = {number: None for place in wanted for number in classes_of.get(place, ())}
        for number in numbers:
            old = [
                place for place in members[number] if not self._is_claimed(place, is_before=True)
            ]
            there = others.get(number, ())
            new = [place for place in there if not self._is_claimed(place, is_before=False)]
            pairs: list[tuple[Place, Place, bool]] = []
            if not new and len(there) == 1:
                pairs = [(place, there[0], True) for place in old]
            elif 1 in (len(old), len(new)):
                is_one = len(old) > len(new)
                pairs = [(first, second, is_one) for first in old for second in new]
            elif len(old) == len(new):
                pairs = [(*ends, False) for ends in zip(old, new, strict=True)]
            for first, second, is_merged in pairs:
                if first in wanted and (first, second) not in done:
                    done.add((first, second))
                    yield self._link(first, second, is_merged, len(new) > len(old) == 1)

    def _link(self, first: Place, second: Place, is_merged: bool, is_cloned: bool) -> Link:
        old, new = first[0].at(first[1]), second[0].at(second[1])
        runner = next(self.runners(new.computation), None)
        # A pass moved it into the computation of a start, which stands for it.
        if runner is not None and runner.opcode == "async-start":
            return Link(old, runner, LinkKind.CONVERTED, (runner, *runner.users, new))
        is_combined = len(old.operand_names) != len(new.operand_names)
        # A collective became a start, or a combiner put it together with others.
        if without_sugar(old.opcode) == without_sugar(new.opcode) and (
            old.opcode != new.opcode or is_combined
        ):
            return Link(old, new, LinkKind.CONVERTED, (new, *new.users))
        is_here = self._partners.get(first[0]) is second[0]
        if is_here and old.name == new.name:
            return Link(old, new, LinkKind.KEPT, (new,))
        # A name that was there before is the other instruction, which has the same value now.
        body = self._bodies.get(id(first[0])) if is_here else None
        is_other = body is not None and body.keeps_names and new.name in body.before.index
        if is_merged or is_other:
            return Link(old, new, LinkKind.MERGED, (new,))
        if not is_here:
            return Link(old, new, LinkKind.MOVED, (new, *self.runners(new.computation)))
        return Link(old, new, LinkKind.CLONED if is_cloned else LinkKind.RENAMED, (new,))

    def partner(self, computation: Computation) -> Computation | None:
        """The computation after the pass that runs in the place of a computation before it."""
        body = self._bodies.get(id(computation))
        return self._partners.get(computation) if body is None else body.after

    @cached_property
    def _partners(self) -> Mapping[Computation, Computation]:
        """The computations of the same name, and those that equal instructions run."""
        partners = {body.before: body.after for body in self._pair.changed}
        before, after = self.classes.before, self.classes.after
        for computation in self._pair.removed:
            for number, names in calls_of(computation).items():
                here = computation, number
                # Only a caller that is alone in its class: equal callers may be thousands.
                numbers = [
                    number
                    for number in before.classes_of.get(here, ())
                    if len(before.members[number]) == len(after.members.get(number, ())) == 1
                ]
                if len(numbers) == 1:
                    body_after, position = after.members[numbers[0]][0]
                    called = calls_of(body_after).get(position, ())
                    bodies = map(self._pair.before.computation, names)
                    others = map(self._pair.after.computation, called)
                    for body, partner in zip(bodies, others, strict=False):
                        if body is not None and partner is not None:
                            partners.setdefault(body, partner)
        return partners

    def runners(self, body: Computation) -> Iterator[Instruction]:
        """The instructions that run a computation, in changed or added computations."""
        for computation, number in self._runners.get(body.name, ()):
            yield computation.at(number)

    @cached_property
    def _runners(self) -> Mapping[str, Sequence[Place]]:
        return by_key(
            (name, (computation, number))
            for computation in self._pair.added
            for number, names in calls_of(computation).items()
            for name in names
        )

    def _named(self, gone: Sequence[Instruction]) -> Iterator[Link]:
        """Links to instructions of the same name and opcode, whose operands changed."""
        for old in gone:
            body = self._bodies.get(id(old.computation))
            new = body.after.instruction(old.name) if body is not None else None
            if new is None or body is None or not body.keeps_names:
                continue
            if new.opcode == old.opcode and not body.is_certain(new.number, is_before=False):
                yield Link(old, new, LinkKind.KEPT, (new,))

    def _loops(self, gone: Sequence[Instruction]) -> Iterator[Link]:
        """Links of loops whose state changed to new loops, in their order."""
        loops = {old for old in gone if old.opcode == "while"}
        for body in self._pair.changed if loops else ():
            old = [loop for loop in body.before.with_opcode("while") if loop.name not in body.after]
            new = [loop for loop in body.after.with_opcode("while") if loop.name not in body.before]
            if len(old) == len(new):
                for first, second in zip(old, new, strict=True):
                    if first in loops:
                        yield Link(first, second, LinkKind.RENAMED, (second,))

    def _replaced(self, gone: Sequence[Instruction]) -> Iterator[Link]:
        """Links to the instruction that all readers of an old one now read."""
        for old in gone:
            body = self._bodies.get(id(old.computation))
            new = body.replacement(old) if body is not None else None
            if body is None or new is None:
                continue
            if new.name in body.before.index:
                yield Link(old, new, LinkKind.MERGED, (new,))
            elif made := self._made_for(new, body):
                yield Link(old, new, LinkKind.REPLACED, made)

    def _made_for(self, new: Instruction, body: ChangedComputation) -> tuple[Instruction, ...]:
        """`ChangedComputation.made_for`; empty if the replacements of the step are too large."""
        made = tuple(islice(body.made_for(new), self._left))
        self._left -= len(made)
        return made if self._left else ()

    def _absorbed(self, gone: Sequence[Instruction]) -> Iterator[Link]:
        """Links to the only instruction of the same opcode, else to the only exchange, in the
        replacement of all readers."""
        for old in gone:
            body = self._bodies.get(id(old.computation))
            if body is None or old.opcode not in _ABSORBED or not old.users:
                continue
            values = [body.replacement(user) for user in old.users]
            made = {part: None for value in values if value for part in self._made_for(value, body)}
            same = [part for part in made if part.opcode == old.opcode] or [
                part for part in made if {part.opcode, old.opcode} <= COMMUNICATES
            ]
            if None not in values and len(same) == 1 and self._left:
                yield Link(old, same[0], LinkKind.MERGED, (same[0],))

    def _moved(self, gone: Sequence[Instruction]) -> Iterator[Link]:
        """Links to clones elsewhere: the same opcode, type and name, up to the number."""
        wanted = by_key((_clone_key(old.row), old) for old in gone)
        # A name is cut only where opcode and type fit: most rows are of other kinds.
        kinds = {identity[:2] for identity in wanted}

        def unnamed(*, is_before: bool) -> Mapping[tuple[str, ...], Sequence[Place]]:
            return by_key(
                (_clone_key(row), (computation, number))
                for computation, number in self._unnamed(is_before=is_before)
                for row in [computation.rows[number]]
                if (opcode_of(row), type_of(row)) in kinds
            )

        others, clones = unnamed(is_before=True), unnamed(is_before=False)
        for identity, candidates in clones.items():
            opcode, _, name = identity
            # Among several candidates, a default name, the opcode, is not evidence.
            is_told = len(candidates) == 1 or name != opcode or opcode in COMMUNICATES
            for old in wanted.get(identity, ()) if is_told else ():
                # They may be of another instruction of that name that is gone.
                if {*others.get(identity, ())} - {(old.computation, old.number)}:
                    continue
                for computation, number in candidates:
                    if old.computation.name != computation.name:
                        new = computation.at(number)
                        parts = new, *self.runners(computation)
                        yield Link(old, new, LinkKind.MOVED, parts)

    def _unnamed(self, *, is_before: bool) -> Iterator[Place]:
        """The changed instructions whose name is not on the other side."""
        for computation, numbers, partner in self._pair.changed_places(is_before=is_before):
            there: Mapping[str, int] = {} if partner is None else partner.index
            for number in numbers:
                if name_of(computation.rows[number]) not in there:
                    yield computation, number


def _clone_key(row: InstructionRecord) -> tuple[str, ...]:
    """Opcode, type and the name up to the number of a clone."""
    return opcode_of(row), type_of(row), _NUMBERS.sub("", name_of(row))
