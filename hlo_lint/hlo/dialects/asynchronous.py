"""Asynchronous operations: `fusion-start(…)` for short, or `async-start` and what it runs.

    %s = (…) fusion-start(%a), kind=kLoop, calls=%f   %s = (…) async-start(%a), calls=%async_wrapped
    %d = f32[2]{0} fusion-done(%s)                    %d = f32[2]{0} async-done(%s)

The computation is the one that XLA's parser makes: parameters, and one instruction that reads them.
all-reduce-start and its like are opcodes of their own, and stay. So does sugar whose operands a
later update binds: XLA's parser takes the types of what runs from all of the sugar together.
"""

from __future__ import annotations

from typing import Final

from hlo_lint.hlo.dialects.short_text import without_layouts
from hlo_lint.hlo.dialects.text_editor import (
    Statement,
    TextEditor,
    blank_lines,
    drop_attributes,
    statements,
    tuple_elements,
)
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.records import (
    InstructionRecord,
    attributes_of,
    name_of,
    opcode_of,
    references_of,
    type_of,
)

OPCODES_OF_THEIR_OWN: Final = frozenset(
    "all-gather all-reduce collective-permute copy send recv async".split()
)
"""X for which `X-start` or `X-done` is not sugar."""
_OF_THE_START: Final = frozenset(
    "async_execution_thread sharding control-predecessors statistics origin metadata".split()
)
_OF_BOTH: Final = frozenset({"frontend_attributes", "backend_config"})
"""XLA's parser gives these to the start and to what it runs."""


def _started(opcode: str, step: str) -> str:
    """X of `X-start`, where that is sugar; else empty."""
    wrapped = opcode.removesuffix(step)
    return "" if wrapped == opcode or wrapped in OPCODES_OF_THEIR_OWN else wrapped


def generic(module: Module, editor: TextEditor) -> None:
    """Write `async-start`, and a computation for what runs."""
    for number, (computation, instructions) in enumerate(statements(module)):
        before = module.offset(number) - module.within.get(number, 0)
        bound_late = _bound_late(computation)
        for statement in instructions.where(_may_be_sugar):
            opcode = opcode_of(statement.record)
            if name_of(statement.record) in bound_late:
                if _started(opcode, "-start"):
                    editor.note(f"%{name_of(statement.record)} stays: an update binds its operands")
                continue
            if wrapped := _started(opcode, "-start"):
                text = _wrapped(statement, wrapped, computation, editor)
                if text is not None:
                    editor.replace(before, before, text)
            for step in ("-update", "-done"):
                if wrapped := _started(opcode, step):
                    _respell(editor, statement, f"async{step}")


def _bound_late(computation: Computation) -> set[str]:
    """The names of the starts whose operands an update binds, of their updates and their done."""
    start_of: dict[str, str] = {}
    bound: set[str] = set()
    for row in filter(_may_be_sugar, computation.rows):
        opcode, references = opcode_of(row), references_of(row)
        if opcode.endswith("-start"):
            start_of[name_of(row)] = name_of(row)
        elif references and references[0] in start_of:
            start = start_of[name_of(row)] = start_of[references[0]]
            if opcode.endswith("-update") and len(references) > 1:
                bound.add(start)
    return {name for name, start in start_of.items() if start in bound}


def _may_be_sugar(row: InstructionRecord) -> bool:
    return opcode_of(row).endswith(("-start", "-update", "-done"))


def _respell(editor: TextEditor, statement: Statement, opcode: str) -> None:
    editor.replace(*statement.moved(statement.opcode), opcode)


def _wrapped(
    statement: Statement, opcode: str, computation: Computation, editor: TextEditor
) -> str | None:
    """The computation that a start runs; the start itself is respelled."""
    row, text = statement.record, editor.text
    shapes = tuple_elements(type_of(row)) or ()
    operands = tuple_elements(shapes[0]) if shapes else None
    attributes = statement.values()
    if operands is None or len(shapes) < 2 or "" in attributes:
        editor.note(f"%{name_of(row)} stays: its shape is not ((operands), result, …)")
        return None
    if len(operands) != len(references_of(row)):
        editor.note(f"%{name_of(row)} stays: it gets its operands one by one")
        return None
    percent, result = statement.percent, shapes[1]
    name = editor.fresh("async_wrapped")
    parameters = [editor.fresh("async_param") for _ in operands]
    root = editor.fresh(opcode)
    spelled = {key: f", {key}={text[start:end]}" for key, (start, end) in attributes.items()}
    inner = "".join(value for key, value in spelled.items() if key not in _OF_THE_START)
    outer = "".join(
        value for key, value in spelled.items() if key in _OF_THE_START or key in _OF_BOTH
    )
    _respell(editor, statement, "async-start")
    thread = spelled.get("async_execution_thread", "")
    outer = f"{thread}, calls={percent}{name}{outer.replace(thread, '', 1)}"
    editor.replace(statement.tail_start, statement.end, outer)
    lines = [
        f"  {percent}{parameter} = {shape} parameter({number})\n"
        for number, (parameter, shape) in enumerate(zip(parameters, operands, strict=True))
    ]
    reads = ", ".join(percent + parameter for parameter in parameters)
    lines.append(f"  ROOT {percent}{root} = {result} {opcode}({reads}){inner}\n")
    signature = ""
    if computation.signature:
        pairs = zip(parameters, map(without_layouts, operands), strict=True)
        listed = ", ".join(f"{parameter}: {shape}" for parameter, shape in pairs)
        signature = f" ({listed}) -> {without_layouts(result)}"
    tail = thread.replace("async_execution_thread", "execution_thread", 1)
    text = f"{percent}{name}{signature} {{\n{''.join(lines)}}}{tail}\n\n"
    return text.replace("\n", editor.newline)


# ---- the other way


def sugar(module: Module, editor: TextEditor) -> None:
    """Write `fusion-start` and the like where what runs is one instruction."""
    by_name = {computation.name: n for n, computation in enumerate(module.computations)}
    kept: set[str] = set()
    unwrapped: dict[str, int] = {}
    for computation, instructions in statements(module):
        started: dict[str, str] = {}
        for at, statement in enumerate(instructions):
            row = statement.record
            if opcode_of(row) == "async-start":
                called = _called(statement, editor)
                number = by_name.get(called)
                opcode = ""
                if number is not None:
                    opcode = _unwrap(statement, module.computations[number], editor)
                if opcode and number is not None:
                    started[name_of(row)] = opcode
                    unwrapped[called] = number
                    continue
            elif opcode_of(row) in ("async-update", "async-done"):
                source = started.get(references_of(row)[0]) if references_of(row) else None
                if source is not None:
                    started[name_of(row)] = source
                    _respell(editor, statement, source + opcode_of(row).removeprefix("async"))
                    drop_attributes(editor, statement, {"calls", "async_execution_thread"})
                    continue
            if "=" in attributes_of(row):
                kept.update(computation.at(at).called_computations)
    for name, number in unwrapped.items():
        if name not in kept:
            start = module.offset(number)
            end = start + len(module.computations[number].text)
            editor.replace(start, blank_lines(editor.text, end), "")


def _called(statement: Statement, editor: TextEditor) -> str:
    place = statement.values().get("calls")
    return editor.text[slice(*place)].lstrip("%") if place else ""


def _unwrap(statement: Statement, wrapped: Computation, editor: TextEditor) -> str:
    """Respells a start; gives the opcode that it starts, or nothing where it has to stay."""
    root = _only_instruction(wrapped)
    if root is None or len(references_of(statement.record)) != len(wrapped.rows) - 1:
        return ""
    opcode = root.opcode
    shapes = tuple_elements(type_of(statement.record)) or ()
    if opcode in OPCODES_OF_THEIR_OWN or len(shapes) < 2 or not tuple_elements(shapes[0]):
        return ""
    own, inner = statement.values(), root.attributes
    text = editor.text
    for name in _OF_BOTH & (own.keys() | inner.keys()):
        if name not in own or text[slice(*own[name])] != inner.get(name):
            return ""  # one text would stand for both
    if not own.keys() <= _OF_THE_START | _OF_BOTH | {"calls"} or inner.keys() & {"sharding", ""}:
        return ""
    thread = ""
    if wrapped.thread != "main" and "async_execution_thread" not in own:
        thread = f'async_execution_thread="{wrapped.thread}", '
    if "metadata" in inner:
        editor.note("metadata of what runs asynchronously: sugar has only that of the start")
    start, end = own["calls"]
    name_start = text.rindex("calls", statement.start, start)
    moved = ", ".join(
        f"{name}={value}"
        for name, value in inner.items()
        if name not in _OF_BOTH and name != "metadata"
    )
    _respell(editor, statement, f"{opcode}-start")
    if thread or moved:
        editor.replace(name_start, end, (thread + moved).removesuffix(", "))
    else:
        comma = text.rindex(",", statement.start, name_start)
        editor.replace(comma, end, "")
    return opcode


def _only_instruction(computation: Computation) -> Instruction | None:
    """The one that reads all parameters in their order, if there is no other."""
    parameters = [parameter.name for parameter in computation.parameters]
    others = [other for other in computation.instructions if other.opcode != "parameter"]
    if len(others) != 1 or list(others[0].operand_names) != parameters:
        return None
    if computation.parse_errors or not (others[0].is_root or others[0] == computation.root):
        return None
    return others[0]
