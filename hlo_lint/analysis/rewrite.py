"""New instructions for an old one, as an edit of the text in the text's own dialect."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import zip_longest

from hlo_lint.hlo.ir import Instruction, Module, Operand, cached_analysis
from hlo_lint.hlo.parser.tokens import InstructionSpans, split_at_commas
from hlo_lint.hlo.records import attributes_of, operands_of, references_of
from hlo_lint.hlo.shape import ArrayShape, Shape, arrays
from hlo_lint.text.edits import Edit, Fix, Safety
from hlo_lint.text.patterns import late
from hlo_lint.text.source import Span, indent_before

_line_comment = late(r"//[^\n]*")
_op_name = late(r'op_name="[^"]')


class Rewrite:
    """Puts other instructions, or one that is there already, in the place of an instruction.

    New ones go where it stood, so a schedule stays one. The last takes its name and what stands
    around it, so its users need no edit; the names of the others are fresh in the module. Operands
    that are dead afterwards are deleted, as are computations that nothing calls any more: XLA's
    verifier refuses a dead instruction in a fusion.

    What XLA carries, they carry (`hlo_instruction.cc:288-303`, `hlo_computation.cc:1768-1864`):
    each gets the metadata of the value it starts from; the last keeps the old instruction's other
    attributes, and its metadata where it would have none that names an operation.
    """

    def __init__(
        self,
        replaced: Instruction,
        module: Module,
        dropping: Sequence[str] = ("inferred_dimension",),
        *,
        reading: Instruction | None = None,
    ) -> None:
        """`dropping` names the attributes that only the old opcode has.

        The first new instruction reads what `reading` reads, an instruction above: by default what
        the old one does.
        """
        self._old = replaced
        self._dropped = {"metadata", *dropping}
        self._module = module
        self._text = replaced.text
        self._percent = _percent(self._text)
        self._names = _Names(module)
        self._lines: list[tuple[str, Shape, str, str, str]] = []
        reader = reading or replaced
        self._reader = reader
        self._replacing: list[Edit] | None = None
        self._value = _line_comment.sub("", reader.operands_text).strip()
        self._metadata = _metadata(reader.operands[0])

    def add(self, opcode: str, shape: Shape, attributes: str = "") -> None:
        """Appends an instruction that reads the one before it, or the only operand at first."""
        name = self._names.fresh(f"{self._old.name}.{opcode}")
        self._lines.append((name, shape, opcode, self._value, attributes))
        typed = f"{shape} " if self._is_typed() else ""
        self._value = f"{typed}{self._percent}{name}"

    def replace_with(self, value: Instruction) -> bool:
        """Have every user read a value that is there already; the old instruction is deleted.

        False if the text of a user does not show which operand is which; then nothing is done.
        """
        edits, old = [], self._old
        if old.is_nested or value.computation is not old.computation:
            return False
        for user in old.users:
            spans = InstructionSpans(user.text, user.row).operand_spans
            begin = self._module.span(user).start
            for operand, span in zip_longest(user.operands, spans):
                if operand is None or operand.instruction is not old:
                    continue
                if span is None:
                    return False
                index = "".join(f"#{number}" for number in operand.shape_index)
                name = f"{self._percent}{value.name}{index}"
                edits.append(Edit(Span(begin + span.start, begin + span.end), name))
        if old.is_root:
            begin = self._module.span(value).start
            edits.append(Edit(Span(begin, begin), "ROOT "))
        kept = {value}
        dead = [old, *_dead_without(old, kept)]
        self._replacing = edits + [_removal(instruction, self._module) for instruction in dead]
        return True

    @staticmethod
    def join(title: str, fixes: Sequence[Fix]) -> Fix:
        """One fix of the edits of several: of instructions that are only right together."""
        edits = dict.fromkeys(edit for fix in fixes for edit in fix.edits)
        unsafe = any(fix.safety is Safety.UNSAFE for fix in fixes)
        adds_bitcast = any(fix.adds_bitcast for fix in fixes)
        safety = Safety.UNSAFE if unsafe else Safety.SAFE
        return Fix(title, tuple(sorted(edits)), safety, adds_bitcast)

    def fix(self, title: str, safety: Safety = Safety.SAFE) -> Fix:
        """The edits that put the new instructions in the old one's place."""
        if self._replacing is not None:
            return Fix(title, tuple(sorted(self._replacing)), safety)
        place = self._module.span(self._old)
        text = self._module.file.text
        indent = indent_before(text, place.start)
        line_end = text.find("\n", place.end)  # after a comment, perhaps
        newline = "\r\n" if line_end > 0 and text[line_end - 1] == "\r" else "\n"
        lines = []
        for number, (name, shape, opcode, value, attributes) in enumerate(self._lines, 1):
            last = number == len(self._lines)
            root = "ROOT " if last and self._old.is_root else ""
            name = self._old.name if last else name
            tail = self._last_tail(attributes) if last else attributes + self._metadata
            lines.append(f"{root}{self._percent}{name} = {shape} {opcode}({value}){tail}")
        edit = Edit(Span(*place), (newline + indent).join(lines))
        adds_bitcast = any(opcode == "bitcast" for _, _, opcode, _, _ in self._lines)
        return Fix(title, tuple(sorted([edit, *self._removals()])), safety, adds_bitcast)

    def _removals(self) -> Iterator[Edit]:
        """Delete the operands that are dead now, and computations that nothing calls any more."""
        read = {operand.instruction for operand in self._reader.operands}
        for dead in _dead_without(self._old, read):
            yield _removal(dead, self._module)
        # Only a rewrite of a call may leave a computation without callers.
        if "calls" not in self._dropped:
            return
        counts = _call_counts(self._module)
        for number, computation in enumerate(self._module.computations):
            called = self._old.called_computations.count(computation.name)
            if called and counts[computation.name] == called:
                begin = self._module.start + self._module.offset(number)
                end = begin + len(computation.text)
                text = self._module.file.text
                while text[end : end + 1] in ("\r", "\n") and end < len(text):
                    end += 1
                yield Edit(Span(begin, end), "")

    def _is_typed(self) -> bool:
        """True if the text prints the shapes of operands."""
        return bool(re.search(r"[\])}]\s+%?[\w.\-]+(?:#\d+)*\s*$", self._old.operands_text))

    def _last_tail(self, attributes: str) -> str:
        kept = self._old.attributes
        metadata = self._metadata
        if not _op_name.search(metadata) and "metadata" in kept:
            metadata = f", metadata={kept['metadata']}"
        others = "".join(
            f", {name}={value}" for name, value in kept.items() if name not in self._dropped
        )
        return attributes + others + metadata


_KEPT = frozenset(
    {"parameter", "custom-call", "infeed", "outfeed", "rng", "rng-get-and-update-state", "domain"}
)
"""Opcodes that stay without users: interfaces, and what has a side effect."""


def _dead_without(old: Instruction, read: Container[Instruction | None]) -> list[Instruction]:
    """The instruction and operands that die with it; those in `read` get other users."""
    if "control-predecessors=" in old.computation.text:
        return []  # what others wait for has to stay
    gone, queue = {old}, [old]
    # The queue grows: what only the dead read is dead as well.
    for at in queue:
        for operand in at.operands:
            source = operand.instruction
            if source is None or source in gone or source in read or not _is_removable(source):
                continue
            if gone.issuperset(source.users):
                gone.add(source)
                queue.append(source)
    return queue[1:]


def _is_removable(instruction: Instruction) -> bool:
    """True if XLA removes the instruction when it is dead (`HloInstruction::HasSideEffect`)."""
    if instruction.is_root or instruction.is_nested or instruction.called_computations:
        return False
    is_async = instruction.opcode.endswith(("-start", "-update", "-done"))
    has_channel = "channel_id=" in instruction.attributes_text
    return not (is_async or has_channel or instruction.opcode in _KEPT)


def _removal(instruction: Instruction, module: Module) -> Edit:
    """The edit that deletes an instruction, with its lines if nothing else stands on them."""
    text, (start, end) = module.file.text, module.span(instruction)
    begin, stop = text.rfind("\n", 0, start) + 1, text.find("\n", end) + 1
    is_alone = stop > 0 and not (text[begin:start] + text[end:stop]).strip()
    return Edit(Span(begin, stop) if is_alone else Span(start, end), "")


@cached_analysis
def _call_counts(module: Module) -> Counter[str]:
    """Number of calls of each computation."""
    return Counter(
        name for instruction in module.instructions() for name in instruction.called_computations
    )


class Fills:
    """Arrays of zeros that are made right before an instruction.

    In a module that has fusions, or a schedule, each is a fusion of its own, because after
    FusionWrapper a plain broadcast has no kernel; else it is a broadcast.
    """

    def __init__(self, reader: Instruction, module: Module) -> None:
        self._reader = reader
        self._module = module
        self._percent = _percent(reader.text)
        self._names = _Names(module)
        has_fusions = any(computation.with_opcode("fusion") for computation in module.computations)
        self._fused = module.is_scheduled or has_fusions
        self._lines: list[str] = []
        self._computations: list[str] = []

    def add(self, shape: ArrayShape) -> str:
        """Adds one array; gives the name by which it is read, `%` included where there is one."""
        zero, name = self._fresh("zero"), self._fresh("fill")
        constant = f"{zero} = {shape.dtype}[] constant({_ZERO.get(shape.dtype, '0')})"
        broadcast = f"= {shape} broadcast({zero}), dimensions={{}}"
        if not self._fused:
            self._lines += [constant, f"{name} {broadcast}"]
            return name
        inner, body = self._fresh("zeros"), self._fresh("filled")
        signature = f" () -> {shape.with_layout(None)}" if self._percent else ""
        lines = f"  {constant}\n  ROOT {inner} {broadcast}\n"
        self._computations.append(f"{body}{signature} {{\n{lines}}}\n\n")
        self._lines.append(f"{name} = {shape} fusion(), kind=kLoop, calls={body}")
        return name

    def edits(self) -> list[Edit]:
        """The edits that insert lines before the reader, and computations before its own."""
        module = self._module
        start = module.span(self._reader).start
        indent = indent_before(module.file.text, start)
        lines = "".join(f"{line}\n{indent}" for line in self._lines)
        edits = [Edit(Span(start, start), lines)]
        if self._computations:
            at = module.computation_start(self._reader.computation)
            edits.append(Edit(Span(at, at), "".join(self._computations)))
        return edits

    def _fresh(self, part: str) -> str:
        return self._percent + self._names.fresh(f"{self._reader.name}.{part}")


_ZERO = {"pred": "false", "c64": "(0, 0)", "c128": "(0, 0)"}


def with_more_operands(
    call: Instruction, module: Module, names: Sequence[str], attribute: str
) -> list[Edit]:
    """The edits that append operands to a custom call, and put an attribute right after them.

    Layout constraints, where the call has them, are those of the results: what is appended is
    meant to share their memory.
    """
    row, text, begin = call.row, call.text, module.span(call).start
    close = text.rindex(")", 0, len(text) - len(attributes_of(row)))  # the tail begins after it
    comma = ", " if operands_of(row).strip() else ""
    place = Span(begin + close, begin + close + 1)
    edits = [Edit(place, f"{comma}{', '.join(names)}), {attribute}")]
    constraints = call.attributes.get("operand_layout_constraints")
    if constraints is not None:
        inner = constraints.removesuffix("}")
        shapes = ", ".join(str(leaf) for leaf in arrays(call.shape))
        value = f"{inner}{', ' if inner != '{' else ''}{shapes}}}"
        changed = attribute_edit(call, module, "operand_layout_constraints", value)
        edits += [changed] if changed is not None else []
    return edits


def with_copied_operands(
    reader: Instruction, module: Module, shapes: Mapping[int, ArrayShape], title: str
) -> Fix | None:
    """The fix that has operands copied, by number, into the shapes that the reader wants.

    The copies go right before the reader and carry the metadata of what they copy. None where the
    text of the operands cannot be told apart.
    """
    row, text, begin = reader.row, reader.text, module.span(reader).start
    start = InstructionSpans(text, row).operands.start
    pieces = split_at_commas(operands_of(row))
    if len(pieces) != len(references_of(row)):
        return None
    percent, names = _percent(text), _Names(module)
    indent = indent_before(module.file.text, begin)
    copies, edits = "", []
    for number, shape in sorted(shapes.items()):
        first, last = pieces[number]
        old = operands_of(row)[first:last]
        typed = f"{shape} " if re.search(r"\s", old) else ""
        name = percent + names.fresh(f"{reader.name}.copy")
        metadata = _metadata(reader.operands[number])
        copies += f"{name} = {shape} copy({old}){metadata}\n{indent}"
        place = Span(begin + start + first, begin + start + last)
        edits.append(Edit(place, f"{typed}{name}"))
    return Fix(title, (Edit(Span(begin, begin), copies), *edits), Safety.SAFE)


def _percent(text: str) -> str:
    """The sign before names in the dialect of an instruction."""
    return "%" if re.match(r"(?:ROOT\s+)?%", text) else ""


@cached_analysis
def _names_of(module: Module) -> frozenset[str]:
    return frozenset(module.names())


class _Names:
    """The names of a module, which its rewrites look up in one set, and those of one rewrite."""

    def __init__(self, module: Module) -> None:
        self._known = _names_of(module)
        self._made: set[str] = set()

    def fresh(self, base: str) -> str:
        """The name itself, or with the first number from 2 that makes it one of its own."""
        name, number = base, 1
        while name in self._known or name in self._made:
            number += 1
            name = f"{base}.{number}"
        self._made.add(name)
        return name


def attribute_edit(instruction: Instruction, module: Module, name: str, value: str) -> Edit | None:
    """The edit that gives an attribute another value; None where it has no such attribute."""
    from hlo_lint.hlo.attributes.splitting import split_attributes

    tail = instruction.attributes_text
    place = split_attributes(tail).get(name)
    if place is None:
        return None
    begin = module.span(instruction).end - len(tail)  # the tail ends where the instruction ends
    return Edit(Span(begin + place[0], begin + place[1]), value)


def _metadata(operand: Operand) -> str:
    """`, metadata={…}` of what is read, or nothing."""
    source = operand.instruction
    if source is None or "metadata=" not in source.attributes_text:
        return ""
    text = source.attributes.get("metadata")
    return f", metadata={text}" if text else ""
