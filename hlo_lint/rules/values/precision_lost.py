"""Products and reductions that a pass replaced with less precision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Final

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
from hlo_lint.rules.base import Bad, Finding, Findings, Good, PublicReport, Rule, Severity

_REDUCTIONS: Final = frozenset({"all-reduce", "all-reduce-start", "reduce-scatter"})


class PrecisionLost(Rule):
    """A pass that replaces a product or a reduction by a less precise one.

    ## Why
    `operand_precision` and `algorithm` state how many bits of its factors a dot or a convolution
    keeps. A pass that replaces the product, with different dimensions, merged with another product,
    or as a library call, must carry them over. Otherwise the product is computed in TF32 or bf16,
    and no type shows it. Reported when a pass leaves fewer products with a requested precision, and
    makes a product without it that multiplies the same types and as many elements, a part of them,
    or those of several products.

    A pass must not round an operand by a conversion to fewer bits than the value, its source and
    the result have, and must not narrow the result of a product or of a part of its sum. A dot
    accumulates at least in f32: a reduction that replaces a dot or a reduction must not round each
    step to fewer bits.

    A reduction over devices rounds each step to its element type. An all-reduce or reduce-scatter
    that replaces a wider one loses bits, unless its operands came from the narrower type, or its
    users round to it. Passes that narrow such reductions on purpose are not checked.
    """

    subsumes = frozenset({"meaning-changed"})
    severity = Severity.WARNING
    evidence = (PublicReport("openxla/xla#24533"),)
    examples = (
        Bad.step("""
            - t = f32[6,4] transpose(f32[4,6] q), dimensions={1,0}
            - ROOT d = f32[8,6] dot(f32[8,4] p, t), lhs_contracting_dims={1},
            -     rhs_contracting_dims={1}, operand_precision={highest,highest}
            + ROOT f = f32[8,6] dot(p, q), lhs_contracting_dims={1},  // error
            +     rhs_contracting_dims={0}
        """),
        Bad.step("""
            - ROOT d = f32[8,6] dot(f32[8,4] p, f32[4,6] q), lhs_contracting_dims={1},
            -     rhs_contracting_dims={0}
            + c = bf16[4,6] convert(q)
            + w = f32[4,6] convert(c)
            + ROOT d = f32[8,6] dot(p, w), lhs_contracting_dims={1},  // error
            +     rhs_contracting_dims={0}
        """),
        Bad.step("""
            - ROOT d = f32[8,6] dot(f32[8,4] p, f32[4,6] q), lhs_contracting_dims={1},
            -     rhs_contracting_dims={0}, operand_precision={highest,highest}
            + h = f32[4,4] slice(p), slice={[0:4], [0:4]}
            + l = f32[4,4] slice(p), slice={[4:8], [0:4]}
            + e = f32[4,6] dot(h, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}  // error
            + f = f32[4,6] dot(l, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
            + ROOT d = f32[8,6] concatenate(e, f), dimensions={0}
        """),
        Bad.step("""
            - c = f32[2,7,7,4] convolution(f32[2,9,9,8] p, f32[3,3,8,4] q), window={size=3x3},
            -     dim_labels=b01f_01io->b01f, operand_precision={highest,highest}
            - k = (f32[2,7,7,4]) tuple(c)
            + k = (f32[2,7,7,4], u8[0]) custom-call(p, q), window={size=3x3},  // error
            +     dim_labels=b01f_01io->b01f, custom_call_target="__cudnn$convForward"
              g = f32[2,7,7,4] get-tuple-element(k), index=0
            - ROOT n = f32[2,7,7,4] negate(c)
            + ROOT n = f32[2,7,7,4] negate(g)
        """),
        Bad.step("""
            - ROOT d = f32[8,6] dot(f32[8,4] p, f32[4,6] q), lhs_contracting_dims={1},
            -     rhs_contracting_dims={0}
            + w = bf16[4,6] convert(q)
            + ROOT d.1 = f32[8,6] dot(p, w), lhs_contracting_dims={1},  // error
            +     rhs_contracting_dims={0}
        """),
        Good.step("""
            - ROOT d = f32[8,6] dot(f32[8,4] p, f32[4,6] q), lhs_contracting_dims={1},
            -     rhs_contracting_dims={0}
            + c = f64[4,6] convert(q)
            + w = f32[4,6] convert(c)
            + ROOT d = f32[8,6] dot(p, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        """),
        Bad.step("""
            -add { ROOT s = f32[] add(f32[] a, f32[] b) }
            +add { ROOT s = bf16[] add(bf16[] a, bf16[] b) }

            ENTRY e {
              n = f32[8] negate(f32[8] p)
            - ROOT r = f32[8] all-reduce(n), to_apply=add
            + x = bf16[8] convert(n)
            + r = bf16[8] all-reduce(x), to_apply=add  // error
            + ROOT y = f32[8] convert(r)
            }
        """),
        Bad.step("""
            -add { ROOT s = f32[] add(f32[] a, f32[] b) }
            +add { ROOT s = bf16[] add(bf16[] a, bf16[] b) }

            ENTRY e {
              p = bf16[8,64] parameter(0)
              q = bf16[64] parameter(1)
            - d = f32[8] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
            - ROOT n = f32[8] negate(d)
            + w = bf16[8,64] convert(p)
            + v = bf16[64] convert(q)
            + b = bf16[8,64] broadcast(v), dimensions={1}
            + m = bf16[8,64] multiply(w, b)
            + z = bf16[] constant(0)
            + r = bf16[8] reduce(m, z), dimensions={1}, to_apply=add  // error
            + c = f32[8] convert(r)
            + ROOT n = f32[8] negate(c)
            }
        """),
        Bad.step("""
            - a = f32[8,6] dot(f32[8,4] p, f32[4,6] q), lhs_contracting_dims={1},
            -     rhs_contracting_dims={0}
            - b = f32[8,6] dot(p, f32[4,6] r), lhs_contracting_dims={1}, rhs_contracting_dims={0},
            -     operand_precision={highest,highest}
            - ROOT t = f32[8,12] concatenate(a, b), dimensions={1}
            + c = f32[4,12] concatenate(q, r), dimensions={1}
            + ROOT d = f32[8,12] dot(p, c), lhs_contracting_dims={1},  // error
            +     rhs_contracting_dims={0}
        """),
        Good.step("""
            -add { ROOT s = f32[] add(f32[] a, f32[] b) }
            +add { ROOT s = bf16[] add(bf16[] a, bf16[] b) }

            ENTRY e {
              n = f32[8] negate(f32[8] p)
            - r = f32[8] all-reduce(n), to_apply=add
            - ROOT y = bf16[8] convert(r)
            + x = bf16[8] convert(n)
            + ROOT r = bf16[8] all-reduce(x), to_apply=add
            }
        """),
    )

    def check_reductions(self, pair: PassPair) -> Findings:
        """New reductions over devices in a narrower type than the removed reduction."""
        if may(pair.pass_name, "precision"):
            return
        gone = list(_reductions(pair.removed))
        added = list(_reductions(pair.added)) if gone else []
        counts, fewer = (Counter(size for _, size in side) for side in (added, gone))
        more = counts - fewer
        fewer.subtract(counts)
        for new, narrow in added:
            if more[narrow] <= 0:
                continue
            for old, wide in gone:
                if (
                    wide[1] != narrow[1]
                    or fewer[wide] <= 0
                    or significand_bits(wide[0]) <= significand_bits(narrow[0])
                    or narrow[0] in _types_around(old)
                ):
                    continue
                more[narrow] -= 1
                fewer[wide] -= 1
                yield Finding(
                    new,
                    f"{pair.pass_name} made this reduction over devices round to {narrow[0]}",
                    notes=(f"before the pass, %{old.name} kept {wide[0]}",),
                    key="reduction",
                )
                break

    def check_narrowed(self, pair: PassPair) -> Findings:
        """The first operand of a kept instruction, and the first product, that a pass rounds."""
        if may(pair.pass_name, "precision"):
            return
        for reader, source, dtype in _rounded_operands(pair):
            yield Finding(
                reader,
                f"{pair.pass_name} rounds %{source.name} to {dtype} for this {reader.opcode}",
                key="operand",
            )
            break
        if _result_types(pair.removed) == _result_types(pair.added):
            return
        gone = list(products(pair.removed, frozenset(ELEMENT_TYPES)))
        added = list(products(pair.added, frozenset(ELEMENT_TYPES))) if gone else []
        balance = Counter((product.size, product.result) for product in added)
        balance.subtract((product.size, product.result) for product in gone)
        for old, new in [(old, new) for old in gone for new in added]:
            if (
                old.factors == new.factors
                and not new.elements % max(old.elements, 1)  # each part of a split sum is a result
                and significand_bits(old.result) > significand_bits(new.result) > 0
                and balance[old.size, old.result] < 0 < balance[new.size, new.result]
                and not any(new.result in _types_of(user) for user in readers_of(old, new))
            ):
                yield Finding(
                    new.instruction,
                    f"{pair.pass_name} made this product return {new.result}; "
                    f"%{old.instruction.name} returned {old.result}",
                    key="result",
                )
                break

    def check_sums(self, pair: PassPair) -> Findings:
        """The first sum whose steps a pass rounds to fewer bits.

        XLA:TPU is skipped: its reductions of bf16 accumulate in f32.
        """
        if "tpu" in (pair.release or pair.pass_name) or may(pair.pass_name, "precision"):
            return
        for computation in pair.changed:
            for old, new in computation.replaced(may_give_sum):
                ours, theirs = sum_in(old), sum_in(new)
                if ours is None or theirs is None:
                    continue
                kept = computation.before.instruction(theirs.name)
                if kept is not None and kept.type_text == theirs.type_text:
                    continue
                wide, narrow = sum_bits(ours, pair.before), sum_bits(theirs, pair.after)
                if wide > narrow > 0 and not _is_of_tpu(pair.pipeline):
                    dtype = theirs.type_text.partition("[")[0]
                    yield Finding(
                        theirs,
                        f"{pair.pass_name} made this sum round each step to {dtype}",
                        notes=(f"before the pass, %{ours.name} accumulated in more bits",),
                        key="sum",
                    )
                    return

    def check(self, pair: PassPair) -> Findings:
        """New products of default precision that replace products of a requested precision."""
        if not any(map(asked_of, product_instructions(pair.removed))):
            return
        gone = list(products(pair.removed))
        added = list(products(pair.added))
        for old, new, note in lost_precisions(gone, added):
            yield Finding(
                new.instruction,
                f"{pair.pass_name} lost the precision {old.asked} of this product",
                notes=(f"before the pass, %{old.instruction.name} had it{note}",),
                key="precision",
            )


def _result_types(computations: tuple[Computation, ...]) -> Counter[str]:
    """The number of dots and convolutions of each element type."""
    return Counter(
        type_of(computation.rows[number]).partition("[")[0]
        for computation in computations
        for opcode in ("convolution", "dot")
        for number in computation.positions(opcode)
    )


def _is_of_tpu(pipeline: str) -> bool:
    """True for a pipeline that only XLA:TPU has."""
    backends = {
        passes.backend for passes in pass_lists() if any(pipeline in run for run in passes.passes)
    }
    return backends == {"tpu"}


def _reductions(
    computations: tuple[Computation, ...],
) -> Iterator[tuple[Instruction, tuple[str, int]]]:
    """Reductions of floating-point arrays over devices, with element type and number."""
    for computation in computations:
        for opcode in _REDUCTIONS & computation.opcodes:
            for instruction in computation.with_opcode(opcode):
                for operand in instruction.operands:
                    shape = operand.shape
                    if isinstance(shape, ArrayShape) and significand_bits(shape.dtype) > 0:
                        yield instruction, (shape.dtype, shape.elements)


def _types_around(instruction: Instruction) -> frozenset[str]:
    """The element types two steps before and after an instruction."""
    near = [instruction, *instruction.users]
    near += [second for user in instruction.users for second in user.users]
    near += [read.instruction for read in instruction.operands if read.instruction is not None]
    shapes = [neighbour.shape_or_none for neighbour in near]
    shapes += [operand.shape for neighbour in near for operand in neighbour.operands]
    return frozenset(array.dtype for shape in shapes for array in arrays(shape))


def _types_of(instruction: Instruction) -> frozenset[str]:
    """The element types of an instruction's results."""
    return frozenset(array.dtype for array in arrays(instruction.shape_or_none))


def _rounded_operands(pair: PassPair) -> Iterator[tuple[Instruction, Instruction, str]]:
    """Operands that new conversions round, as (user, unrounded value, narrowest type).

    Users are kept instructions and replaced products.
    """
    for computation in pair.changed:
        before, after = computation.before, computation.after
        rows = map(after.rows.__getitem__, computation.added)
        converts = {name_of(row) for row in rows if opcode_of(row) == "convert"}
        converts -= before.index.keys()
        kept = [
            (before.at(number), after.at(position))
            for number, position in (computation.kept if converts else ())
            if not converts.isdisjoint(references_of(after.rows[position]))
        ]
        for old, new in (*kept, *(computation.replaced(_is_product) if converts else ())):
            if old.opcode != new.opcode or old.attributes_text != new.attributes_text:
                continue
            for ours, theirs in zip(old.operands, new.operands, strict=False):
                steps = list(chain(theirs.instruction, partial(_read_by_new_conversion, before)))
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


def _read_by_new_conversion(before: Computation, step: Instruction) -> Instruction | None:
    """The operand of a conversion that a computation did not have before; None for other values."""
    return step.producer() if step.opcode == "convert" and step.name not in before.index else None


def _exact(value: Instruction) -> str:
    """The narrowest element type that holds a value: its own, or that it was converted from."""
    source = value.producer() if value.opcode == "convert" else None
    if value.opcode == "constant":
        return ""
    sources = (value, source)
    types = [step.type_text.partition("[")[0] for step in sources if step is not None]
    return min(types, key=significand_bits)
