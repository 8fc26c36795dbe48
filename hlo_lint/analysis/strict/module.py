"""A whole module: its header, its tables, and which computation calls which."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from hlo_lint.analysis.shape_inference import ShapeInference
from hlo_lint.analysis.strict.graph import computation_troubles
from hlo_lint.analysis.strict.instruction import (
    attribute_heads,
    instruction_troubles,
    parameter_number,
    type_troubles,
)
from hlo_lint.analysis.strict.shapes import compatible, has_element, unsound
from hlo_lint.analysis.strict.tokens import BLANK, blank_trouble, name_trouble
from hlo_lint.analysis.strict.tokens import NAME as WORD
from hlo_lint.hlo.attributes import (
    Alias,
    AttributeSyntaxError,
    Donor,
    read_attribute,
    split_attributes,
    split_attributes_strictly,
)
from hlo_lint.hlo.ir import CALLING_ATTRIBUTES, Computation, Module
from hlo_lint.hlo.opcodes import wrapped_opcode
from hlo_lint.hlo.parser.general import SINGLE
from hlo_lint.hlo.records import (
    InstructionRecord,
    attributes_of,
    name_of,
    opcode_of,
    references_of,
    type_of,
)
from hlo_lint.hlo.shape import (
    Shape,
    ShapeSyntaxError,
    TupleShape,
    parse_shape,
    shape_or_none,
    spelled_index,
)
from hlo_lint.text.source import ParseError

_HEADER = frozenset(
    "alias_passthrough_params allow_spmd_sharding_propagation_to_output "
    "allow_spmd_sharding_propagation_to_parameters buffer_donor debug_attributes "
    "entry_computation_layout frontend_attributes input_output_alias is_scheduled num_partitions "
    "origin_recovery_table replica_count".split()
)
"""Attributes of a header in jaxlib 0.11.2."""
_ASYNCHRONOUS: Final = frozenset(("async-start", "async-update", "async-done"))
_header_name = re.compile(rf"HloModule(?![\w.\-]){BLANK}(%?{WORD}:?)").match
_entry = re.compile(rf"ENTRY(?![\w.\-]){BLANK}").match
_called_names = re.compile(
    rf"\b({'|'.join(CALLING_ATTRIBUTES)})=(\{{[^{{}}=]*\}}|%?{WORD})"
).finditer
_word = re.compile(WORD).findall
_names = re.compile(r'(?:\d+\s*"(?:[^"\\]|\\.)*"\s*)+').fullmatch


def _records(fields: str) -> Callable[[str], re.Match[str] | None]:
    return re.compile(rf"(?:\d+\s*\{{\s*(?:(?:{fields})=\d+\s*)*\}}\s*)+").fullmatch


_TABLE_ROWS: Final[dict[str, Callable[[str], object]]] = {
    "FileNames": _names,
    "FunctionNames": _names,
    "FileLocations": _records("(?:end_)?(?:line|column)|(?:file|function)_name_id"),
    "StackFrames": _records("file_location_id|parent_frame_id"),
}


class Seen:
    """What was looked at before: the same line, or computation, has the same troubles."""

    __slots__ = ("computations", "instructions")

    def __init__(self) -> None:
        self.instructions: dict[tuple[str, bool], tuple[ParseError, ...]] = {}
        self.computations: dict[Computation, tuple[ParseError, ...]] = {}


def module_troubles(module: Module, seen: Seen) -> list[ParseError]:
    """Everything that is wrong with a module, in characters of its text, in no order.

    Whether a type follows from what an instruction reads is asked where all else is right: it
    would say again what is wrong already.
    """
    found = list(_troubles(module, seen))
    return found or list(_shapes(module))


def _troubles(module: Module, seen: Seen) -> Iterator[ParseError]:
    yield from module.parse_errors
    is_single = not module.header and any(
        each.name == SINGLE and not each.text.startswith("{") for each in module.computations
    )
    if not is_single:
        yield from _around(module)
        yield from _header(module)
        yield from _tables(module)
    for number, computation in enumerate(module.computations):
        begin = module.offset(number)
        found = seen.computations.get(computation)
        if found is None:
            found = seen.computations[computation] = tuple(_within(computation, seen))
        for message, start, end in found:
            yield ParseError(message, begin + start, begin + end)
    yield from _calls(module)
    yield from _frames(module)


def _within(computation: Computation, seen: Seen) -> Iterator[ParseError]:
    """Everything that is wrong with a computation, whatever calls it, in characters of its text."""
    yield from computation.parse_errors
    is_inline = computation.text.startswith("{")
    is_bare = computation.name == SINGLE and not is_inline
    if not is_bare:
        if not is_inline:
            yield from _computation_head(computation)
        yield from _between(computation)
    for number, row in enumerate(computation.rows):
        begin, end = computation.spans[number]
        if is_bare and number in computation.nested and opcode_of(row) == "parameter":
            yield from type_troubles(type_of(row), begin)  # XLA makes it of an operand
            continue
        text = computation.text[begin:end]
        is_named = number not in computation.nested and not (is_bare and name_of(row) == SINGLE)
        if is_bare and not is_named and not type_of(row) and number not in computation.nested:
            yield ParseError("expected `name =`, or the type of the result", begin, end)
        found = seen.instructions.get((text, is_named))
        if found is None:
            found = tuple(instruction_troubles(text, row, is_named=is_named))
            seen.instructions[text, is_named] = found
        for message, start, stop in found:
            yield ParseError(message, begin + start, begin + stop)
    yield from computation_troubles(computation)


def _computation_head(computation: Computation) -> Iterator[ParseError]:
    text = computation.text
    entry = _entry(text)
    at = entry.end() if entry else 0
    yield from name_trouble(text, at, "a computation")
    for name in split_attributes(computation.tail) if computation.tail else ():
        if name != "execution_thread":
            end = len(text)
            said = "execution_thread is the only attribute of a computation"
            yield ParseError(said, end - len(computation.tail), end)


def _between(computation: Computation) -> Iterator[ParseError]:
    """Instructions follow each other with nothing but white space and comments between them."""
    text = computation.text
    at = (
        text.find("{", len(computation.signature)) + 1
        if not computation.signature
        else (text.find("{", text.find(computation.signature) + len(computation.signature)) + 1)
    )
    unread = sorted(start for _, start, _ in computation.parse_errors)
    stops = [
        span for number, span in enumerate(computation.spans) if number not in computation.nested
    ]
    for begin, end in stops:
        if not _any_between(unread, at, begin):
            yield from blank_trouble(text, at, begin)
        at = end


def _any_between(starts: Sequence[int], begin: int, end: int) -> bool:
    """Whether one of the sorted `starts` is from `begin` to `end`."""
    first = bisect_left(starts, begin)
    return first < len(starts) and starts[first] <= end


# ---- the header


def _around(module: Module) -> Iterator[ParseError]:
    """What stands outside of header, tables and computations."""
    text = module.text
    if not module.header:
        # XLA takes `name (` at the beginning for the beginning of a single instruction.
        numbers = (at for at in range(len(module.computations)) if at not in module.within)
        number = next(numbers, None)
        if number is None:
            return
        first = module.computations[number]
        if first.signature and not first.is_entry:
            yield ParseError("a module begins with `HloModule name`, or with ENTRY", 0, 1)
        yield from blank_trouble(text, 0, module.offset(number))
        return
    start = text.find(module.header)
    separator = text.startswith("// -----")
    yield from blank_trouble(text, 0, start)
    at = start + len(module.header)
    for table in module.tables:
        begin = text.find(table, at)
        yield from blank_trouble(text, at, begin)
        at = begin + len(table)
    unread = sorted(start for _, start, _ in module.parse_errors)
    for number, computation in enumerate(module.computations):
        if number in module.within:
            continue
        begin = module.offset(number)
        if not _any_between(unread, at, begin):
            yield from blank_trouble(text, at, begin)
        at = begin + len(computation.text)
    if not _any_between(unread, at, len(text)):
        yield from blank_trouble(text, at, len(text))
    if not module.computations and not module.parse_errors and not separator:
        yield ParseError("a module needs a computation", len(text), len(text))
    elif not module.computations and not module.parse_errors:
        yield ParseError("a module needs a computation", start, at)


def _header(module: Module) -> Iterator[ParseError]:
    header = module.header
    if not header:
        return
    begin = module.text.find(header)
    for message, start, end in _header_troubles(module):
        yield ParseError(message, begin + start, begin + end)


def _header_troubles(module: Module) -> Iterator[ParseError]:
    header = module.header
    name = _header_name(header)
    if name is None:
        yield ParseError("a module needs a name", len("HloModule"), len(header))
        return
    yield from name_trouble(header, name.start(1), "a module")
    tail, base = header[name.end() :], name.end()
    try:
        spans = split_attributes_strictly(tail)
    except AttributeSyntaxError as error:
        yield ParseError(error.message, base + error.offset, len(header))
        return
    yield from attribute_heads(tail, spans, base)
    for key, (start, end) in spans.items():
        for message, offset in _header_value(module, key, tail[start:end]):
            yield ParseError(f"{key}: {message}", base + start + offset, base + end)


def _header_value(module: Module, name: str, text: str) -> Iterator[tuple[str, int]]:
    if name not in _HEADER:
        yield f"there is no such attribute; there is {', '.join(sorted(_HEADER))}", 0
        return
    try:
        value = read_attribute(name, text)
    except AttributeSyntaxError as error:
        yield error.message, error.offset
        return
    match name:
        case "replica_count" | "num_partitions":
            if not (isinstance(value, int) and value > 0):
                yield "expected a number above 0", 0
        case "is_scheduled" | "alias_passthrough_params":
            if not isinstance(value, bool):
                yield "expected true or false", 0
        case "entry_computation_layout":
            yield from _entry_layout(module, text)
        case "input_output_alias" | "buffer_donor" if isinstance(value, tuple):
            yield from _aliases(module, value)
        case _:
            pass


def _entry_shapes(module: Module) -> tuple[dict[int, Shape], Shape | None]:
    entry = module.entry
    if entry is None:
        return {}, None
    parameters = {}
    for row in entry.rows:
        shape = shape_or_none(type_of(row)) if opcode_of(row) == "parameter" else None
        number = parameter_number(row)
        if shape is not None and number is not None:
            parameters[number] = shape
    root = entry.root
    return parameters, shape_or_none(root.type_text) if root else None


def _entry_layout(module: Module, text: str) -> Iterator[tuple[str, int]]:
    inside = text.strip()[1:-1]
    arrow = inside.rfind("->")
    if arrow < 0:
        yield "expected {(parameters)->result}", 0
        return
    try:
        parameters, result = parse_shape(inside[:arrow].strip()), parse_shape(inside[arrow + 2 :])
    except ShapeSyntaxError as error:
        yield error.message, 1
        return
    for said in (*unsound(parameters), *unsound(result)):
        yield said, 1
    ours, root = _entry_shapes(module)
    if root is not None and not compatible(result, root):
        yield f"the result is {root}, not {result}", arrow
    if not isinstance(parameters, TupleShape):
        yield "expected the parameters' shapes in parentheses", 1
        return
    if len(parameters.elements) != len(ours):
        yield f"the entry has {len(ours)} parameters, not {len(parameters.elements)}", 1
        return
    for number, shape in ours.items():
        if number < len(ours) and not compatible(shape, parameters.elements[number]):
            yield f"parameter {number} is {shape}, not {parameters.elements[number]}", 1


def _aliases(module: Module, aliases: Sequence[object]) -> Iterator[tuple[str, int]]:
    """What is wrong with aliases and donors: parts of the result and of parameters."""
    parameters, result = _entry_shapes(module)
    outputs = set()
    for alias in aliases:
        if isinstance(alias, Alias):
            parameter, index, output = alias.operand, alias.operand_index, alias.output_index
            if output in outputs:
                yield f"the result's {spelled_index(output)} has two aliases", 0
            outputs.add(output)
            if not has_element(result, output):
                yield f"the result is {result}: there is no {spelled_index(output)}", 0
        elif isinstance(alias, Donor):
            parameter, index = alias.parameter, alias.shape_index
        else:
            continue
        if parameters and parameter not in parameters:
            yield f"there is no parameter {parameter}", 0
        elif not has_element(parameters.get(parameter), index):
            yield f"parameter {parameter} has no {spelled_index(index)}", 0


def _tables(module: Module) -> Iterator[ParseError]:
    if not module.tables:
        return
    titles = list(_TABLE_ROWS)
    text = module.text
    offset = text.find(module.tables[0])
    last = text.find(module.tables[-1], offset) + len(module.tables[-1])
    is_row: Callable[[str], object] | None = None
    for line in text[offset:last].splitlines(keepends=True):
        word = line.strip()
        end = offset + len(line)
        if titles and word == titles[0]:
            is_row = _TABLE_ROWS[titles.pop(0)]
        elif word in _TABLE_ROWS or (word and is_row is None):
            said = f"the tables are {', '.join(_TABLE_ROWS)}, in this order"
            yield ParseError(said, offset, end)
            return
        elif word and is_row is not None and not is_row(word):
            yield ParseError("this is no row of the table", offset, end)
            return
        offset = end
    if titles:
        yield ParseError(f"the table {titles[0]} is missing", last, last)


def _frames(module: Module) -> Iterator[ParseError]:
    """Metadata names frames that the table has."""
    if not module.tables:
        return
    known = {0}
    begin = module.text.find(module.tables[-1])
    for found in _frame_rows(module.tables[-1]):
        number = int(found[1])
        known.add(number)
        # Printed ids of parents are one too high.
        if found[2] and int(found[2]) > number:
            said = f"the parent of frame {number} stands above it"
            yield ParseError(said, begin + found.start(), begin + found.end())
    for number, computation in enumerate(module.computations):
        for found in _frame_ids(computation.text):
            if found[1] and (len(found[1]) > 9 or int(found[1]) not in known):
                begin = module.offset(number)
                said = f"there is no frame {found[1]} in StackFrames"
                yield ParseError(said, begin + found.start(1), begin + found.end(1))


_frame_rows = re.compile(
    r"^\s*(\d{1,9})\s*\{(?:[^{}]*?\bparent_frame_id=(\d{1,9})\b)?", re.M
).finditer
_frame_ids = re.compile(r'"(?:[^"\\]|\\.)*+"|\bstack_frame_id=(\d+)').finditer

# ---- shapes


def _shapes(module: Module) -> Iterator[ParseError]:
    """Types that do not follow from what an instruction reads."""
    inference = ShapeInference(module.computations)
    for number, computation in enumerate(module.computations):
        begin = module.offset(number)
        for instruction, said in (
            *inference.errors(computation),
            *inference.errors(computation, calls=True),
        ):
            start, end = instruction.span
            at = computation.text.find(instruction.type_text or instruction.opcode, start, end)
            yield ParseError(said, begin + max(at, start), begin + end)


# ---- calls


def _calls(module: Module) -> Iterator[ParseError]:
    defined: dict[str, Computation] = {}
    is_entry_there = False
    for number, computation in enumerate(module.computations):
        begin = module.offset(number)
        if computation.is_entry:
            if is_entry_there:
                yield ParseError("a module has one ENTRY", begin, begin + len("ENTRY"))
            is_entry_there = True
        threads: dict[str, str] = {}  # what each async-start starts
        for at, row in enumerate(computation.rows):
            if opcode_of(row) in _ASYNCHRONOUS:
                yield from _chain(row, threads, begin + computation.spans[at].start)
            if "=" in attributes_of(row):
                start, end = computation.spans[at]
                for said in _call(row, defined, module, computation, at):
                    yield ParseError(said, begin + start, begin + end)
        if computation.name in defined and number not in module.within:
            yield ParseError(f"%{computation.name} is defined twice", begin, begin + 1)
        defined.setdefault(computation.name, computation)


def _chain(row: InstructionRecord, started: dict[str, str], at: int) -> Iterator[ParseError]:
    """The steps of one asynchronous operation name the same computation, if they name one."""
    called = next((found[2].lstrip("%") for found in _called_names(attributes_of(row))), "")
    before = ""
    if opcode_of(row) != "async-start" and references_of(row):
        before = started.get(references_of(row)[0], "")
    if before and called and before != called:
        said = f"%{references_of(row)[0]} starts %{before}, and %{called} stands here"
        yield ParseError(said, at, at + 1)
    started[name_of(row)] = called or before


def _call(
    row: InstructionRecord,
    defined: dict[str, Computation],
    module: Module,
    computation: Computation,
    number: int,
) -> Iterator[str]:
    inline = computation.inline.get(number, ())
    if not inline and _written_in_place(attributes_of(row)):
        yield "the computation that is written into an attribute cannot be read"
    for found in _called_names(
        _without_strings(attributes_of(row)) if '"' in attributes_of(row) else attributes_of(row)
    ):
        for name in _word(found[2]):
            if name not in defined:
                if any(name == each.computation.name for each in inline):
                    continue
                known = module.computation(name) is not None
                how = "is called before it is defined" if known else "is not there"
                yield f"{found[1]}: the computation %{name} {how}"
            elif found[1] in ("calls", "to_apply"):
                yield from _arity(row, defined[name])
                yield from _thread(row, defined[name])


def _thread(row: InstructionRecord, callee: Computation) -> Iterator[str]:
    said = _async_thread(attributes_of(row)) if opcode_of(row) == "async-start" else None
    if said is not None and said[1] != callee.thread:
        yield f"%{callee.name} runs on the thread {callee.thread}, not {said[1]}"


_async_thread = re.compile(r'\basync_execution_thread="([^"]*)"').search
_written_in_place = re.compile(
    rf"\b(?:{'|'.join(CALLING_ATTRIBUTES)})=\s*\{{[^{{}}\"=]*(?:\{{[^{{}}\"=]*)?="
).search
_without_strings_sub = re.compile(r'"(?:[^"\\]|\\.)*"', re.S).sub


def _without_strings(tail: str) -> str:
    return _without_strings_sub('""', tail)


def _arity(row: InstructionRecord, callee: Computation) -> Iterator[str]:
    opcode = wrapped_opcode(opcode_of(row)) or opcode_of(row)
    if opcode not in ("fusion", "call", "map") or opcode_of(row).endswith(("-update", "-done")):
        return
    wanted = sum(opcode_of(each) == "parameter" for each in callee.rows)
    count = len(references_of(row))
    if wanted != count:
        yield f"%{callee.name} has {wanted} parameters, and {count} operands stand here"
