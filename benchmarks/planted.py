"""Errors planted in one step of a healthy run, as a wrong pass would make them, and rewrites.

What is planted stays in every later dump. An error is found if bisection names its step, a rewrite
that preserves the values is right if bisection names none.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import hlo_lint
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.pipeline import Pipeline
from hlo_lint.dumps.selection import in_order
from hlo_lint.engine.values.compare import result_difference
from hlo_lint.engine.values.lowering.emit import WIDE, emit_graph
from hlo_lint.engine.values.lowering.graph import Nodes, NotLowered
from hlo_lint.engine.values.lowering.lower import Lowering
from hlo_lint.engine.values.programs import JUDGE, WIDE_BOUND, Runs, in_types
from hlo_lint.engine.values.validate import validate_dumps
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.hlo.shape import ArrayShape
from hlo_lint.xla.cpu import NotRun, XlaCpu

MAX_TEXT = 40_000
"""Characters of a step that gets an error: larger ones take minutes to compile."""
JUDGES = ((0, False), (1, False), (2, False), (3, True), (4, True))
"""Seeds, and whether edge values are among the inputs, of the runs that tell an error from an edit
that changes no value: half of a symmetric matrix, say."""
MAX_TRIES = 40
"""Steps that are tried for each error: not every step holds an instruction for it."""


@dataclass(frozen=True)
class Planted:
    """One planted error, and what came of it."""

    kind: str
    where: str
    """The module, the step and the instruction."""
    is_found: bool
    outcome: str
    """The steps that were reported instead, and the notes."""


def plant_error(
    pipelines: Sequence[Pipeline], number: int, seed: int, xla: XlaCpu
) -> Planted | None:
    """Plant an error in a random step, of each kind in turn; None if no step takes one."""
    return _planted(pipelines, number, seed, xla, EDITS)


def plant_rewrite(
    pipelines: Sequence[Pipeline], number: int, seed: int, xla: XlaCpu
) -> Planted | None:
    """Rewrite an instruction of a random step, in each way in turn."""
    return _planted(pipelines, number, seed, xla, REWRITES)


def _planted(
    pipelines: Sequence[Pipeline], number: int, seed: int, xla: XlaCpu, edits: Edits
) -> Planted | None:
    choice = random.Random(f"{seed} {number}")
    kinds = list(edits)
    for attempt in range(2 * MAX_TRIES):
        # Some kinds are rare: few steps hold a comparison.
        kind = kinds[number % len(kinds)] if attempt < MAX_TRIES else choice.choice(kinds)
        outcome = _plant(choice.choice(pipelines), kind, choice, xla, edits)
        if outcome is not None:
            return outcome
    return None


def is_small(pipeline: Pipeline) -> bool:
    """True for a compilation of some steps, whose texts compile fast."""
    dumps = in_order(pipeline)
    return len(dumps) > 2 and all(dump.path.stat().st_size < MAX_TEXT for dump in dumps)


def _plant(
    pipeline: Pipeline, kind: str, choice: random.Random, xla: XlaCpu, edits: Edits
) -> Planted | None:
    dumps = in_order(pipeline)
    at = choice.randrange(1, len(dumps))
    module = dumps[at].module
    edited = _edited(module, edits[kind], choice, xla if edits is EDITS else None)
    if edited is None:
        return None
    instruction, text = edited
    wrong = [
        PassDump(each.path, each.name, _file=parse_file(text, each.path)) for each in dumps[at:]
    ]
    title = pipeline.title
    validation = validate_dumps(title, [*dumps[:at], *wrong], xla)
    where = f"{title} {dumps[at].path.name.removeprefix(title)[:40]} %{instruction.name}"
    reported = [change.after.path.name for change in validation.changes][:1]
    outcome = f"reported {reported}; {'; '.join(validation.notes)[:200]}"
    is_found = reported == ([dumps[at].path.name] if edits is EDITS else [])
    if not is_found and edits is EDITS:
        seeds = [seed for seed, _ in JUDGES]
        again = validate_dumps(title, [*dumps[:at], *wrong], xla, seeds=seeds, edges=True)
        shows = [change.after.path.name for change in again.changes][:1] == [dumps[at].path.name]
        outcome += f"; {'found' if shows else 'not found'} with --edges --seeds {len(seeds)}"
    return Planted(kind, where, is_found, outcome)


def _edited(
    module: Module, edit: Edit, choice: random.Random, xla: XlaCpu | None
) -> tuple[Instruction, str] | None:
    """A text with one edit, and the instruction that has it; with `xla` one that changes values."""
    instructions = list(_live(module))
    choice.shuffle(instructions)
    for instruction in instructions:
        line = edit(instruction, choice)
        if line is None or line == instruction.text:
            continue
        start, end = module.span(instruction)
        whole = module.file.text
        text = whole[:start] + line + whole[end:]
        if xla is None or _changes_values(module, text, xla):
            return instruction, text
    return None


def _live(module: Module) -> Iterator[Instruction]:
    """The instructions that the result depends on."""
    for computation in module.computations:
        live, queue = set(), [computation.root] if computation.root else []
        for instruction in queue:
            if instruction in live:
                continue
            live.add(instruction)
            queue += [each.instruction for each in instruction.operands if each.instruction]
        yield from sorted(live, key=lambda each: each.number)


def _changes_values(module: Module, text: str, xla: XlaCpu) -> bool:
    """True if results differ on some inputs, with those passes off that XLA:CPU can do without."""
    nodes = Nodes()
    try:
        programs = [Lowering(each, nodes).program() for each in (module, hlo_lint.parse(text))]
        if programs[0].graph is programs[1].graph:
            return False  # in a computation that nothing reads, for one
        for seed, edges in JUDGES:
            inputs = Runs(xla, edges).inputs(programs[0].inputs, seed)
            sides = [
                xla.run(emit_graph(side.graph, WIDE), in_types(inputs, side, WIDE), flags=JUDGE)
                for side in programs
            ]
            # A sum in another order is rounded otherwise, and is none.
            if result_difference(sides[0], sides[1], WIDE_BOUND) is not None:
                return True
    except (NotLowered, NotRun):
        return False
    return False


# ---- the errors: the new line of an instruction, or None where it has none of the kind


def _swapped(instruction: Instruction, choice: random.Random) -> str | None:
    """The operands of an operation that is not symmetric, in the other order."""
    if instruction.opcode not in ("subtract", "divide", "power", "select", "concatenate", "dot"):
        return None
    operands = instruction.operands_text.split(", ")
    types = [each.shape for each in instruction.operands]
    if len(operands) != len(types) or len(operands) < 2:
        return None
    if operands[-1] == operands[-2] or str(types[-1]) != str(types[-2]):
        return None
    operands[-1], operands[-2] = operands[-2], operands[-1]
    return _with_operands(instruction, ", ".join(operands))


def _constant(instruction: Instruction, choice: random.Random) -> str | None:
    """Another number."""
    shape = instruction.shape_or_none
    if instruction.opcode != "constant" or not isinstance(shape, ArrayShape) or shape.dims:
        return None
    if shape.dtype[0] not in "fbsu" or shape.dtype == "pred":
        return None
    try:
        number = float(instruction.operands_text)
    except ValueError:
        return None
    if not -1e6 < number < 1e6:
        return None
    other = number * 1.5 + 1 if shape.dtype[0] in "fb" else int(number) + 1
    return _with_operands(instruction, str(other))


def _dropped(instruction: Instruction, choice: random.Random) -> str | None:
    """A sum or a product without one of its terms."""
    if instruction.opcode not in ("add", "multiply", "maximum", "minimum"):
        return None
    first = instruction.operands_text.split(", ")[0]
    return _with_operands(instruction, first).replace(f" {instruction.opcode}(", " copy(", 1)


def _dimension(instruction: Instruction, choice: random.Random) -> str | None:
    """Another dimension of the same size."""
    shape = instruction.shape_or_none
    if not isinstance(shape, ArrayShape) or shape.rank < 2:
        return None
    match instruction.opcode:
        case "broadcast" | "transpose":
            found = re.search(r"dimensions=\{(\d+(?:,\d+)*)\}", instruction.text)
        case "iota":
            found = re.search(r"iota_dimension=(\d+)", instruction.text)
        case _:
            return None
    if found is None:
        return None
    axes = [int(axis) for axis in found[1].split(",")]
    if instruction.opcode == "transpose":
        pairs = [
            (i, j) for i in range(len(axes)) for j in range(i) if shape.dims[i] == shape.dims[j] > 1
        ]
        if not pairs:
            return None
        i, j = choice.choice(pairs)
        axes[i], axes[j] = axes[j], axes[i]
    else:
        other = [
            axis
            for axis in range(shape.rank)
            if axis not in axes
            and (instruction.opcode == "iota" or shape.dims[axis] == shape.dims[axes[-1]])
        ]
        if not other:
            return None
        axes[-1] = choice.choice(other)
    text = ",".join(map(str, axes))
    return instruction.text[: found.start(1)] + text + instruction.text[found.end(1) :]


def _slice(instruction: Instruction, choice: random.Random) -> str | None:
    """A slice one element further."""
    source = instruction.operands[0].shape if instruction.operands else None
    if instruction.opcode != "slice" or not isinstance(source, ArrayShape):
        return None
    ranges = list(
        re.finditer(r"\[(\d+):(\d+)(:\d+)?\]", instruction.text[instruction.text.find("slice={") :])
    )
    base = instruction.text.find("slice={")
    for size, part in zip(source.dims, ranges, strict=False):
        start, limit = int(part[1]), int(part[2])
        step = 1 if limit < size else -1 if start > 0 else 0
        if step:
            text = f"[{start + step}:{limit + step}{part[3] or ''}]"
            return (
                instruction.text[: base + part.start()]
                + text
                + instruction.text[base + part.end() :]
            )
    return None


def _comparison(instruction: Instruction, choice: random.Random) -> str | None:
    """A comparison that holds for other numbers."""
    others = {"LT": "GT", "GT": "LT", "LE": "GT", "GE": "LT", "EQ": "NE", "NE": "EQ"}
    found = re.search(r"direction=([A-Z]{2})", instruction.text)
    if instruction.opcode != "compare" or found is None:
        return None
    return instruction.text.replace(found[0], f"direction={others[found[1]]}", 1)


def _operation(instruction: Instruction, choice: random.Random) -> str | None:
    """Another operation of as many operands: also in reducers."""
    others = {
        "add": "subtract",
        "subtract": "add",
        "maximum": "minimum",
        "minimum": "maximum",
        "multiply": "add",
        "negate": "copy",
        "and": "or",
        "or": "and",
        "sine": "cosine",
    }
    other = others.get(instruction.opcode)
    if other is None:
        return None
    return instruction.text.replace(f" {instruction.opcode}(", f" {other}(", 1)


def _commuted(instruction: Instruction, choice: random.Random) -> str | None:
    operands = instruction.operands_text.split(", ")
    if instruction.opcode not in ("add", "multiply", "and", "or") or len(operands) != 2:
        return None
    return _with_operands(instruction, ", ".join(operands[::-1]))


def _by_way_of(instruction: Instruction, opcode: str, dims: list[int], tail: str) -> str | None:
    """The instruction, then an operation on it, and the same operation back."""
    found = re.match(r"(ROOT )?(%?[\w.\-]+) = (.*)", instruction.text, re.S)
    shape = instruction.shape_or_none
    if found is None or not isinstance(shape, ArrayShape) or instruction.opcode not in _PLAIN:
        return None
    root, name, line = found[1] or "", found[2], found[3]
    there = f"{shape.dtype}[{','.join(map(str, dims))}]"
    back = str(shape)  # a bitcast of it reads its layout
    return (
        f"{name}.own = {line}\n  {name}.way = {there} {opcode}({name}.own){tail}\n"
        f"  {root}{name} = {back} {opcode}({name}.way){tail}"
    )


_PLAIN = frozenset("add subtract multiply maximum minimum convert broadcast select dot".split())
"""Opcodes of which no other instruction demands that it reads them itself."""


def _negated_twice(instruction: Instruction, choice: random.Random) -> str | None:
    shape = instruction.shape_or_none
    if not isinstance(shape, ArrayShape) or shape.dtype not in ("f32", "bf16", "f16", "s32"):
        return None
    return _by_way_of(instruction, "negate", list(shape.dims), "")


def _transposed_twice(instruction: Instruction, choice: random.Random) -> str | None:
    shape = instruction.shape_or_none
    if not isinstance(shape, ArrayShape) or shape.rank != 2:
        return None
    return _by_way_of(instruction, "transpose", [*shape.dims[::-1]], ", dimensions={1,0}")


def _reshaped_twice(instruction: Instruction, choice: random.Random) -> str | None:
    shape = instruction.shape_or_none
    if not isinstance(shape, ArrayShape) or not shape.rank:
        return None
    return _by_way_of(instruction, "reshape", [1, *shape.dims], "")


def _subtracted(instruction: Instruction, choice: random.Random) -> str | None:
    """`a - b` as `-b + a`."""
    found = re.match(r"(ROOT )?(%?[\w.\-]+) = (\S+) subtract\((.*), (.*?)\)(.*)", instruction.text)
    if instruction.opcode != "subtract" or found is None or "[" in found[4] + found[5]:
        return None
    root, name, shape, left, right, tail = found.groups(default="")
    return (
        f"{name}.minus = {shape} negate({right})\n"
        f"  {root}{name} = {shape} add({name}.minus, {left}){tail}"
    )


Edit = Callable[[Instruction, random.Random], str | None]
Edits = Mapping[str, Edit]
REWRITES: Edits = {
    "commuted": _commuted,
    "negated twice": _negated_twice,
    "transposed twice": _transposed_twice,
    "reshaped twice": _reshaped_twice,
    "subtracted by addition": _subtracted,
}
EDITS: Edits = {
    "another operation": _operation,
    "a swapped operand": _swapped,
    "a wrong constant": _constant,
    "a dropped term": _dropped,
    "a wrong dimension": _dimension,
    "a slice off by one": _slice,
    "a wrong comparison": _comparison,
}


def _with_operands(instruction: Instruction, operands: str) -> str:
    """The instruction with other text between its parentheses."""
    old = f"{instruction.opcode}({instruction.operands_text})"
    return instruction.text.replace(old, f"{instruction.opcode}({operands})", 1)
