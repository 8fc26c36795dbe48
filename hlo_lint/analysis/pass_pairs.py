"""The lines of a module that a pass changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import compress, count
from operator import not_
from typing import TYPE_CHECKING

from hlo_lint.analysis.grouping import by_key
from hlo_lint.analysis.walks import reached
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.records import InstructionRecord, name_of, opcode_of, references_of, type_of
from hlo_lint.text.patterns import late
from hlo_lint.text.phrases import short_repr

if TYPE_CHECKING:
    from hlo_lint.analysis.step_map.step_map import StepMap

_layouts = late(r"\{[^}]*\}|/\*[^*]*\*/")
_element_types = late(r"\w+(?=\[)").sub


@dataclass(frozen=True)
class ChangedComputation:
    """A computation before and after a pass that changed its text."""

    before: Computation
    after: Computation

    @cached_property
    def removed(self) -> tuple[int, ...]:
        """The positions of the old instructions whose line is gone."""
        return self._apart[0]

    @cached_property
    def added(self) -> tuple[int, ...]:
        """The positions of the new instructions whose line is new."""
        return self._apart[1]

    @cached_property
    def _apart(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        # Dumps of a directory share the record of a line: it is compared by identity, at a tenth of
        # the cost of its text. Text that XLA did not print may have equal records twice.
        rows, others = self.before.rows, self.after.rows
        here, there = list(map(id, rows)), list(map(id, others))
        is_shared = set(here).intersection(there).__contains__
        removed = list(compress(count(), map(not_, map(is_shared, here))))
        added = list(compress(count(), map(not_, map(is_shared, there))))
        equal = {rows[number] for number in removed}.intersection(
            [others[number] for number in added]
        )
        if equal:
            removed = [number for number in removed if rows[number] not in equal]
            added = [number for number in added if others[number] not in equal]
        return tuple(removed), tuple(added)

    @cached_property
    def _gone(self) -> frozenset[int]:
        return frozenset(self.removed)

    def keeps(self, name: str) -> bool:
        """True if the line of an instruction is unchanged."""
        number = self.before.index.get(name)
        return number is not None and number not in self._gone

    @cached_property
    def kept(self) -> tuple[tuple[int, int], ...]:
        """The changed instructions that keep their name: positions before and after."""
        rows, position = self.before.rows, self.after.index.get
        pairs = [(number, position(name_of(rows[number]))) for number in self.removed]
        return tuple([(number, after) for number, after in pairs if after is not None])

    @cached_property
    def same(self) -> Mapping[int, int]:
        """The changed instructions that keep their name, opcode, operands and type without layouts:
        positions before and after."""
        rows, others = self.before.rows, self.after.rows
        kept = self.kept if self.keeps_names else ()
        return {old: new for old, new in kept if _operation(rows[old]) == _operation(others[new])}

    @cached_property
    def _unlike(self) -> tuple[Set[int], Set[int]]:
        """The positions before and after of changed instructions that are not the `same`."""
        same = self.same
        gone = {number for number in self.removed if number not in same}
        return gone, set(self.added).difference(same.values())

    def is_certain(self, number: int, *, is_before: bool) -> bool:
        """True if an instruction, before or after, certainly is one of the other side: it has the
        same name, opcode, type and operands."""
        here, there = (self.before, self.after) if is_before else (self.after, self.before)
        is_changed = number in self._unlike[0 if is_before else 1]
        return not is_changed and name_of(here.rows[number]) in there.index

    @cached_property
    def keeps_names(self) -> bool:
        """True if a name means the same instruction before and after.

        XLA:TPU renumbers instructions mid-pipeline, and a computation may get the name of another.
        Element types do not count: bfloat16-propagation changes those of most instructions.
        """
        rows, others, kept = self.before.rows, self.after.rows, self.kept
        differ = sum(
            opcode_of(rows[number]) != opcode_of(others[position])
            or _element_types("", bare_type(type_of(rows[number])))
            != _element_types("", bare_type(type_of(others[position])))
            for number, position in kept
        )
        if differ > 2 and 4 * differ > len(kept):
            return False
        common = len(kept) + len(rows) - len(self.removed)
        return self.before.is_entry or 4 * common >= min(len(rows), len(others))

    def made_for(self, new: Instruction) -> Iterator[Instruction]:
        """A new instruction, and the new instructions that it is computed from."""

        def new_operands(user: Instruction) -> Iterator[Instruction]:
            return (part for part in user.producers if part.name not in self.before.index)

        return reached([new], new_operands)

    def replacement(self, old: Instruction) -> Instruction | None:
        """The instruction, of its type or opcode, that all readers of a removed one now read."""
        after = self.after
        if old.name in after.index:
            return None
        sources = {after.root.name} if old.is_root and after.root else set[str]()
        for user in old.users:
            reader = after.instruction(user.name)
            if reader is None or len(reader.operand_names) != len(user.operand_names):
                return None
            names = zip(user.operand_names, reader.operand_names, strict=True)
            sources.update(theirs for ours, theirs in names if ours == old.name)
        new = after.instruction(sources.pop()) if len(sources) == 1 else None
        if new is None:
            return None
        return new if old.type_text == new.type_text or old.opcode == new.opcode else None


def _operation(row: InstructionRecord) -> tuple[str, tuple[str, ...], str]:
    return opcode_of(row), references_of(row), bare_type(type_of(row))


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
        """The computations that the pass changed and that kept their names, and the entry."""
        pairs = [
            (self.before.entry if new.is_entry else self.before.computation(new.name), new)
            for new in self.after.computations
        ]
        return tuple(
            ChangedComputation(old, new)
            for old, new in pairs
            if old is not None and old is not new and not old.has_text_of(new)
        )

    def changed_places(
        self, *, is_before: bool
    ) -> Iterator[tuple[Computation, Sequence[int], Computation | None]]:
        """The computations that differ on a side, with the positions of their changed instructions
        and the computation of the other side, if it has one."""
        ends = {
            id(pair.before if is_before else pair.after): (
                (pair.removed, pair.after) if is_before else (pair.added, pair.before)
            )
            for pair in self.changed
        }
        for computation in self.removed if is_before else self.added:
            positions, partner = ends.get(id(computation), (range(len(computation.rows)), None))
            yield computation, positions, partner

    def changed_rows(self, *, is_before: bool) -> Iterator[InstructionRecord]:
        """The records of the changed instructions of a side."""
        for computation, numbers, _ in self.changed_places(is_before=is_before):
            yield from map(computation.rows.__getitem__, numbers)

    @cached_property
    def map(self) -> StepMap:
        """The successors of each instruction."""
        from hlo_lint.analysis.step_map.step_map import StepMap

        return StepMap(self)


def _only_in(module: Module, counterpart: Module) -> tuple[Computation, ...]:
    """The computations of `module` whose text is not in `counterpart`."""
    there = set(map(id, counterpart.computations))
    left = [computation for computation in module.computations if id(computation) not in there]
    if not left:
        return ()
    # Dumps of a directory share equal computations, unless XLA did not print them.
    named = by_key((computation.name, computation) for computation in counterpart.computations)
    return tuple(
        computation
        for computation in left
        if not any(map(computation.has_text_of, named.get(computation.name, ())))
    )


@lru_cache(maxsize=1 << 12)
def bare_type(type_text: str) -> str:
    """A type without layouts.

    >>> bare_type("(f32[8]{0:S(1)}, /*index=1*/u32[])")
    '(f32[8],u32[])'
    """
    return _layouts.sub("", type_text).replace(" ", "")
