"""Checks of XLA's verifier: methods with marks, collected in a table.

A rule of the family `verifier` holds its checks as methods. A mark tells what the check looks at,
so that one pass over the instructions runs the checks of all rules:

    @on("while")
    def shapes(self, scope: Scope, loop: Instruction) -> Iterator[Violation]:
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple, Protocol, TypeAlias, TypeVar

from hlo_lint.analysis.grouping import by_key
from hlo_lint.analysis.stage import Stage
from hlo_lint.analysis.verifier.scope import Scope, Violation
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.kinds import ATTRIBUTES, RowKind

InstructionCheck: TypeAlias = Callable[[Scope, Instruction], Iterable[Violation]]
ComputationCheck: TypeAlias = Callable[[Scope], Iterable[Violation]]
ModuleCheck: TypeAlias = Callable[[Module, Stage], Iterable[Violation]]

Marked = TypeVar("Marked", bound=Callable[..., Iterable[Violation]])


class Mark(NamedTuple):
    """The subject of a check."""

    subject: str
    words: tuple[str, ...] = ()
    other_than: frozenset[str] = frozenset()
    option: str = ""
    concerns: Callable[[RowKind], bool] | None = None
    concerns_opcodes: Callable[[frozenset[str]], bool] | None = None
    """False for the opcodes of a computation in which the check cannot find anything."""
    is_of_names: bool = False
    """True if it finds something only where `Reading.is_sound` is false."""
    is_local: bool = False

    @property
    def is_of_whole(self) -> bool:
        """True if it looks at whole computations or modules, independent of opcodes."""
        return not self.words


def _marked(mark: Mark) -> Callable[[Marked], Marked]:
    def decorate(check: Marked) -> Marked:
        check.__dict__["verifies"] = mark
        return check

    return decorate


def on(
    *opcodes: str,
    local: bool = False,
    option: str = "",
    word: str = "",
    concerns: Callable[[RowKind], bool] | None = None,
) -> Callable[[Marked], Marked]:
    """Mark a check of each instruction of some opcodes.

    A `local` check depends only on the instruction's attributes, its literal, the types of its
    result and its operands, the signatures of its callees, the header and the stage: equal
    instructions are checked once, whatever number their channel has, and a call passes if the types
    of its operands and result are spelled as in its computation. With an `option` the check binds
    only where the stage sets that option. A check that is not `local` sees only the kinds that it
    `concerns`; with a `word`, kinds that have it in the attributes before the metadata.
    """
    if word:

        def concerns(kind: RowKind) -> bool:
            return word in kind[ATTRIBUTES]

    return _marked(Mark("opcode", opcodes, option=option, concerns=concerns, is_local=local))


def on_attribute(
    *words: str, other_than: frozenset[str] = frozenset(), option: str = "", local: bool = False
) -> Callable[[Marked], Marked]:
    """Mark a check of each instruction whose attributes hold any of some words.

    With an `option` it binds only where the stage sets that option. A `local` check depends only
    on attributes, type, opcode, header and stage.
    """
    return _marked(Mark("attribute", words, other_than, option, is_local=local))


on_computation = _marked(Mark("computation"))
"""Mark a check of each computation as a whole."""


def on_computation_if(
    concerns: Callable[[frozenset[str]], bool] | None = None,
    *,
    option: str = "",
    names: bool = False,
) -> Callable[[Marked], Marked]:
    """Mark a check of each computation whose opcodes concern it.

    With an `option` it binds only where the stage sets that option; with `names`, only in
    computations whose names are not unique, or not defined above their uses.
    """
    return _marked(Mark("computation", option=option, concerns_opcodes=concerns, is_of_names=names))


on_module = _marked(Mark("module"))
"""Mark a check of the module as a whole."""
on_entry = _marked(Mark("entry"))
"""Mark a check of the header against parameters and root of the entry computation."""


def marks_of(holder: type) -> Iterator[Mark]:
    """The marks of a class's methods."""
    return (mark for _, mark in _marked_methods(holder))


def _marked_methods(holder: type) -> Iterator[tuple[str, Mark]]:
    for name, method in vars(holder).items():
        mark = getattr(method, "verifies", None)
        if isinstance(mark, Mark):
            yield name, mark


class CheckHolder(Protocol):
    """A rule whose marked methods are checks."""

    shapes_of: ClassVar[Mapping[str, str]]
    """The opcodes whose inferred shape is a check of this rule, by the name of the check."""
    counts_of: ClassVar[Mapping[str, str]]
    """The opcodes whose number of operands is a check of this rule, by the name of the check."""


class Checks(NamedTuple):
    """All checks, by subject."""

    opcodes: Mapping[str, Sequence[tuple[InstructionCheck, Mark]]]
    attributes: tuple[tuple[InstructionCheck, Mark], ...]
    computations: tuple[tuple[ComputationCheck, Mark], ...]
    modules: tuple[ModuleCheck, ...]
    entries: tuple[ModuleCheck, ...]
    shapes: Mapping[str, str]
    """The check that a wrong shape violates, by opcode."""
    counts: Mapping[str, str]
    """The check that a wrong number of operands violates, by opcode."""

    @classmethod
    def of(cls, holders: Iterable[CheckHolder]) -> Checks:
        """The checks of some rules."""
        holders = tuple(holders)
        held: dict[str, list[tuple[Callable[..., Iterable[Violation]], Mark]]] = by_key(
            (mark.subject, (getattr(holder, name), mark))
            for holder in holders
            for name, mark in _marked_methods(type(holder))
        )
        of_opcodes = held.get("opcode", ())
        return cls(
            by_key((opcode, (check, mark)) for check, mark in of_opcodes for opcode in mark.words),
            tuple(held.get("attribute", ())),
            tuple(held.get("computation", ())),
            tuple(check for check, _ in held.get("module", ())),
            tuple(check for check, _ in held.get("entry", ())),
            _by_opcode(holder.shapes_of for holder in holders),
            _by_opcode(holder.counts_of for holder in holders),
        )


def _by_opcode(tables: Iterable[Mapping[str, str]]) -> dict[str, str]:
    return {
        opcode: check
        for table in tables
        for check, opcodes in table.items()
        for opcode in opcodes.split()
    }
