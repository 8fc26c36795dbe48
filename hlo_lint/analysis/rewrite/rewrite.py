"""`Rewrite`, the public interface for changes of a module."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

from hlo_lint.analysis.calls import names_called_in
from hlo_lint.analysis.rewrite.demands import (
    demand_attributes,
    demand_operands,
    demand_own,
    demand_readable,
    demand_removable,
    demand_same_shape,
    demand_shape,
)
from hlo_lint.analysis.rewrite.edits import dialect_of, edits_of
from hlo_lint.analysis.rewrite.graph import (
    AnyInstruction,
    NewInstruction,
    OperandValue,
    ReadValue,
    RewrittenGraph,
    fresh_name,
    taken_names,
)
from hlo_lint.hlo.ir import Computation, Instruction, Module, Operand
from hlo_lint.hlo.shape import Shape, ShapeSyntaxError, parse_shape
from hlo_lint.text.edits import Edit, Fix, Safety, edited
from hlo_lint.text.errors import RewriteError
from hlo_lint.text.patterns import late
from hlo_lint.text.phrases import counted, in_a_line, listed

_is_name = late(r"[A-Za-z_][\w.\-]*", re.A).fullmatch

AttributeArgument: TypeAlias = "str | int | bool | Computation | Sequence[int | Computation]"
"""An attribute value: HLO text, or a Python number, bool, sequence or computation."""


class Rewrite:
    """Insert, replace and remove instructions, and get the result as edits of the module's text.

    The module itself never changes: `text` and `edits` return the result, and all other characters
    stay as they are. Methods have the names of XLA, MLIR and xDSL (`ReplaceAllUsesWith`). Operands
    that become dead are removed, and so are computations that lose their last caller, because XLA's
    verifier rejects dead instructions in fusions. New lines follow the dialect of the text: `%` or
    not, operands with or without shapes, line ends.

    >>> from hlo_lint.hlo.parser.module import parse_file
    >>> text = '''HloModule m
    ...
    ... ENTRY e {
    ...   p = f32[2,3]{1,0} parameter(0)
    ...   ROOT n = f32[2,3]{1,0} negate(p)
    ... }'''
    >>> module = parse_file(text).modules[0]
    >>> rewrite = Rewrite(module)
    >>> n = module["e"]["n"]
    >>> wide = rewrite.insert_before(n, "convert", "f64[2,3]{1,0}", [n.operands[0]])
    >>> negated = rewrite.insert_before(n, "negate", wide.shape, [wide])
    >>> rewrite.replace(n, rewrite.insert_before(n, "convert", n.shape, [negated]))
    >>> print(rewrite.text().partition("ENTRY ")[2])
    e {
      p = f32[2,3]{1,0} parameter(0)
      n.convert = f64[2,3]{1,0} convert(p)
      n.negate = f64[2,3]{1,0} negate(n.convert)
      ROOT n = f32[2,3]{1,0} convert(n.negate)
    }
    """

    def __init__(self, module: Module) -> None:
        self._graph = RewrittenGraph(module)

    def __repr__(self) -> str:
        graph = self._graph
        inserted = counted(len(graph.new_instructions), "instruction")
        removed = counted(len(graph.removed), "instruction")
        return in_a_line(
            f"<Rewrite of {graph.module.name}: {inserted} inserted, {removed} removed>"
        )

    def insert_before(
        self,
        place: AnyInstruction,
        opcode: str,
        shape: Shape | str,
        operands: Sequence[OperandValue] | str = (),
        /,
        *,
        name: str = "",
        **attributes: AttributeArgument | None,
    ) -> NewInstruction:
        """Insert an instruction before `place`, after earlier insertions there.

        Args:
            place: the next instruction; the schedule of a scheduled module follows the text.
            opcode: as spelled: "get-tuple-element".
            shape: of the result; with a layout if the module has layouts.
            operands: instructions and tuple elements; for a constant, its literal as text.
            name: by default the name of `place` and the opcode, made unique.
            attributes: HLO text such as `operand_precision="{highest,highest}"`, or values such as
                `dimensions=(0, 2, 1)`, `index=1`, `to_apply=computation`; None is left out.
                `metadata` defaults to that of the first operand, as in XLA's passes
                (`hlo_instruction.cc:288-303`).

        Raises:
            RewriteError: XLA would refuse it: unknown opcode or attribute, wrong number of operands
                or wrong shape, an operand of another computation or defined below `place`, a name
                that is taken.
        """
        graph = self._graph
        demand_own(graph, place)
        anchor = place if isinstance(place, Instruction) else place.anchor
        lines = graph.lines.get(anchor, [])
        index = len(lines) if isinstance(place, Instruction) else lines.index(place)
        if anchor.is_nested:
            raise RewriteError(f"%{place.name} is written inside the operands of its user")
        body = place.computation
        if "{" not in body.text[: body.span(anchor.number).start]:
            raise RewriteError("the text is a single instruction: put it into a computation")
        percent = dialect_of(anchor).percent
        given = {key: value for key, value in attributes.items() if value is not None}
        new = NewInstruction(
            anchor,
            name.removeprefix("%") or self.fresh_name(f"{place.name}.{opcode}"),
            opcode,
            _type_text(shape),
            [] if isinstance(operands, str) else [_read(value) for value in operands],
            operands if isinstance(operands, str) else "",
            {key: _spelled(value, percent) for key, value in given.items()},
            has_fresh_name=not name,
        )
        demand_operands(new)
        demand_attributes(opcode, new.attributes, whole=True)
        for read in new.operands:
            demand_readable(graph, read, new, (anchor.number, index - 0.5))
        demand_shape(graph, new)
        self._take(new.name)
        graph.insert(new, index)
        return new

    def replace(self, old: Instruction, new: OperandValue) -> None:
        """Replace all uses of an instruction, and remove it.

        A new instruction without an explicit name takes over the name of the old one, so users need
        no edit. It also inherits sharding, frontend attributes and control dependencies, and
        metadata unless its own has an op_name.

        Raises:
            RewriteError: the shapes differ in more than layout; `new` is defined below a user or
                computed from `old`; `old` is a parameter, or has control dependencies and `new`
                does not take its name.
        """
        read = _read(new)
        successor = new if isinstance(new, NewInstruction) and new.replaced is None else None
        takes_name = successor is not None and successor.has_fresh_name
        demand_removable(self._graph, old, hands_name_on=takes_name)
        if self._graph.users_before(old, read.source):
            message = f"%{read.source.name} is computed from %{old.name}, which has to stay"
            raise RewriteError(f"{message}: use replace_all_uses_with")
        self._replace_uses(old, read, successor if takes_name else None)
        if successor is not None:
            successor.replaced = old
            successor.name = old.name if takes_name else successor.name
        self._remove(old)

    def replace_all_uses_with(self, old: AnyInstruction, new: OperandValue) -> None:
        """Replace all uses of a value, except those that `new` is computed from.

        This wraps an instruction: `new` is computed from `old`, and all other users read `new`.

        Raises:
            RewriteError: the shapes differ in more than layout; `new` is defined below a user.
        """
        self._replace_uses(old, _read(new))

    def replace_operand(self, user: AnyInstruction, number: int, value: OperandValue) -> None:
        """Replace an operand, by its number from 0.

        Raises:
            RewriteError: no such operand; the value is defined below `user`, or in another
                computation.
        """
        operands = self._graph.operands_of(user)
        if not 0 <= number < len(operands):
            raise RewriteError(
                f"%{user.name} has {counted(len(operands), 'operand')}, got operand number {number}"
            )
        self._set_operand(user, number, _read(value))

    def append_operand(self, user: Instruction, value: OperandValue) -> None:
        """Append an operand.

        Raises:
            RewriteError: the value is defined below `user`, or in another computation.
        """
        self._set_operand(user, len(self._graph.operands_of(user)), _read(value))

    def remove(self, instruction: Instruction) -> None:
        """Remove an instruction that has no users.

        Raises:
            RewriteError: it has users or control dependencies, or is a root or a parameter.
        """
        demand_removable(self._graph, instruction)
        self._remove(instruction)

    def set_attribute(self, instruction: Instruction, name: str, value: AttributeArgument) -> None:
        """Set an attribute, which may be new.

        Raises:
            RewriteError: the opcode has no such attribute.
        """
        demand_own(self._graph, instruction)
        demand_attributes(instruction.opcode, [name])
        text = _spelled(value, dialect_of(instruction).percent)
        self._graph.attributes.setdefault(instruction, {})[name] = text

    def add_computation(self, text: str) -> Computation:
        """Add a computation from HLO text, to be the value of `to_apply`, `calls` etc.

        It is inserted before the first computation that calls it.

        Raises:
            RewriteError: the text is not a single computation, or its name is taken (see
                `fresh_name`).
        """
        from hlo_lint.hlo.parser.module import parse_file

        added = parse_file(text.strip()).modules[0]
        for problem in added.problems:
            raise RewriteError(f"line {problem.start.line} of the computation: {problem.message}")
        if len(added) != 1 or added.header or added.computations[0].is_entry:
            raise RewriteError(f"expected one computation without ENTRY, got {added!r}")
        computation = added.computations[0]
        if not computation.rows:
            raise RewriteError(f"%{computation.name} has no instruction")
        for name in names_called_in(computation):
            if name not in self._graph.computations and name not in self._graph.module:
                raise RewriteError(f"%{computation.name} calls %{name}, which is not defined")
        self._take(computation.name)
        self._graph.computations[computation.name] = computation
        return computation

    def fresh_name(self, base: str) -> str:
        """Make a name unique in the module: append the first free number from 2."""
        return fresh_name(base, taken_names(self._graph.module), self._graph.new_names)

    # ---- the outcome

    def text(self) -> str:
        """The text of the module's file after all edits.

        Raises:
            RewriteError: XLA's shape inference rejects an instruction whose operands or attributes
                changed.
        """
        return edited(self._graph.module.file.text, self.edits())

    def edits(self) -> tuple[Edit, ...]:
        """The edits, sorted; positions are characters of the module's file."""
        graph = self._graph
        nodes: list[AnyInstruction] = [*graph.new_instructions, *graph.operands, *graph.attributes]
        for node in nodes:
            if node not in graph.removed:
                demand_shape(graph, node)
        return edits_of(graph)

    def fix(self, title: str, safety: Safety = Safety.SAFE) -> Fix:
        """The edits as the fix of a finding; the title starts with a verb."""
        adds_bitcast = any(new.opcode == "bitcast" for new in self._graph.new_instructions)
        return Fix(title, self.edits(), safety, adds_bitcast)

    # ---- changes

    def _replace_uses(
        self, old: AnyInstruction, read: ReadValue, namesake: NewInstruction | None = None
    ) -> None:
        graph = self._graph
        demand_own(graph, old)
        demand_same_shape(old, read)
        is_root = old is graph.root(old.computation)
        if is_root and read.shape_index:
            raise RewriteError(f"%{old.name} is the root; a tuple element cannot replace it")
        source = read.source
        if source.computation is not old.computation:
            raise RewriteError(f"%{source.name} and %{old.name} are in different computations")
        makers = graph.users_before(old, source)
        users = [user for user in graph.users(old) if user not in makers]
        for user in users:
            demand_readable(graph, read, user, graph.order(user))
        if is_root:
            graph.roots[old.computation] = source
        keeps_text = namesake is not None and namesake.type_text == old.type_text
        for user in users:
            # A tuple of thousands of elements is not read again for each of them.
            if keeps_text and isinstance(user, Instruction) and user not in graph.operands:
                continue
            for number, operand in enumerate(graph.operands_of(user)):
                if operand.source is old:
                    index = (*read.shape_index, *operand.shape_index)
                    graph.set_operand(user, number, ReadValue(source, index))
        if keeps_text and namesake is not None and isinstance(old, Instruction):
            graph.hand_on(old, namesake)

    def _set_operand(self, user: AnyInstruction, number: int, read: ReadValue) -> None:
        demand_own(self._graph, user)
        demand_readable(self._graph, read, user, self._graph.order(user))
        self._graph.set_operand(user, number, read)

    def _remove(self, instruction: Instruction) -> None:
        if users := self._graph.users(instruction):
            names = listed((f"%{user.name}" for user in users), 3)
            raise RewriteError(f"%{instruction.name} still has users: {names}")
        if instruction is self._graph.root(instruction.computation):
            raise RewriteError(f"%{instruction.name} is the root of its computation: replace it")
        self._graph.remove(instruction)

    def _take(self, name: str) -> None:
        if not _is_name(name):
            raise RewriteError(f"{name!r} is not a name")
        if name in self._graph.new_names or name in taken_names(self._graph.module):
            raise RewriteError(f"%{name} is taken; %{self.fresh_name(name)} is free")
        self._graph.new_names.add(name)


def _read(value: OperandValue) -> ReadValue:
    if not isinstance(value, Operand):
        return ReadValue(value)
    if value.instruction is None:
        raise RewriteError(f"%{value.name} is not defined")
    return ReadValue(value.instruction, value.shape_index)


def _type_text(shape: Shape | str) -> str:
    if isinstance(shape, str):
        try:
            parse_shape(shape)
        except ShapeSyntaxError as error:
            raise RewriteError(f"{shape!r} is not a shape: {error}") from None
    return str(shape)


def _spelled(value: AttributeArgument, percent: str) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() | str():
            return str(value)
        case Computation():
            return percent + value.name
        case _:
            return "{" + ",".join(_spelled(part, percent) for part in value) + "}"
