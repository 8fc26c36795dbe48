"""Products and reductions over devices that a pass made anew, with less precision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.analysis.products import (
    asked_of,
    lost_precisions,
    may_give_sum,
    product_instructions,
    products,
    readers_of,
    significand_bits,
    sum_bits,
    sum_in,
)
from hlo_lint.analysis.walks import chain
from hlo_lint.dumps.pass_lists import pass_lists
from hlo_lint.dumps.transitions import may
from hlo_lint.hlo.dtypes import ELEMENT_TYPES
from hlo_lint.hlo.ir import Computation, Instruction
from hlo_lint.hlo.records import InstructionRecord, name_of, opcode_of, references_of, type_of
from hlo_lint.hlo.shape import ArrayShape, arrays
from hlo_lint.rules.base import Bad, Findings, Good, Rule
from hlo_lint.rules.findings import Finding, Severity

_REDUCTIONS: Final = frozenset({"all-reduce", "all-reduce-start", "reduce-scatter"})
_REDUCTION: Final = """
HloModule m

add {{
  a = {type}[] parameter(0)
  b = {type}[] parameter(1)
  ROOT s = {type}[] add(a, b)
}}

ENTRY e {{
  p = f32[8] parameter(0)
  n = f32[8] negate(p)
  {reduction}
}}
"""
_PROGRAM: Final = """
HloModule m

ENTRY e {{
  p = f32[8,4]{{1,0}} parameter(0)
  q = f32[4,6]{{1,0}} parameter(1)
  {transpose}
  ROOT {dot} = f32[8,6]{{1,0}} dot(p, {right}), lhs_contracting_dims={{1}}, \
rhs_contracting_dims={{{dimension}}}{rest}
}}
"""
_BEFORE = "module_0001.m.0001.simplification.after_pipeline-start.before_transpose-folding.txt"
_AFTER = "module_0001.m.0002.simplification.after_transpose-folding.before_pipeline-end.txt"
_ASKED = ", operand_precision={highest,highest}"
_HALVES: Final = """
HloModule m

ENTRY e {{
  p = f32[8,4]{{1,0}} parameter(0)
  q = f32[4,6]{{1,0}} parameter(1)
  h = f32[4,4]{{1,0}} slice(p), slice={{[0:4], [0:4]}}
  l = f32[4,4]{{1,0}} slice(p), slice={{[4:8], [0:4]}}
  e = f32[4,6]{{1,0}} dot(h, q), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{rest}
  f = f32[4,6]{{1,0}} dot(l, q), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{asked}
  ROOT d = f32[8,6]{{1,0}} concatenate(e, f), dimensions={{0}}
}}
"""
_CONVOLVED: Final = """
HloModule m

ENTRY e {{
  p = f32[2,9,9,8]{{3,2,1,0}} parameter(0)
  q = f32[3,3,8,4]{{3,2,1,0}} parameter(1)
  {result}
  g = f32[2,7,7,4]{{3,2,1,0}} get-tuple-element(k), index=0
  ROOT n = f32[2,7,7,4]{{3,2,1,0}} negate({read})
}}
"""
_LABELS: Final = "window={size=3x3}, dim_labels=b01f_01io->b01f"
_CONVOLUTION: Final = f"""c = f32[2,7,7,4]{{3,2,1,0}} convolution(p, q), {_LABELS}{_ASKED}
  k = (f32[2,7,7,4]{{3,2,1,0}}) tuple(c)"""
_CUDNN: Final = (
    "k = (f32[2,7,7,4]{{3,2,1,0}}, u8[0]{{0}}) custom-call(p, q), "
    + _LABELS.replace("{", "{{").replace("}", "}}")
    + '{precision}, custom_call_target="__cudnn$convForward"'
)
_TRANSPOSED = _PROGRAM.format(
    transpose="t = f32[6,4]{1,0} transpose(q), dimensions={1,0}",
    dot="d",
    right="t",
    dimension="1",
    rest=_ASKED,
)
_READS_Q = {"dot": "d", "right": "q", "dimension": "0", "rest": ""}
_SUMMED: Final = """
HloModule m

add {{
  a = {type}[] parameter(0)
  b = {type}[] parameter(1)
  ROOT s = {type}[] add(a, b)
}}

ENTRY e {{
  p = bf16[8,64]{{1,0}} parameter(0)
  q = bf16[64]{{0}} parameter(1)
  {product}
  ROOT n = f32[8]{{0}} negate({read})
}}
"""
_DOT = "d = f32[8]{0} dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
_STEPS = """w = {type}[8,64]{{1,0}} convert(p)
  v = {type}[64]{{0}} convert(q)
  b = {type}[8,64]{{1,0}} broadcast(v), dimensions={{1}}
  m = {type}[8,64]{{1,0}} multiply(w, b)
  z = {type}[] constant(0)
  r = {type}[8]{{0}} reduce(m, z), dimensions={{1}}, to_apply=add{mark}
  c = f32[8]{{0}} convert(r)"""
_TWO: Final = """
HloModule m

ENTRY e {{
  p = f32[8,4]{{1,0}} parameter(0)
  q = f32[4,6]{{1,0}} parameter(1)
  r = f32[4,6]{{1,0}} parameter(2)
  {dots}
}}
"""
_APART = f"""a = f32[8,6]{{1,0}} dot(p, q), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  b = f32[8,6]{{1,0}} dot(p, r), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{_ASKED}
  ROOT t = f32[8,12]{{1,0}} concatenate(a, b), dimensions={{1}}"""
_JOINED = """c = f32[4,12]{1,0} concatenate(q, r), dimensions={1}
  ROOT d = f32[8,12]{1,0} dot(p, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""
_NARROW = """x = bf16[8] convert(n)
  r = bf16[8] all-reduce(x), to_apply=add{mark}
  ROOT y = f32[8] convert(r)"""
_WIDE = _REDUCTION.format(type="f32", reduction="ROOT r = f32[8] all-reduce(n), to_apply=add")
_ROUNDED_ANYWAY = """r = f32[8] all-reduce(n), to_apply=add
  ROOT y = bf16[8] convert(r)"""
_SUNK = """x = bf16[8] convert(n)
  ROOT r = bf16[8] all-reduce(x), to_apply=add"""


class PrecisionLost(Rule):
    """A pass that makes a product or a reduction over devices anew, with less precision.

    ## Why
    `operand_precision` and `algorithm` say how many bits of its factors a dot or a convolution
    keeps. A pass that makes the product anew, with other dimensions, merged with another, or as a
    call of a library, has to hand them on. Where it does not, the product is computed in TF32 or
    bf16, and no type shows it.

    It is one where a pass leaves fewer products that ask for a precision, and makes one that asks
    for none and multiplies as many elements of the same types, or a part of them, or the elements
    of several products at once.

    Nor does a pass round what an instruction reads, by a conversion to fewer bits than the value,
    the result and what it was made of have, or have a product, or a part of its sum, give fewer
    bits. A dot sums in f32 at least: a reduction in its place, or in the place of another one,
    rounds no step to fewer bits.

    A reduction over devices rounds each step to its element type. Where an all-reduce or a
    reduce-scatter is made anew in a type of fewer bits, they are lost, unless its operands came
    from that type, or what reads it rounds to it. Passes that look for such places are left alone.
    """

    severity = Severity.WARNING
    examples = (
        Bad(
            _PROGRAM.format(transpose="", dot="f", right="q", dimension="0", rest="  // error"),
            file=_AFTER,
            beside={_BEFORE: _TRANSPOSED},
        ),
        Good(
            _PROGRAM.format(transpose="", dot="f", right="q", dimension="0", rest=_ASKED),
            file=_AFTER,
            beside={_BEFORE: _TRANSPOSED},
        ),
        Bad(
            _PROGRAM.format(
                transpose="c = bf16[4,6]{1,0} convert(q)\n  w = f32[4,6]{1,0} convert(c)",
                **_READS_Q | {"right": "w", "rest": "  // error"},
            ),
            file=_AFTER,
            beside={_BEFORE: _PROGRAM.format(transpose="", **_READS_Q)},
        ),
        Bad(
            _HALVES.format(rest="  // error", asked=""),
            file=_AFTER,
            beside={_BEFORE: _PROGRAM.format(transpose="", **_READS_Q | {"rest": _ASKED})},
        ),
        Good(
            _HALVES.format(rest=_ASKED, asked=_ASKED),
            file=_AFTER,
            beside={_BEFORE: _PROGRAM.format(transpose="", **_READS_Q | {"rest": _ASKED})},
        ),
        Bad(
            _CONVOLVED.format(result=_CUDNN.format(precision="") + "  // error", read="g"),
            file=_AFTER,
            beside={_BEFORE: _CONVOLVED.format(result=_CONVOLUTION, read="c")},
        ),
        Good(
            _CONVOLVED.format(result=_CUDNN.format(precision=_ASKED), read="g"),
            file=_AFTER,
            beside={_BEFORE: _CONVOLVED.format(result=_CONVOLUTION, read="c")},
        ),
        Bad(
            _PROGRAM.format(
                transpose="w = bf16[4,6]{1,0} convert(q)",
                **_READS_Q | {"dot": "d.1", "right": "w", "rest": "  // error"},
            ),
            file=_AFTER,
            beside={_BEFORE: _PROGRAM.format(transpose="", **_READS_Q)},
        ),
        Good(
            _PROGRAM.format(
                transpose="c = f64[4,6]{1,0} convert(q)\n  w = f32[4,6]{1,0} convert(c)",
                **_READS_Q | {"right": "w"},
            ),
            file=_AFTER,
            beside={_BEFORE: _PROGRAM.format(transpose="", **_READS_Q)},
        ),
        Bad(
            _REDUCTION.format(type="bf16", reduction=_NARROW.format(mark="  // error")),
            file=_AFTER,
            beside={_BEFORE: _WIDE},
        ),
        Bad(
            _SUMMED.format(
                type="bf16", product=_STEPS.format(type="bf16", mark="  // error"), read="c"
            ),
            file=_AFTER,
            beside={_BEFORE: _SUMMED.format(type="f32", product=_DOT, read="d")},
        ),
        Good(
            _SUMMED.format(type="f32", product=_STEPS.format(type="f32", mark=""), read="c"),
            file=_AFTER,
            beside={_BEFORE: _SUMMED.format(type="f32", product=_DOT, read="d")},
        ),
        Bad(
            _TWO.format(dots=_JOINED + "  // error"),
            file=_AFTER,
            beside={_BEFORE: _TWO.format(dots=_APART)},
        ),
        Good(
            _TWO.format(dots=_JOINED + _ASKED),
            file=_AFTER,
            beside={_BEFORE: _TWO.format(dots=_APART)},
        ),
        Good(
            _REDUCTION.format(type="bf16", reduction=_SUNK),
            file=_AFTER,
            beside={_BEFORE: _REDUCTION.format(type="f32", reduction=_ROUNDED_ANYWAY)},
        ),
        Good(
            _REDUCTION.format(type="bf16", reduction=_NARROW.format(mark="")),
            file=_AFTER.replace("transpose-folding", "bfloat16-propagation"),
            beside={_BEFORE.replace("transpose-folding", "bfloat16-propagation"): _WIDE},
        ),
    )

    def check_reductions(self, change: PassPair) -> Findings:
        """Each new reduction over devices in a narrower type than that of the one that is gone."""
        if may(change.pass_name, "precision"):
            return
        gone = list(_reductions(change.removed))
        made = list(_reductions(change.added)) if gone else []
        there = Counter((one.dtype, one.elements) for one in made)
        fewer = Counter((one.dtype, one.elements) for one in gone)
        more = there - fewer
        fewer.subtract(there)
        for new in made:
            if more[new.dtype, new.elements] <= 0:
                continue
            for old in gone:
                wide = old.dtype, old.elements
                if (
                    old.elements != new.elements
                    or fewer[wide] <= 0
                    or significand_bits(old.dtype) <= significand_bits(new.dtype)
                    or new.dtype in _types_around(old.instruction)
                ):
                    continue
                more[new.dtype, new.elements] -= 1
                fewer[wide] -= 1
                yield Finding(
                    new.instruction,
                    f"{change.pass_name} made this reduction over devices round to {new.dtype}",
                    notes=(f"before it, %{old.instruction.name} kept {old.dtype}",),
                    key="reduction",
                )
                break

    def check_narrowed(self, change: PassPair) -> Findings:
        """The first operand that a pass rounds on its way to a reader that it kept, and the first
        product whose result it rounds."""
        if may(change.pass_name, "precision"):
            return
        for reader, source, dtype in _rounded_operands(change):
            yield Finding(
                reader,
                f"{change.pass_name} rounds %{source.name} to {dtype} for this {reader.opcode}",
                key="operand",
            )
            break
        if _result_types(change.removed) == _result_types(change.added):
            return
        gone = list(products(change.removed, frozenset(ELEMENT_TYPES)))
        made = list(products(change.added, frozenset(ELEMENT_TYPES))) if gone else []
        there = Counter((one.size, one.result) for one in made)
        there.subtract((one.size, one.result) for one in gone)
        for old, new in [(old, new) for old in gone for new in made]:
            if (
                old.factors == new.factors
                and not new.elements % max(old.elements, 1)  # of a sum in parts each is a result
                and significand_bits(old.result) > significand_bits(new.result) > 0
                and there[old.size, old.result] < 0 < there[new.size, new.result]
                and not any(new.result in _types_of(user) for user in readers_of(old, new))
            ):
                yield Finding(
                    new.instruction,
                    f"{change.pass_name} has this product give {new.result}, where "
                    f"%{old.instruction.name} gave {old.result}",
                    key="result",
                )
                break

    def check_sums(self, change: PassPair) -> Findings:
        """The first sum that a pass computes in a type of fewer bits, step for step.

        XLA:TPU, whose reductions of bf16 sum in f32, does so.
        """
        if "tpu" in (change.release or change.pass_name) or may(change.pass_name, "precision"):
            return
        for computation in change.changed:
            for old, new in computation.replaced(may_give_sum):
                ours, theirs = sum_in(old), sum_in(new)
                if ours is None or theirs is None:
                    continue
                kept = computation.before.instruction(theirs.name)
                if kept is not None and kept.type_text == theirs.type_text:
                    continue
                wide, narrow = sum_bits(ours, change.before), sum_bits(theirs, change.after)
                if wide > narrow > 0 and not _is_of_tpu(change.pipeline):
                    dtype = theirs.type_text.partition("[")[0]
                    yield Finding(
                        theirs,
                        f"{change.pass_name} has this sum round each step to {dtype}",
                        notes=(f"before it, %{ours.name} was summed in more bits",),
                        key="sum",
                    )
                    return

    def check(self, change: PassPair) -> Findings:
        """Each new product of the default precision in the place of one that is gone."""
        if not any(map(asked_of, product_instructions(change.removed))):
            return
        gone = list(products(change.removed))
        made = list(products(change.added))
        for old, new, note in lost_precisions(gone, made):
            yield Finding(
                new.instruction,
                f"{change.pass_name} lost the precision {old.asked} of this product",
                notes=(f"before it, %{old.instruction.name} had it{note}",),
                key="precision",
            )


def _result_types(computations: tuple[Computation, ...]) -> Counter[str]:
    """The numbers of dots and convolutions of each element type."""
    return Counter(
        type_of(computation.rows[at]).partition("[")[0]
        for computation in computations
        for opcode in ("convolution", "dot")
        for at in computation.positions(opcode)
    )


def _is_of_tpu(pipeline: str) -> bool:
    """True for a pipeline that XLA:TPU alone has."""
    runs = [one.backend for one in pass_lists() if any(pipeline in run for run in one.passes)]
    return bool(runs) and set(runs) == {"tpu"}


class _Reduction(NamedTuple):
    instruction: Instruction
    dtype: str
    elements: int


def _reductions(computations: tuple[Computation, ...]) -> Iterator[_Reduction]:
    """The arrays of floats that are reduced over devices, each with its instruction."""
    for computation in computations:
        for opcode in _REDUCTIONS & computation.opcodes:
            for instruction in computation.with_opcode(opcode):
                for operand in instruction.operands:
                    shape = operand.shape
                    if isinstance(shape, ArrayShape) and significand_bits(shape.dtype) > 0:
                        yield _Reduction(instruction, shape.dtype, shape.elements)


def _types_around(instruction: Instruction) -> frozenset[str]:
    """The element types of what its operands are made of, and of what reads its result."""
    near = [instruction, *instruction.users]
    near += [user for one in instruction.users for user in one.users]
    near += [one.instruction for one in instruction.operands if one.instruction is not None]
    shapes = [one.shape_or_none for one in near]
    shapes += [operand.shape for one in near for operand in one.operands]
    return frozenset(array.dtype for shape in shapes for array in arrays(shape))


def _types_of(instruction: Instruction) -> frozenset[str]:
    """The element types of what an instruction gives."""
    return frozenset(array.dtype for array in arrays(instruction.shape_or_none))


def _rounded_operands(change: PassPair) -> Iterator[tuple[Instruction, Instruction, str]]:
    """Readers that the pass kept, or products made anew, with what they read through conversions
    that lose bits, and the type with the fewest."""
    for computation in change.changed:
        before, after = computation.before, computation.after
        rows = map(after.rows.__getitem__, computation.added)
        made = {name_of(row) for row in rows if opcode_of(row) == "convert"} - before.index.keys()
        kept = [
            (before.at(number), after.at(position))
            for number, position in (computation.kept if made else ())
            if not made.isdisjoint(references_of(after.rows[position]))
        ]
        for old, new in (*kept, *(computation.replaced(_is_product) if made else ())):
            if old.opcode != new.opcode or old.attributes_text != new.attributes_text:
                continue
            for ours, theirs in zip(old.operands, new.operands, strict=False):
                steps = list(chain(theirs.instruction, _before_new_conversion(before)))
                types = [step.type_text.partition("[")[0] for step in steps[:-1]]
                source = ours.instruction
                if not types or source is None or steps[-1].name != source.name:
                    continue
                least = min(types, key=significand_bits)
                given = max(map(significand_bits, _types_of(new)), default=0)
                if min(significand_bits(_exact(source)), given) > significand_bits(least) > 0:
                    yield new, source, least


def _is_product(row: InstructionRecord) -> bool:
    return opcode_of(row) in ("convolution", "dot")


def _before_new_conversion(before: Computation) -> Callable[[Instruction], Instruction | None]:
    """The operand of a conversion that was not there; None for anything else."""

    def operand(step: Instruction) -> Instruction | None:
        return (
            step.producer() if step.opcode == "convert" and step.name not in before.index else None
        )

    return operand


def _exact(value: Instruction) -> str:
    """The element type that a value fits into: that of what it was converted from, if narrower."""
    source = value.producer() if value.opcode == "convert" else None
    if value.opcode == "constant":
        return ""
    types = [one.type_text.partition("[")[0] for one in (value, source) if one is not None]
    return min(types, key=significand_bits)
