"""Elements of tuples: `%x#1#0`, as jax 0.11 prints them, or a get-tuple-element for each.

    %y = f32[2]{0} negate(%x#1)          %x_1 = f32[2]{0} get-tuple-element(%x), index=1
                                         %y = f32[2]{0} negate(%x_1)

The new names are those that XLA's parser makes: the tuple's name and the number of the element.
Each new instruction stands right before its first reader, as XLA puts it into a schedule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from hlo_lint.hlo.attributes.splitting import control_predecessors
from hlo_lint.hlo.dialects.text_editor import (
    Statement,
    TextEditor,
    referenced_type,
    statements,
    tuple_elements,
)
from hlo_lint.hlo.ir import Computation, Module
from hlo_lint.hlo.records import (
    InstructionRecord,
    attributes_of,
    name_of,
    opcode_of,
    references_of,
    root_mark_of,
)
from hlo_lint.text.source import indent_before

_find_name = re.compile(r"[^\s,{}%]+").finditer
_begins_with_percent = re.compile(r"(?:ROOT(?:\s|/\*.*?\*/)+)?%", re.S).match
_index = re.compile(r",\s*index=(\d+)").match


def explicit(module: Module, editor: TextEditor) -> None:
    """Make each element that is read a get-tuple-element of its own."""
    for computation, instructions in statements(module):
        if not computation.mentions("#"):
            continue
        elided = elided_predecessors(computation)
        elements = _Elements(computation, editor)
        for statement in instructions.where(_reads_elements):
            elements.reader = statement
            if any("#" in reference for reference in references_of(statement.record)):
                for reference, place in statement.named_operands():
                    if "#" in reference:
                        _rename(editor, place.start, place.end, elements.name(reference))
            if elided and "control-predecessors=" in attributes_of(statement.record):
                _resolve(editor, statement, elided, elements)


def _reads_elements(row: InstructionRecord) -> bool:
    return "control-predecessors=" in attributes_of(row) or any(
        "#" in reference for reference in references_of(row)
    )


class _Elements:
    """The get-tuple-elements of one computation, made when first asked for."""

    def __init__(self, computation: Computation, editor: TextEditor) -> None:
        self.reader: Statement | None = None
        """The statement that reads the next get-tuple-element."""
        self._computation = computation
        self._editor = editor
        self._made: dict[str, str | None] = {}

    def name(self, reference: str) -> str | None:
        """The name of the instruction that takes this element; None if there is none."""
        if "#" not in reference:
            return reference
        if reference not in self._made:
            self._made[reference] = self._make(reference)
        return self._made[reference]

    def _make(self, reference: str) -> str | None:
        parent, _, element = reference.rpartition("#")
        if parent.partition("#")[0] not in self._computation.index or self.reader is None:
            self._editor.note(f"%{reference} stays: its computation defines no such tuple")
            return None
        tuple_name = self.name(parent)
        if tuple_name is None:
            return None
        name = self._editor.fresh(f"{tuple_name}_{element}")
        start = self.reader.anchor
        percent = "%" if _begins_with_percent(self._editor.text, start) else ""
        shape = referenced_type(self._computation, reference)
        operand = f"{percent}{tuple_name}"
        if _prints_operand_shapes(self.reader):
            operand = f"{referenced_type(self._computation, parent)} {operand}"
        text = f"{shape} " if shape else ""
        indent = indent_before(self._editor.text, start)
        line = f"{percent}{name} = {text}get-tuple-element({operand}), index={element}"
        self._editor.replace(start, start, line + self._editor.newline + indent)
        return name


def _prints_operand_shapes(statement: Statement) -> bool:
    return any(place.shape_start < place.start for _, place in statement.named_operands())


def _rename(editor: TextEditor, start: int, end: int, name: str | None) -> None:
    if name is not None:
        percent = "%" if editor.text[start] == "%" else ""
        editor.replace(start, end, percent + name)


# ---- control predecessors that the printer left without a definition


def elided_predecessors(computation: Computation) -> dict[str, str]:
    """The elements of tuples after control predecessors that are nowhere defined.

    jax 0.11's printer leaves out a get-tuple-element but not its name in
    `control-predecessors`. Such a list is what LoopDoubleBufferTransformer writes: each
    instruction of the second half of a loop waits for all elements of what the first half
    returned. So there is a tuple with as many operands as the list has names, and those operands
    that are elements are the ones without a name.
    """
    if not computation.mentions("control-predecessors="):
        return {}
    waiting: dict[tuple[str, ...], int] = {}
    for number, row in enumerate(computation.rows):
        awaited = control_predecessors(attributes_of(row))
        if any(name not in computation.index for name in awaited):
            waiting.setdefault(awaited, number)
    undefined = {
        frozenset(name for name in awaited if name not in computation.index) for awaited in waiting
    }
    if len(undefined) != 1:
        return {}
    (lost,) = undefined
    names, first = next(iter(waiting.items()))
    elements = _left_by_the_first_half(computation, names, first, len(lost))
    # Which is which does not matter to the graph, since who waits for one waits for all of them;
    # they were made in this order.
    return dict(zip(sorted(lost, key=_by_number), elements, strict=True)) if elements else {}


def _by_number(name: str) -> list[int]:
    return [int(part) for part in name.split(".") if part.isdecimal()]


def _left_by_the_first_half(
    computation: Computation, names: tuple[str, ...], before: int, count: int
) -> list[str]:
    """The operands that are elements of a tuple, of the tuple that fits the list; or none."""
    fitting = [
        row
        for row in computation.rows
        if opcode_of(row) == "tuple" and len(references_of(row)) == len(names)
    ]
    defined = set(names) & computation.index.keys()
    # The tuple itself where it is still there, else the one that the second half returns.
    fitting.sort(
        key=lambda row: (
            set(references_of(row)) - _elements_in(row) != defined,
            not root_mark_of(row),
        )
    )
    for row in fitting:
        elements = [reference for reference in references_of(row) if "#" in reference]
        is_itself = set(references_of(row)) - _elements_in(row) == defined
        if len(elements) == len(set(elements)) == count and (is_itself or root_mark_of(row)):
            sources = [computation.index.get(element.partition("#")[0]) for element in elements]
            if all(source is not None and source < before for source in sources):
                return elements
    return []


def _elements_in(row: InstructionRecord) -> set[str]:
    return {reference for reference in references_of(row) if "#" in reference}


def _resolve(
    editor: TextEditor, statement: Statement, elided: dict[str, str], elements: _Elements
) -> None:
    place = statement.values().get("control-predecessors")
    if place is None:
        return
    for match in _find_name(editor.text, *place):
        reference = elided.get(match[0])
        if reference is not None:
            name = elements.name(reference)
            if name is not None:
                editor.replace(match.start(), match.end(), name)


# ---- the other way


def compact(module: Module, editor: TextEditor) -> None:
    """Read elements in their tuple, and leave out each get-tuple-element that says no more."""
    for computation, instructions in statements(module):
        if not computation.with_opcode("get-tuple-element"):
            continue
        root = computation.root
        awaited = {
            name for row in computation.rows for name in control_predecessors(attributes_of(row))
        }
        elements: dict[str, str] = {}
        sources: dict[str, str] = {}
        placed: set[str] = set()
        dropped: list[str] = []
        for number, statement in enumerate(instructions):
            row = statement.record
            is_root = root is not None and root.number == number
            stays = is_root or name_of(row) in awaited or name_of(row) not in computation.users
            reference = None if stays else _element(statement, computation)
            if reference is not None:
                if "metadata" in statement.values():
                    editor.note("metadata of a get-tuple-element: compact text has no place for it")
                source, hash_, path = reference.partition("#")
                elements[name_of(row)] = elements.get(source, source) + hash_ + path
                editor.drop_line(statement.start, statement.end)
                sources[name_of(row)] = source
                dropped.append(name_of(row))
                continue
            if module.is_scheduled:
                # XLA schedules an element right before its first reader, in the operands' order.
                first_read = list(_not_yet_placed(references_of(row), sources, placed))
                if dropped != first_read:
                    editor.note("the schedule of get-tuple-elements: compact text has none")
                dropped.clear()
            if not any(name.partition("#")[0] in elements for name in references_of(row)):
                continue
            for name, place in statement.named_operands():
                source, hash_, path = name.partition("#")
                if source in elements:
                    _rename(editor, place.start, place.end, elements[source] + hash_ + path)


def _not_yet_placed(
    references: Iterable[str], sources: Mapping[str, str], placed: set[str]
) -> Iterator[str]:
    """The dropped elements that these references read first, each after the one that it is of."""
    for reference in references:
        name = reference.partition("#")[0]
        if name in sources and name not in placed:
            placed.add(name)
            yield from _not_yet_placed((sources[name],), sources, placed)
            yield name


def _element(statement: Statement, computation: Computation) -> str | None:
    """`x#1` for an instruction that does nothing but take that element, else None."""
    row = statement.record
    if opcode_of(row) != "get-tuple-element" or len(list(statement.named_operands())) != 1:
        return None
    index = _index(attributes_of(row))
    if index is None or not statement.values().keys() <= {"index", "metadata"}:
        return None
    reference = f"{references_of(row)[0]}#{index[1]}"
    shape = referenced_type(computation, references_of(row)[0])
    if shape is not None and tuple_elements(shape) is None:
        return None
    return reference
