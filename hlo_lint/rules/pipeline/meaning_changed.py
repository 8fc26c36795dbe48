"""Instructions that a pass kept by name and operands, and that compute something else."""

from __future__ import annotations

import re
from collections.abc import Set
from typing import Any, Final

from hlo_lint.analysis.layout_mismatches import operand_array
from hlo_lint.analysis.pass_pairs import ChangedComputation
from hlo_lint.hlo.attributes import AttributeSyntaxError
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.records import (
    InstructionRecord,
    attributes_of,
    opcode_of,
    operands_of,
    references_of,
    type_of,
)
from hlo_lint.rules.base import Bad, Findings, Good, PassPair, Rule
from hlo_lint.rules.findings import Finding, Severity

_COMMUTATIVE: Final = frozenset("add and maximum minimum multiply or xor".split())
_BINARY: Final = _COMMUTATIVE.union(
    "atan2 divide power remainder shift-left shift-right-arithmetic shift-right-logical "
    "subtract".split()
)
_DIMENSIONS: Final = ("dimensions",)
_CONTRACTION: Final = (
    "lhs_contracting_dims rhs_contracting_dims lhs_batch_dims rhs_batch_dims".split()
)
_GROUPS: Final = ("replica_groups",)
_REDUCED: Final = (*_GROUPS, "use_global_device_ids")
_MEANING: Final = {
    "all-gather": (*_DIMENSIONS, *_GROUPS),
    "all-reduce": _REDUCED,
    "all-to-all": (*_DIMENSIONS, *_GROUPS),
    "broadcast": _DIMENSIONS,
    "cholesky": ("lower",),
    "compare": ("direction",),
    "concatenate": _DIMENSIONS,
    "constant": (),
    "convolution": ("window", "dim_labels", "feature_group_count", "batch_group_count"),
    "dot": tuple(_CONTRACTION),
    "dynamic-slice": (),
    "dynamic-update-slice": (),
    "gather": (
        "offset_dims",
        "collapsed_slice_dims",
        "start_index_map",
        "index_vector_dim",
        "slice_sizes",
    ),
    "get-tuple-element": ("index",),
    "iota": ("iota_dimension",),
    "pad": ("padding",),
    "reduce": _DIMENSIONS,
    "reduce-precision": ("exponent_bits", "mantissa_bits"),
    "reduce-scatter": (*_DIMENSIONS, *_REDUCED),
    "reduce-window": ("window",),
    "reverse": _DIMENSIONS,
    "rng-bit-generator": ("algorithm",),
    "scatter": (
        "update_window_dims",
        "inserted_window_dims",
        "scatter_dims_to_operand_dims",
        "index_vector_dim",
    ),
    "select": (),
    "select-and-scatter": ("window",),
    "slice": ("slice",),
    "sort": _DIMENSIONS,
    "transpose": _DIMENSIONS,
    "triangular-solve": ("left_side", "lower", "unit_diagonal", "transpose_a"),
    **dict.fromkeys(_BINARY, ()),
}
"""The attributes of each opcode that say what it computes, next to its operands."""
_SWAPPED: Final = frozenset({"all-to-all", "all-reduce", "all-gather", "reduce-scatter", "sort"})
"""Opcodes whose operands, changed together with elements of the result, compute the same."""
_ACCURACY: Final = {
    "dot": ("operand_precision", "algorithm"),
    "convolution": ("operand_precision",),
}
_CLAMPED: Final = frozenset({"dynamic-slice", "dynamic-update-slice", "gather", "scatter"})
"""Opcodes to which several numbers may mean one place."""
_SYMMETRIC: Final = frozenset({"EQ", "NE"})
"""Directions that do not tell the operands of a compare apart."""
_MAX_CONE: Final = 10_000
"""Instructions that an operand may come from; beyond, nothing is reported."""
_is_number = re.compile(r"[-+]?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|inf)").fullmatch
_PROGRAM = """
HloModule m

ENTRY e {{
  p = f32[8]{{0}} parameter(0)
  q = f32[8]{{0}} parameter(1)
  c = pred[8]{{0}} compare({operands}), direction={direction}{mark}
  ROOT s = f32[8]{{0}} select(c, p, q)
}}
"""
_BEFORE = "module_0001.m.0001.simplification.after_pipeline-start.before_algsimp.txt"
_AFTER = "module_0001.m.0002.simplification.after_algsimp.before_pipeline-end.txt"
_LESS = _PROGRAM.format(operands="p, q", direction="LT", mark="")
_DOT = """
HloModule m

ENTRY e {{
  p = f32[8,8]{{1,0}} parameter(0)
  q = f32[8,8]{{1,0}} parameter(1)
  d = f32[8,8]{{1,0}} dot(p, q), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{rest}
  ROOT n = f32[8,8]{{1,0}} negate(d)
}}
"""
_ROW = """
HloModule m

ENTRY e {{
  p = f32[8,8]{{1,0}} parameter(0)
  zero = f32[] constant(0)
  s = f32[1,8]{{1,0}} slice(p), slice={{{rows}, [0:8]}}
  q = f32[4,8]{{1,0}} pad(s, zero), padding={padding}x0_0
  ROOT n = f32[4,8]{{1,0}} negate(q)
}}
"""
_PAIR = """
HloModule m

f {{
  x = f32[8]{{0}} parameter(0)
  a = f32[8]{{0}} negate(x)
  b = f32[8]{{0}} negate(x)
  ROOT t = (f32[8]{{0}}, f32[8]{{0}}) tuple(a, {second})
}}

ENTRY e {{
  p = f32[8]{{0}} parameter(0)
  t = (f32[8]{{0}}, f32[8]{{0}}) fusion(p), kind=kLoop, calls=f
  g = f32[8]{{0}} get-tuple-element(t), index={index}
  ROOT n = f32[8]{{0}} negate(g)
}}
"""
_EXACT = _DOT.format(rest=", operand_precision={highest,highest}")


class MeaningChanged(Rule):
    """An instruction that a pass kept, and that computes something else after it.

    ## Why
    A pass may replace an instruction, but one that has its name, its opcode and its result after
    the pass, and whose operands come from the same instructions, computes the same only if its
    attributes say the same: the direction of a compare, the bounds of a slice, the edges of a pad,
    the groups of a collective, the literal of a constant. The same holds for operands in another
    order, where the opcode tells them apart, for another constant in the place of one, and for
    another arithmetic operation on the same operands, as in the computation of a reduction. Such a
    change gives wrong values that nothing checks.

    It is an error where the pass changed nothing else that could make up for it, and a warning
    where the instructions that read the value stayed as they were. Attributes that lower the
    precision or change the algorithm of a dot or a convolution are a warning. A change along with
    the operands or with the readers is left alone.
    """

    examples = (
        Bad(
            _PROGRAM.format(operands="p, q", direction="GT", mark="  // error"),
            file=_AFTER,
            beside={_BEFORE: _LESS},
        ),
        Bad(_DOT.format(rest="  // error"), file=_AFTER, beside={_BEFORE: _EXACT}),
        Bad(
            _DOT.format(rest="").replace("negate(d)", "maximum(d, p)  // error"),
            file=_AFTER,
            beside={_BEFORE: _DOT.format(rest="").replace("negate(d)", "minimum(d, p)")},
        ),
        Bad(
            _ROW.format(rows="[2:3]", padding="0_3").replace(
                *("padding=0_3x0_0", "padding=0_3x0_0  // error")
            ),
            file=_AFTER,
            beside={
                _BEFORE: _ROW.format(rows="[2:3]", padding="0_3")
                .replace("zero = f32[] constant(0)", "least = f32[] constant(-inf)")
                .replace("zero", "least")
            },
        ),
        Good(
            _PROGRAM.format(operands="q, p", direction="GT", mark=""),
            file=_AFTER,
            beside={_BEFORE: _LESS},
        ),
        Good(
            _EXACT.replace("negate", "exponential"),
            file=_AFTER,
            beside={_BEFORE: _EXACT},
        ),
        Good(
            _ROW.format(rows="[2:3]", padding="0_3"),
            file=_AFTER,
            beside={_BEFORE: _ROW.format(rows="[2:4:2]", padding="0_3_1")},
        ),
        Good(
            _PAIR.format(second="a", index=0),
            file=_AFTER,
            beside={_BEFORE: _PAIR.format(second="b", index=1)},
        ),
    )

    def check(self, change: PassPair) -> Findings:
        """Each kept instruction with another meaning."""
        alone: bool | None = None
        names = {computation.after.name for computation in change.changed}
        for computation in change.changed:
            before = computation.before
            if _MEANING.keys().isdisjoint(before.opcodes):
                continue
            renumbered: bool | None = None
            for number, position in computation.kept:
                if not _may_differ(before.rows[number], computation.after.rows[position]):
                    continue
                old, new = before.at(number), computation.after.at(position)
                if old.opcode == "constant":
                    if renumbered is None:
                        renumbered = _changed_constants(computation) > 1
                    if renumbered:
                        continue  # XLA:TPU gives names anew in mid-run
                difference = _difference(old, new)
                if difference and _stays(computation, old, new, names):
                    if alone is None:
                        alone = _changes_one_instruction(change)
                    yield Finding(
                        new,
                        f"{change.pass_name} changed {difference}",
                        notes=(f"before it: {_shortened(old)}",),
                        severity=None if alone else Severity.WARNING,
                    )
                elif old.operand_names == new.operand_names and (lost := _accuracy(old, new)):
                    yield Finding(
                        new, f"{change.pass_name} changed {lost}", severity=Severity.WARNING
                    )


def _changed_constants(computation: ChangedComputation) -> int:
    rows, others = computation.before.rows, computation.after.rows
    return sum(
        opcode_of(rows[number]) == "constant" and _may_differ(rows[number], others[position])
        for number, position in computation.kept
    )


def _may_differ(old: InstructionRecord, new: InstructionRecord) -> bool:
    """True if more differs than metadata and the names of others: of few lines that change."""
    opcode, becomes = opcode_of(old), opcode_of(new)
    if opcode not in _MEANING or type_of(old) != type_of(new):
        return False
    if opcode != becomes:
        return _computes_otherwise(opcode, becomes, type_of(old))
    if opcode == "constant":
        return operands_of(old) != operands_of(new)
    return references_of(old) != references_of(new) or not _has_equal_attributes(old, new)


def _computes_otherwise(opcode: str, becomes: str, type_text: str) -> bool:
    # Of truth values, add, maximum and or are one; sums and maxima of others never are.
    return opcode in _BINARY and becomes in _BINARY and not type_text.startswith("pred")


def _has_equal_attributes(old: InstructionRecord, new: InstructionRecord) -> bool:
    """True if attributes are spelled alike, metadata and what follows it aside."""
    ours, _, _ = attributes_of(old).partition(", metadata=")
    theirs, _, _ = attributes_of(new).partition(", metadata=")
    return ours == theirs


def _difference(old: Instruction, new: Instruction) -> str:
    """The one thing that differs; empty where nothing, or more than one thing, does."""
    if old.opcode == "constant":
        ours, theirs = _literal(old), _literal(new)
        is_other = ours != theirs and "..." not in ours + theirs
        return f"the value of the constant from {_cut(ours)} to {_cut(theirs)}" if is_other else ""
    replaced = _replaced_constant(old, new)
    is_reordered = not replaced and old.operand_names != new.operand_names
    if is_reordered and (
        old.opcode in _SWAPPED or sorted(old.operand_names) != sorted(new.operand_names)
    ):
        return ""
    names = () if _has_equal_attributes(old.row, new.row) else _MEANING[old.opcode]
    differences = [
        f"{name} from {_cut(old.attributes.get(name, 'none'))} "
        f"to {_cut(new.attributes.get(name, 'none'))}"
        for name in names
        if _differs(old, new, name)
    ]
    if old.opcode != new.opcode:
        differences.append(f"the operation from {old.opcode} to {new.opcode}")
    if replaced:
        differences.append(replaced)
    if is_reordered:
        if old.attributes.get("direction") in _SYMMETRIC or old.opcode in _COMMUTATIVE:
            return ""
        differences.append("the order of the operands")
    return differences[0] if len(differences) == 1 else ""


def _replaced_constant(old: Instruction, new: Instruction) -> str:
    """The one operand that is another constant of another value; empty if there is none."""
    if len(old.operand_names) != len(new.operand_names) or old.opcode in _CLAMPED:
        return ""
    names = zip(old.operand_names, new.operand_names, strict=True)
    places = [number for number, (ours, theirs) in enumerate(names) if ours != theirs]
    if len(places) != 1:
        return ""
    ours, theirs = (_number_of(side.operands[places[0]].instruction) for side in (old, new))
    if ours is None or theirs is None or float(ours) == float(theirs):
        return ""
    return f"operand {places[0]} from the constant {ours} to {theirs}"


def _number_of(value: Instruction | None) -> str | None:
    """The literal of a number, or of an array of one number; None of anything else."""
    if value is not None and value.opcode == "broadcast" and value.operands:
        value = value.operands[0].instruction
    text = "" if value is None or value.opcode != "constant" else value.operands_text.strip()
    return text if _is_number(text) else None


def _literal(constant: Instruction) -> str:
    return "".join(constant.operands_text.split())


def _differs(old: Instruction, new: Instruction, name: str) -> bool:
    ours, theirs = old.attributes.get(name), new.attributes.get(name)
    if ours == theirs or (name == "replica_groups" and (ours in (None, "{}"))):
        return False  # all devices, which passes spell out
    if ours is None or theirs is None:
        return name not in _GROUPS
    try:
        return _effect(old, name) != _effect(new, name) and not _same_groups(old, new, name)
    except AttributeSyntaxError:
        return False


def _effect(instruction: Instruction, name: str) -> object:
    """The value of an attribute less what does nothing on arrays of these sizes."""
    value: Any = instruction.attribute(name)
    if not isinstance(value, tuple):
        return value
    operand = operand_array(instruction, 0)
    sizes = operand.dims if operand is not None and len(operand.dims) == len(value) else ()
    match instruction.opcode, name:
        case "slice", "slice":  # a stride that leads past the end
            counts = [len(range(part.start, part.limit, part.stride or 1)) for part in value]
            return [
                (part.start, count, part.stride if count > 1 else 1)
                for part, count in zip(value, counts, strict=True)
            ]
        case "pad", "padding" if sizes:  # nothing lies between the elements of one
            return [
                (padding.low, padding.high, padding.interior if size > 1 else 0)
                for padding, size in zip(value, sizes, strict=True)
            ]
        case "transpose", "dimensions" if sizes:
            return [number for number in value if sizes[number] > 1]
        case "reduce", "dimensions":
            return set(value)
        case "reverse", "dimensions" if operand is not None:
            return {number for number in value if operand.dims[number] > 1}
        case _, "window":  # elements of a window of one lie apart from none
            return [
                dim._replace(window_dilation=1, is_reversed=False) if dim.size == 1 else dim
                for dim in value
            ]
        case _:
            return value


def _same_groups(old: Instruction, new: Instruction, name: str) -> bool:
    """True if two spellings give the same groups, or give them in another order."""
    if name != "replica_groups":
        return False
    # A list and an iota tile assignment cannot be told to differ without being spelled out.
    texts = old.attributes[name], new.attributes[name]
    return any("<=" in text for text in texts) or len({_sorted_groups(text) for text in texts}) == 1


def _sorted_groups(text: str) -> tuple[str, ...]:
    return tuple(sorted("".join(text.split()).strip("{}").split("},{")))


def _stays(
    computation: ChangedComputation, old: Instruction, new: Instruction, others: Set[str]
) -> bool:
    """True if the operands are computed as before, and the readers are as they were.

    `others` are the computations that changed: an operand that calls one may give another value.
    """
    kept = computation.unchanged
    readers = [user for user in old.users if user.name in computation.after.index]
    if len(readers) != len(old.users) or len(old.users) != len(new.users):
        return False
    if not (old.users or old.is_root) or not all(reader.name in kept for reader in readers):
        return False
    names = () if old.opcode == "constant" else old.operand_names
    if _replaced_constant(old, new):
        names = tuple(name for name in names if name in new.operand_names)
    waiting = [name.partition("#")[0] for name in names]
    reached: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached.add(name)
        operand = computation.before.instruction(name)
        if operand is None or operand.name not in kept or len(reached) > _MAX_CONE:
            return False
        if not others.isdisjoint(operand.called_computations):
            return False
        if operand.opcode not in ("constant", "parameter"):
            waiting += [reference.partition("#")[0] for reference in operand.operand_names]
    return True


def _changes_one_instruction(change: PassPair) -> bool:
    if len(change.changed) != 1 or len(change.removed) != 1 or len(change.added) != 1:
        return False
    only = change.changed[0]
    return len(only.removed) == len(only.added) == 1


def _accuracy(old: Instruction, new: Instruction) -> str:
    for name in _ACCURACY.get(old.opcode, ()):
        ours, theirs = old.attributes.get(name), new.attributes.get(name)
        if ours is not None and ours != theirs:
            return f"{name} from {ours} to {theirs or 'the default'}"
    return ""


def _shortened(instruction: Instruction) -> str:
    text = f"{instruction.opcode}({_cut(instruction.operands_text)}){instruction.attributes_text}"
    return _cut(text.partition(", metadata=")[0], 160)


def _cut(text: str, length: int = 60) -> str:
    return text if len(text) <= length else text[:length] + "..."
