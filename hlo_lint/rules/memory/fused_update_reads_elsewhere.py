"""In-place updates of fusions whose result depends on the order of threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from hlo_lint.analysis.buffers import renamed_source, source_of
from hlo_lint.analysis.calls import fusions_of, holders
from hlo_lint.analysis.kinds import template_of
from hlo_lint.analysis.walks import reached
from hlo_lint.hlo.arrays import operand_array
from hlo_lint.hlo.attributes.plain import Slice
from hlo_lint.hlo.constants import constant_integers
from hlo_lint.hlo.ir import Computation, Instruction, Operand
from hlo_lint.hlo.opcodes import FIRST_INDEX
from hlo_lint.rules.base import Bad, FinalModule, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import WrongValues

_PROGRAM = """
f {{
  x = f32[16] parameter(0)
  i = s32[] parameter(1)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  d = f32[8] dynamic-slice(x, i), dynamic_slice_sizes={{8}}
  n = f32[8] negate(d)
  ROOT u = f32[16] dynamic-update-slice(x, n, {index})
}}
ROOT r = f32[16] fusion(f32[16] p, s32[] i), kind=kLoop, calls=f  // error
"""
_BITCAST = """
f {{
  zero = s32[] constant(0)
  y = f32[4,1,16] bitcast(f32[4,16] x)
  d = f32[4,1,2] dynamic-slice(y, {row}, s32[] i, i), dynamic_slice_sizes={{4,1,2}}
  n = f32[4,1,2] negate(d)
  b = f32[4,2] bitcast(n)
  also = s32[] constant(0)
  ROOT u = f32[4,16] dynamic-update-slice(x, b, also, i)
}}
ROOT r = f32[4,16] fusion(f32[4,16] p, s32[] i), kind=kLoop, calls=f  // error
"""
_CONSTANT = """
f {{
  zero = s32[] constant(0)
  d = f32[16,2] slice(f32[16,4] x), slice={{[0:16], [{columns}]}}
  n = f32[16,2] negate(d)
  ROOT u = f32[16,4] dynamic-update-slice(x, n, zero, zero)
}}
ROOT r = f32[16,4] fusion(f32[16,4] p), kind=kLoop, calls=f  // error
"""
_TWICE = """
f {{
  x = f32[16] parameter(0)
  v = f32[1] parameter(1)
  i = s32[] parameter(2)
  y = f32[16] parameter(3)
  u = f32[16] dynamic-update-slice(x, v, i)
  w = f32[16] dynamic-update-slice({other}, v, i)
  ROOT t = (f32[16], f32[16]) tuple(u, w)
}}
ROOT r = (f32[16], f32[16]) fusion(f32[16] p, f32[1] v, s32[] i, f32[16] q), kind=kLoop, \
calls=f  // error
"""


class FusedUpdateReadsElsewhere(Rule):
    """A fusion that updates an operand in place and reads other elements of it.

    ## Why
    A fusion whose root is a dynamic-update-slice gets the buffer of the array that it updates and
    writes only the update. Its threads run in any order: if the update depends on other elements of
    that array, a thread may read elements that another thread has already written, and the numbers
    vary from run to run. Elements that the update replaces are safe, since the same thread reads
    and writes them, and so is an update of a single element. Two results that update the same array
    need the same buffer, so one update is lost. Modules with tiled layouts are for a TPU, which
    runs no threads.
    """

    severity = Severity.WARNING
    opcodes = frozenset({"dynamic-update-slice"})
    evidence = (WrongValues(),)
    reports = "openxla/xla#49176, jax-ml/jax#39100"
    examples = (
        Bad.entry(_PROGRAM.format(index="next")),
        Bad.entry(_CONSTANT.format(columns="1:3")),
        Bad.entry(_TWICE.format(other="x")),
        Bad.entry(_BITCAST.format(row="i")),
        Good.entry(_BITCAST.format(row="zero")),
        Good.entry(_PROGRAM.format(index="i")),
        Good.entry(_CONSTANT.format(columns="0:2")),
        Good.entry(_CONSTANT.format(columns="2:4")),
        Good.entry(_TWICE.format(other="y")),
    )

    def check(self, final: FinalModule) -> Findings:
        """Fusions whose in-place updates depend on the order of threads."""
        module = final.module
        # Only XLA:TPU writes tiles, and a TPU runs no threads.
        if module.has_tiles:
            return
        updating = {body.name for body in holders(module).get("dynamic-update-slice", ())}
        sound: set[object] = set()
        for fusion, body in fusions_of(module, updating):
            if (template_of(body) or body) in sound:
                continue
            defect = _defect(body)
            if defect is None:
                sound.add(template_of(body) or body)
            # A custom fusion runs a library kernel and then a copy, in this order.
            elif fusion.attribute_text("kind") != "kCustom":
                yield Finding(fusion, defect)


def _defect(body: Computation) -> str | None:
    """The reason that the in-place updates of a fusion are unsafe; None if they are safe."""
    updated: dict[str, Instruction] = {}
    for update in _updates(body):
        array = _origin(update.operands[0]) if update.operands else None
        if array is None or array.opcode != "parameter":
            continue
        if array.name in updated:
            return (
                f"two results update operand {array.parameter_number} in place: "
                f"%{updated[array.name].name} and %{update.name} in %{body.name}"
            )
        updated[array.name] = update
        reader = _reads_elsewhere(update, array)
        if reader is not None:
            return (
                f"this updates operand {array.parameter_number} in place and reads "
                f"other elements of it: %{reader.name} in %{body.name}"
            )
    return None


def _updates(body: Computation) -> Iterator[Instruction]:
    """The dynamic-update-slices that are results of a fusion."""
    root = body.root
    if root is None:
        return
    for result in root.producers if root.opcode == "tuple" else [root]:
        update = renamed_source(result, ("bitcast",))
        if update is not None and update.opcode == "dynamic-update-slice":
            yield update


def _origin(operand: Operand | None) -> Instruction | None:
    """The instruction that owns an operand's buffer, through bitcasts and earlier updates."""
    return source_of(operand, ("bitcast", "dynamic-update-slice"))


def _reads_elsewhere(update: Instruction, array: Instruction) -> Instruction | None:
    """An instruction through which the update depends on elements that it does not replace."""
    starts = update.operand_names[2:]
    part = operand_array(update, 1)
    # The thread that writes the only element has read all that it needs.
    if part is not None and prod(part.dims) == 1:
        return None

    def is_slice(reader: Instruction) -> bool:
        return reader.opcode == "dynamic-slice" and _origin(reader.operand(0)) is array

    def read(reader: Instruction) -> Sequence[Instruction]:
        if array.name in reader.operand_names and not is_slice(reader):
            return ()
        return reader.producers[1:] if is_slice(reader) else reader.producers

    for reader in reached(update.producers[1:], read):
        if is_slice(reader):
            # Behind a bitcast the same place may have more starts, those of dimensions of size 1.
            if reader.operand_names[1:] != starts and _place(reader) != _place(update):
                return reader
        # XLA:CPU fuses the update of a border with the constant slice of the same elements.
        elif array.name in reader.operand_names and not (
            reader.opcode == "slice" and _keeps_off(reader, update)
        ):
            return reader
    return None


def _place(move: Instruction) -> Sequence[tuple[int, object]]:
    """The start of a slice in each dimension, with its size; dimensions of size 1 are left out."""
    array = operand_array(move, 0)
    starts = move.operands[FIRST_INDEX[move.opcode] :]
    return [
        (size, constant_integers(start.instruction) or start.name)
        for size, start in zip(() if array is None else array.dims, starts, strict=False)
        if size != 1
    ]


def _keeps_off(read: Instruction, update: Instruction) -> bool:
    """True if a slice is the region that an update writes, or disjoint from it."""
    ranges = read.attribute_or_none("slice")
    shape = operand_array(update, 1)
    starts = [constant_integers(index.instruction) for index in update.operands[2:]]
    if not isinstance(ranges, tuple) or shape is None or len(ranges) != len(starts):
        return False
    written = [
        Slice(start[0], start[0] + size)
        for start, size in zip(starts, shape.dims, strict=False)
        if start is not None
    ]
    return len(written) == len(ranges) and (
        ranges == tuple(written)
        or any(
            a.limit <= b.start or b.limit <= a.start for a, b in zip(ranges, written, strict=True)
        )
    )
