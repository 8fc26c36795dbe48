"""Hovers: a description of the name under the mouse, as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hlo_lint.apps.lsp.documents import Document
from hlo_lint.engine.diagnose import origin_of
from hlo_lint.hlo.ir import Computation, Module
from hlo_lint.hlo.opcodes import COMMON, demands_on, wrapped_opcode
from hlo_lint.hlo.parser.tokens import Role, Token
from hlo_lint.hlo.records import attributes_of, name_of, opcode_of, references_of, type_of
from hlo_lint.hlo.shape import (
    UNBOUNDED,
    ArrayShape,
    BufferShape,
    Index,
    Shape,
    TupleShape,
    byte_sizes,
    part,
    shape_or_none,
    spelled_index,
)
from hlo_lint.hlo.symbols import ComputationPlace, Statement, Symbol
from hlo_lint.rules.registry import all_rules
from hlo_lint.text.phrases import counted, listed, shortened, sized
from hlo_lint.text.source import Span, shown

WIDTH = 200
"""The maximum length of an instruction or a name, in characters."""
NAMES = 8
"""The maximum number of operands, users or elements in a list."""

_backticks = re.compile("`+")


class Hover(NamedTuple):
    """A hover text, and the span that it describes."""

    text: str
    span: Span
    """In characters of the file."""


def _code(text: str, *, block: bool = False) -> str:
    """Text of a dump within a line, or as a block, that a client does not take for mark-up."""
    text = shown(shortened(text.replace("\n", " "), WIDTH))
    ticks = 1 + max(map(len, _backticks.findall(text)), default=0)
    if block:
        fence = "`" * max(3, ticks)
        return f"{fence}hlo\n{text}\n{fence}"
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{'`' * ticks}{pad}{text}{pad}{'`' * ticks}"


def hover(document: Document, offset: int) -> Hover | None:
    """The hover at an offset in the file, or None."""
    named = document.rule_at(offset)
    if named is not None:
        page = _rule(named[0])
        return None if page is None else Hover(page, named[1])
    statement = document.statement_at(offset)
    token = statement.token_at(offset) if statement else None
    if statement is None or token is None or token.role in (Role.COMMENT, Role.KEYWORD):
        return None
    lines = list(_described(document, statement, token))
    if not lines:
        return None
    text = "\n".join([lines[0], "", *(f"- {line}" for line in lines[1:])]).rstrip()
    return Hover(text, Span(statement.begin + token.start, statement.begin + token.end))


def _described(document: Document, statement: Statement, token: Token) -> Iterable[str]:
    """A title or block, then the items of a list; empty for tokens without a description."""
    symbol, number = document.resolve(statement, token), statement.number
    if symbol is not None and symbol.number is None:
        return _computation(document, symbol.place)
    if symbol is not None:
        return _instruction(document, symbol)
    if token.role is Role.OPCODE:
        return _opcode(token.text)
    if number is None:
        return ()
    row = statement.place.computation.rows[number]
    if token.role is Role.TYPE:
        shape = shape_or_none(type_of(row))
        return () if shape is None else _shape(shape)
    is_metadata = "metadata" in (token.attribute, token.text)
    return _stack(statement.place.module, attributes_of(row)) if is_metadata else ()


def _instruction(document: Document, symbol: Symbol) -> Iterator[str]:
    place, number = symbol.place, symbol.number
    assert number is not None
    row = place.computation.rows[number]
    start, end = document.span(place, number)
    whole = document.text.source[start:end]
    head = whole.removesuffix(attributes_of(row))
    # Metadata and backend_config are shown elsewhere, or unreadable.
    cut = re.search(r", (?:metadata|origin|backend_config)=", attributes_of(row))
    text = f"{whole[: len(head) + cut.start()]}, …" if cut and head != whole else whole
    yield _code(text, block=True)
    shape = shape_or_none(type_of(row))
    if symbol.element and shape is not None:
        shape = part(shape, symbol.element)
        yield f"element {_code(spelled_index(symbol.element))} of its tuple"
    if shape is not None:
        yield from _shape(shape)
    operands = [_typed(place.computation, name) for name in references_of(row)]
    if operands:
        yield f"reads {listed(operands, NAMES)}"
    users = place.computation.users.get(name_of(row), ())
    names = [f"%{name_of(place.computation.rows[user])}" for user in users]
    used = f"used by {len(names)}: {listed(map(_code, names), NAMES)}" if names else "no users"
    yield f"{used}; the root" if place.computation.root_number == number else used
    called = document.called_by(place, number)
    if called:
        callees = (_code(f"%{callee.computation.name}") for callee in called)
        yield f"calls {listed(callees, NAMES)}"
    yield from _origin(place, number)


def _origin(place: ComputationPlace, number: int) -> Iterator[str]:
    instruction = place.instruction(number)
    origin = origin_of(instruction, place.module)
    if origin is not None:
        where = f" in {_code(origin.function)}" if origin.function else ""
        yield f"from {_code(f'{origin.file}:{origin.line}')}{where}"
    named = re.search(r'op_name="((?:[^"\\]|\\.)*)"', attributes_of(place.computation.rows[number]))
    if named is not None:
        yield f"op_name {_code(named[1])}"


def _stack(module: Module, attributes: str) -> Iterator[str]:
    """The Python stack of an instruction; nothing if its metadata has none."""
    frame = re.search(r"\bstack_frame_id=(\d+)", attributes)
    frames = module.stack_frames.stack(int(frame[1])) if frame else ()
    if frames:
        yield "the Python stack, innermost first"
    for call in frames:
        yield f"{_code(f'{call.file}:{call.line}')} in {_code(call.function)}"


def _typed(computation: Computation, reference: str) -> str:
    """An operand with its shape, if known."""
    name, *index = reference.split("#")
    number = computation.index.get(name)
    shown_name = f"%{reference}"
    if number is None:
        return f"{_code(shown_name)}, which is not defined"
    shape = part(shape_or_none(type_of(computation.rows[number])), tuple(map(int, index)))
    return _code(shown_name if shape is None else f"{shape} {shown_name}")


def _computation(document: Document, place: ComputationPlace) -> Iterator[str]:
    computation, module = place.computation, place.module
    title = f"ENTRY %{computation.name}" if computation.is_entry else f"%{computation.name}"
    yield _code(f"{title} {computation.signature}".rstrip(), block=True)
    yield f"of {_code(module.name)}: {counted(len(computation.rows), 'instruction')}"
    root = computation.root_number
    if root is not None:
        row = computation.rows[root]
        yield f"root {_code(f'%{name_of(row)} = {type_of(row)} {opcode_of(row)}')}"
    if computation.thread != "main":
        yield f"runs on thread {_code(computation.thread)}"
    callers = []
    for statement in document.callers(place):
        if statement.number is not None:
            row = statement.place.computation.rows[statement.number]
            callers.append(f"{_code(f'%{name_of(row)}')} ({opcode_of(row)})")
    if callers:
        yield f"called by {len(callers)}: {listed(callers, NAMES)}"
    elif not computation.is_entry:
        yield "no callers"


def _shape(shape: Shape, index: Index = ()) -> Iterator[str]:
    """Describe a shape in words."""
    where = f"{_code(spelled_index(index))}: " if index else ""
    match shape:
        case ArrayShape():
            yield f"{where}{_code(str(shape))}: {_size(shape)}"
            if shape.rank > 1 and shape.has_valid_layout:
                yield f"{where}{_order(shape)}"
            yield from (f"{where}{fact}" for fact in _layout_facts(shape))
        case TupleShape(elements=elements):
            sizes = list(byte_sizes(shape))
            total = sum(size or 0 for size in sizes)
            bytes_ = "" if None in sizes else f", {_bytes(total)}"
            yield f"{where}a tuple of {counted(len(elements), 'element')}{bytes_}"
            if not index:
                for number, element in enumerate(elements[:NAMES]):
                    yield from _shape(element, (number,))
                if len(elements) > NAMES:
                    yield f"and {len(elements) - NAMES} more"
        case BufferShape(element=element):
            yield f"{where}a buffer of {_code(str(element))}: {_size(element)}"
        case _:
            yield f"{where}{_code(str(shape))}"


def _size(shape: ArrayShape) -> str:
    if UNBOUNDED in shape.dims:
        return "a dimension has no bound"
    if shape.elements >= 1 << 63:
        return "more elements than 64 bits count"
    count = counted(shape.elements, "element")
    size = shape.byte_size
    most = "at most " if any(shape.dynamic) else ""
    return most + (count if size is None else f"{count}, {_bytes(size)}")


def _order(shape: ArrayShape) -> str:
    """`in memory, fastest first: dimension 1 (of 32), 0 (of 8)`."""
    steps = [f"{number} (of {shape.dims[number]})" for number in shape.minor_to_major]
    kind = ""
    if shape.layout is None:
        kind = " (no layout is printed: the default is assumed)"
    elif shape.layout.is_descending:
        kind = " (the default layout)"
    elif shape.minor_to_major == tuple(range(shape.rank)):
        kind = " (as in Fortran)"
    return f"in memory, fastest first: dimension {', '.join(steps)}{kind}"


def _layout_facts(shape: ArrayShape) -> Iterator[str]:
    layout = shape.layout
    if layout is None:
        return
    if layout.tiles:
        tiles = " of ".join(
            "×".join("*" if size is None else str(size) for size in tile) for tile in layout.tiles
        )
        yield f"in tiles of {tiles} elements, which the bytes do not count"
    if layout.element_size_in_bits:
        yield f"{layout.element_size_in_bits} bits an element"
    if layout.memory_space:
        kind = " (the host's)" if layout.memory_space == 5 else ""
        yield f"in memory space {layout.memory_space}{kind}"


def _bytes(size: int) -> str:
    """`262144 bytes (256 KiB)`."""
    exact, short = counted(size, "byte"), sized(size)
    return exact if short == exact else f"{exact} ({short})"


def _opcode(opcode: str) -> Iterator[str]:
    """The operands and attributes that XLA's parser accepts for an opcode."""
    demands = demands_on(opcode)
    if demands is None:
        yield f"{_code(opcode)} is an unknown opcode"
        return
    wrapped = wrapped_opcode(opcode)
    form = f", the asynchronous form of {_code(wrapped)}" if wrapped else ""
    yield _code(opcode) + form
    least, most = demands.operands
    if most is None:
        yield f"{counted(least, 'operand')} or more" if least else "any number of operands"
    else:
        yield counted(least, "operand") if least else "no operands"
    if demands.required:
        yield f"must have {', '.join(map(_code, demands.required))}"
    optional = sorted(demands.allowed - COMMON - set(demands.required))
    if optional:
        yield f"may have {', '.join(map(_code, optional))}"


def _rule(name: str) -> str | None:
    """The page of a rule, or the list of a family; None for other names."""
    rules = all_rules()
    for rule in rules:
        if rule.name() == name:
            return f"**{rule.name()}** ({rule.severity.value})\n\n{rule.page()}"
    members = [f"- {rule.name()}: {rule.summary()}" for rule in rules if rule.family() == name]
    return "\n".join([f"**{name}**, a family of rules", "", *members]) if members else None
