"""Instructions before and after a pass, paired by name: clones and moved instructions keep it.

`hlo_lint.analysis.diff` pairs instructions by their values, for people; here a pair has to be
certain, and an instruction without a matching name is left out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress, count, product
from operator import is_not, not_

from hlo_lint.analysis.calls import calls_of
from hlo_lint.analysis.walks import reached
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.opcodes import COMMUNICATES
from hlo_lint.hlo.records import InstructionRecord, attributes_of, name_of, opcode_of, type_of
from hlo_lint.text.patterns import late
from hlo_lint.text.phrases import short_repr

_NUMBERS = late(r"(\.(\d+|clone))+$")
"""The end of the name of a clone."""
_find_word = late(r"\.[a-z_]+(\.?\d+)?$").search
"""The end of the name of XLA's copy of an instruction: `.remat`, `.clone2`."""


@dataclass(frozen=True)
class ChangedComputation:
    """A computation before and after a pass that changed its text."""

    before: Computation
    after: Computation

    @property
    def removed(self) -> tuple[int, ...]:
        """The positions of the old instructions whose line is gone."""
        return self._apart[0]

    @property
    def added(self) -> tuple[int, ...]:
        """The positions of the new instructions whose line is new."""
        return self._apart[1]

    @cached_property
    def _apart(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        # Dumps of a directory share the record of a line: it is compared by identity, at a tenth of
        # the cost of its text. Text that XLA did not print may have equal records twice.
        rows, others = self.before.rows, self.after.rows
        first, last = self._alike_at_ends()
        here = list(map(id, rows[first : len(rows) - last]))
        there = list(map(id, others[first : len(others) - last]))
        is_shared = set(here).intersection(there).__contains__
        removed = list(compress(count(first), map(not_, map(is_shared, here))))
        added = list(compress(count(first), map(not_, map(is_shared, there))))
        equal = {rows[number] for number in removed}.intersection(
            [others[number] for number in added]
        )
        if equal:
            removed = [number for number in removed if rows[number] not in equal]
            added = [number for number in added if others[number] not in equal]
        return tuple(removed), tuple(added)

    def _alike_at_ends(self) -> tuple[int, int]:
        """The numbers of equal lines at the start and at the end."""
        rows, others = self.before.rows, self.after.rows
        if len(self.before.index) < len(rows) or len(self.after.index) < len(others):
            return 0, 0  # with repeated names, a line at an end may also be in between
        most = min(len(rows), len(others))
        first = next(compress(count(), map(is_not, rows, others)), most)
        last = next(compress(count(), map(is_not, reversed(rows), reversed(others))), most)
        return first, min(last, most - first)

    @cached_property
    def unchanged(self) -> frozenset[str]:
        """The names of the instructions whose line is unchanged."""
        removed = set(self.removed)
        rows = enumerate(self.before.rows)
        return frozenset([name_of(row) for number, row in rows if number not in removed])

    @cached_property
    def kept(self) -> tuple[tuple[int, int], ...]:
        """The changed instructions that keep their name: positions before and after."""
        rows, position = self.before.rows, self.after.index.get
        pairs = [(number, position(name_of(rows[number]))) for number in self.removed]
        return tuple([(number, after) for number, after in pairs if after is not None])

    def with_other_attributes(
        self, is_relevant: Callable[[InstructionRecord], bool]
    ) -> Iterator[tuple[Instruction, Instruction]]:
        """The relevant instructions before and after the pass whose attributes differ.

        Name and opcode are the same. A clone has a different name, but the same opcode, operands
        and type; it counts if no other instruction has these.
        """
        rows, others = self.before.rows, self.after.rows
        for number, position in self.kept:
            row, later = rows[number], others[position]
            if (
                attributes_of(row) != attributes_of(later)
                and opcode_of(row) == opcode_of(later)
                and is_relevant(row)
            ):
                yield self.before.at(number), self.after.at(position)
        yield from self._clones(is_relevant)

    def _clones(
        self, is_relevant: Callable[[InstructionRecord], bool]
    ) -> Iterator[tuple[Instruction, Instruction]]:
        before, after = self.before, self.after
        kept = {number for number, _ in self.kept}
        replaced = [
            before.at(number)
            for number in self.removed
            if number not in kept and is_relevant(before.rows[number])
        ]
        if not replaced:
            return
        gone = (before.at(number) for number in self.removed)
        uses = Counter(_value(old) for old in gone if old.name not in after.index)
        clones: dict[tuple[object, ...], list[Instruction]] = defaultdict(list)
        for new in map(after.at, self.added):
            if new.name not in before.index:
                clones[_value(new)].append(new)
        for old in replaced:
            value = _value(old)
            if old.operand_names and uses[value] == 1:
                for new in clones.get(value, ()):
                    yield old, new

    def copies(
        self, is_relevant: Callable[[InstructionRecord], bool]
    ) -> Iterator[tuple[Instruction, Instruction, str]]:
        """The relevant instructions before, each with a copy in the same computation, and the word
        that the copy's name ends in."""
        before, after = self.before, self.after
        for number in self.added:
            row = after.rows[number]
            word = _find_word(name_of(row))
            original = before.index.get(name_of(row)[: word.start()]) if word else None
            if original is None or word is None or name_of(row) in before.index:
                continue
            old = before.rows[original]
            is_alike = (opcode_of(old), type_of(old)) == (opcode_of(row), type_of(row))
            if is_alike and is_relevant(old):
                yield before.at(original), after.at(number), word[0]

    def made_for(self, new: Instruction) -> Iterator[Instruction]:
        """A new instruction, and the new instructions that it is computed from."""
        return reached(
            [new],
            lambda instruction: [
                operand
                for operand in instruction.producers
                if operand.name not in self.before.index
            ],
        )

    def replaced(
        self, is_relevant: Callable[[InstructionRecord], bool]
    ) -> Iterator[tuple[Instruction, Instruction]]:
        """The relevant removed instructions, each with the new instruction of its type that all its
        readers now read."""
        before, after = self.before, self.after
        for number in self.removed:
            row = before.rows[number]
            if name_of(row) in after.index or not is_relevant(row):
                continue
            old = before.at(number)
            sources = {after.root.name} if old.is_root and after.root else set[str]()
            for user in old.users:
                reader = after.instruction(user.name)
                if reader is None or len(reader.operand_names) != len(user.operand_names):
                    break
                names = zip(user.operand_names, reader.operand_names, strict=True)
                sources.update(theirs for ours, theirs in names if ours == old.name)
            else:
                new = after.instruction(sources.pop()) if len(sources) == 1 else None
                if new and new.name not in before.index and new.type_text == old.type_text:
                    yield old, new


@dataclass(frozen=True, repr=False)
class PassPair:
    """The module before and after a pass that changed it; findings are in `after`."""

    before: Module
    after: Module
    pass_name: str
    """`gemm-rewriter`, as in the name of the dump."""
    pipeline: str
    """The pass pipeline it ran in: `post-layout_assignment`."""
    release: str | None
    """The pass list of the release, `gpu-jax0.10.0`; None if unknown."""

    __repr__ = short_repr

    @cached_property
    def removed(self) -> tuple[Computation, ...]:
        """The computations of the module before that the pass changed or removed."""
        return _only_in(self.before, self.after)

    @cached_property
    def added(self) -> tuple[Computation, ...]:
        """The computations of the module after that the pass changed or added."""
        return _only_in(self.after, self.before)

    @cached_property
    def changed(self) -> tuple[ChangedComputation, ...]:
        """The computations that the pass changed and that kept their names."""
        earlier = {computation.name: computation for computation in self.before.computations}
        pairs = [(earlier.get(new.name), new) for new in self.after.computations]
        return tuple(
            ChangedComputation(old, new)
            for old, new in pairs
            if old is not None and old is not new and not old.has_text_of(new)
        )

    def moved(
        self, is_relevant: Callable[[InstructionRecord], bool]
    ) -> Iterator[tuple[Instruction, Instruction]]:
        """The relevant removed instructions, each with its clones in other computations.

        A clone has the same opcode, type and name, up to the number; it counts if exactly one
        removed instruction, relevant or not, has these: a pass has fused, outlined or inlined it,
        unrolled or cloned a loop.
        """
        changed = {id(pair.before): pair for pair in self.changed}
        left: list[tuple[Computation, int]] = []
        for computation in self.removed:
            pair = changed.get(id(computation))
            numbers = range(len(computation.rows)) if pair is None else pair.removed
            left += [
                (computation, number)
                for number in numbers
                if not (pair and name_of(computation.rows[number]) in pair.after.index)
            ]
        gone: dict[tuple[str, ...], list[Instruction]] = defaultdict(list)
        for computation, number in left:
            if is_relevant(computation.rows[number]):
                gone[_identity(computation.rows[number])].append(computation.at(number))
        if not gone:
            return
        opcodes = {opcode for opcode, *_ in gone}
        for computation, number in left:
            row = computation.rows[number]
            if opcode_of(row) in opcodes and not is_relevant(row) and _identity(row) in gone:
                gone[_identity(row)].append(computation.at(number))
        changed_after = {id(pair.after): pair for pair in self.changed}
        clones: dict[tuple[str, ...], list[Instruction]] = defaultdict(list)
        for computation in self.added:
            pair = changed_after.get(id(computation))
            for number in range(len(computation.rows)) if pair is None else pair.added:
                row = computation.rows[number]
                if opcode_of(row) not in opcodes or (pair and name_of(row) in pair.before.index):
                    continue
                if (identity := _identity(row)) in gone:
                    clones[identity].append(computation.at(number))
        for identity, candidates in clones.items():
            old, *others = gone[identity]
            opcode, _, name = identity
            # Among several candidates, a default name, the opcode, is not evidence.
            is_told = len(candidates) == 1 or name != opcode or opcode in COMMUNICATES
            for new in candidates if is_told and not others else ():
                if old.computation.name != new.computation.name:
                    yield old, new

    def succeeded(
        self, is_relevant: Callable[[InstructionRecord], bool]
    ) -> Iterator[tuple[Instruction, Instruction, tuple[Instruction, ...]]]:
        """The relevant removed instructions, each with its asynchronous, synchronous or combined
        successor, and the parts of that: itself, its users, and the root that it runs."""
        for computation in self.changed:
            before, after = computation.before, computation.after
            alike: dict[tuple[str, tuple[str, ...]], list[Instruction]] = defaultdict(list)
            for number in computation.removed:
                if not is_relevant(row := before.rows[number]):
                    continue
                kept = after.instruction(name_of(row))
                if kept is None or kept.opcode != opcode_of(row):
                    old = before.at(number)
                    alike[old.opcode, old.operand_names].append(old)
            readers: dict[tuple[str, str], list[Instruction]] = defaultdict(list)
            for new in map(after.at, computation.added if alike else ()):
                if new.name not in before.index:
                    root = self._started_root(new)
                    opcode = new.opcode.removesuffix("-start") if root is None else root.opcode
                    for name in set(new.operand_names):
                        readers[name, opcode].append(new)
            for (opcode, operands), gone in alike.items():
                base = opcode.removesuffix("-start")
                # The operand with the fewest readers: many slices read one array.
                near = min([readers[name, base] for name in operands], key=len, default=[])
                successors = [
                    new
                    for new in near
                    if (new.opcode != opcode or len(new.operand_names) != len(operands))
                    and (len(operands) == 1 or set(operands).issubset(new.operand_names))
                ]
                for old, successor in _by_turns(gone, successors):
                    root = self._started_root(successor)
                    users = successor.users
                    yield old, successor, (successor, *users, *([] if root is None else [root]))

    def _started_root(self, start: Instruction) -> Instruction | None:
        """The root of the computation that an `async-start` runs."""
        body = self.after.callee(start) if start.opcode == "async-start" else None
        return None if body is None else body.root

    def runners(self, body: Computation) -> Iterator[Instruction]:
        """The instructions that run a computation, in changed or added computations."""
        for computation in self.added:
            for number, names in calls_of(computation).items():
                if body.name in names:
                    yield computation.at(number)

    def renamed(
        self, opcode: str, is_relevant: Callable[[InstructionRecord], bool]
    ) -> Iterator[tuple[Instruction, Instruction]]:
        """The relevant instructions of an opcode whose name is gone, each with the new instruction
        of its opcode that `diff` pairs it with."""
        kept = {id(pair.before): pair.after.index for pair in self.changed}
        gone = {
            (computation.name, name_of(row))
            for computation in self.removed
            for row in map(computation.rows.__getitem__, computation.positions(opcode))
            if is_relevant(row) and name_of(row) not in kept.get(id(computation), ())
        }
        if not gone:
            return
        from hlo_lint.analysis.diff.align import NOTHING
        from hlo_lint.analysis.diff.difference import paired_computations
        from hlo_lint.analysis.diff.structural_hash import Structures

        structures = Structures()
        for body_before, body_after, pair in paired_computations(
            structures.of(self.before), structures.of(self.after)
        ):
            ours, theirs = body_before.computation, body_after.computation
            if pair is None:
                continue
            for number, row in enumerate(ours.rows):
                if (ours.name, name_of(row)) not in gone or (match := pair[number]) == NOTHING:
                    continue
                new = theirs.rows[match]
                if opcode_of(row) == opcode_of(new) and name_of(new) not in ours.index:
                    yield ours.at(number), theirs.at(match)


def _only_in(module: Module, counterpart: Module) -> tuple[Computation, ...]:
    """The computations of `module` whose text is not in `counterpart`."""
    there = set(map(id, counterpart.computations))
    left = [computation for computation in module.computations if id(computation) not in there]
    if not left:
        return ()
    # Dumps of a directory share equal computations, unless XLA did not print them.
    named: dict[str, list[Computation]] = {}
    for computation in counterpart.computations:
        named.setdefault(computation.name, []).append(computation)
    return tuple(
        computation
        for computation in left
        if not any(map(computation.has_text_of, named.get(computation.name, ())))
    )


def _by_turns(
    gone: Sequence[Instruction], successors: Sequence[Instruction]
) -> Iterator[tuple[Instruction, Instruction]]:
    """Each old instruction with its successors; of several of each, only those at its own place."""
    if len(gone) == 1 or len(successors) == 1:
        return product(gone, successors)
    return zip(gone, successors, strict=True) if len(gone) == len(successors) else iter(())


def _identity(row: InstructionRecord) -> tuple[str, ...]:
    return opcode_of(row), type_of(row), _NUMBERS.sub("", name_of(row))


def is_clone(left: InstructionRecord, right: InstructionRecord) -> bool:
    """True if opcode, type and name, up to the number, are equal."""
    return _identity(left) == _identity(right)


def _value(instruction: Instruction) -> tuple[object, ...]:
    target = instruction.custom_call_target if instruction.opcode == "custom-call" else ""
    return instruction.opcode, instruction.operand_names, instruction.type_text, target
