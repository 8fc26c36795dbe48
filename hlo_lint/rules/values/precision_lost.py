"""Precision that a pass took from a product or a reduction."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain as in_turn
from typing import Final

from hlo_lint.analysis.buffers import renamed_source
from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.analysis.walks import chain
from hlo_lint.dumps.pass_lists import pass_lists
from hlo_lint.dumps.transitions import may
from hlo_lint.hlo.dtypes import ELEMENT_TYPES
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.opcodes import COMMUNICATES, SAME_NUMBERS
from hlo_lint.hlo.records import name_of, opcode_of, references_of
from hlo_lint.hlo.shape import arrays
from hlo_lint.rules.base import Bad, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import WrongValues

_PRODUCTS: Final = frozenset({"convolution", "dot"})
_SUMS: Final = _PRODUCTS | {"all-reduce", "custom-call", "reduce", "reduce-scatter"}
_MOVES: Final = SAME_NUMBERS | {"get-tuple-element", "transpose"}


class PrecisionLost(Rule):
    """A pass that computes a product or a reduction in fewer bits.

    ## Why
    A pass must not round an operand by a conversion to fewer bits than the value, its source and
    the result have, and must not narrow the result of a product unless its users round to it. A dot
    accumulates at least in f32: a reduction that replaces a dot or a reduction must not round each
    step to fewer bits.

    A reduction over devices rounds each step to its element type. An all-reduce or reduce-scatter
    that replaces a wider one loses bits, unless its operands came from the narrower type, or its
    users round to it. Passes that narrow such reductions on purpose are not checked.

    The rule attribute-lost finds products without the precision that they requested.
    """

    subsumes = frozenset({"meaning-changed"})
    severity = Severity.WARNING
    evidence = (WrongValues(1),)
    reports = "openxla/xla#24533"
    examples = (
        Bad.step("""
            - ROOT d = f32[8,6] dot(f32[8,4] p, f32[4,6] q), lhs_contracting_dims={1},
            -     rhs_contracting_dims={0}
            + c = bf16[4,6] convert(q)
            + w = f32[4,6] convert(c)
            + ROOT d = f32[8,6] dot(p, w), lhs_contracting_dims={1},  // error
            +     rhs_contracting_dims={0}
        """),
        Bad.step("""
            -add { ROOT s = f32[] add(f32[] a, f32[] b) }
            +add { ROOT s = bf16[] add(bf16[] a, bf16[] b) }
              n = f32[8] negate(f32[8] p)
            - ROOT r = f32[8] all-reduce(n), to_apply=add
            + x = bf16[8] convert(n)
            + r = bf16[8] all-reduce(x), to_apply=add  // error
            + ROOT y = f32[8] convert(r)
        """),
        Bad.step("""
            -add { ROOT s = f32[] add(f32[] a, f32[] b) }
            +add { ROOT s = bf16[] add(bf16[] a, bf16[] b) }
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
        """),
        Good.step("""
            -add { ROOT s = f32[] add(f32[] a, f32[] b) }
            +add { ROOT s = bf16[] add(bf16[] a, bf16[] b) }
              n = f32[8] negate(f32[8] p)
            - r = f32[8] all-reduce(n), to_apply=add
            - ROOT y = bf16[8] convert(r)
            + x = bf16[8] convert(n)
            + ROOT r = bf16[8] all-reduce(x), to_apply=add
        """),
    )

    def check(self, pair: PassPair) -> Findings:
        """The first rounded operand, and the first result and the first sum of fewer bits."""
        if may(pair.pass_name, "precision"):
            return
        kinds = set[str]()
        for finding in in_turn(_rounded_operands(pair), _narrowed(pair)):
            if finding.key not in kinds:
                kinds.add(finding.key)
                yield finding


def _narrowed(pair: PassPair) -> Findings:
    """Products and sums that keep fewer bits than those that they replace."""
    for link in pair.map.links(lambda row: opcode_of(row).removesuffix("-start") in _SUMS):
        old, new = link.old, renamed_source(link.new, _MOVES)
        if new is None or new.opcode.removesuffix("-start") not in _SUMS:
            continue
        is_reduce, dtype = "reduce" in (old.opcode, new.opcode), _widest(new)
        wide, narrow = _bits(old, pair.before, is_reduce), _bits(new, pair.after, is_reduce)
        # XLA:TPU accumulates in f32.
        if not wide > narrow > 0 or (is_reduce and _is_of_tpu(pair)):
            continue
        # The program rounds to this type just before or after it: the pass moved the conversion.
        if not is_reduce and dtype in _types_around(old):
            continue
        does = "round each step" if is_reduce or old.opcode in COMMUNICATES else "round its result"
        yield Finding(
            new,
            f"{pair.pass_name} made this {new.opcode} {does} to {dtype}",
            notes=(f"before the pass, %{old.name} kept {_widest(old)}",),
            key="sum" if is_reduce else "reduction" if old.opcode in COMMUNICATES else "result",
        )


def _bits(total: Instruction, module: Module, is_reduce: bool) -> int:
    """The bits of a float's significand that a sum keeps in its result, or in each step."""
    bits = _significand_bits(_widest(total))
    if is_reduce and total.opcode == "dot":
        return max(bits, _significand_bits("f32"))  # each library sums in f32 at least
    body = module.callee(total) if total.opcode == "reduce" else None
    is_other = total.opcode == "reduce" and not (body and body.root and body.root.opcode == "add")
    return -1 if is_other else bits


def _widest(instruction: Instruction) -> str:
    """The element type of most bits among the results."""
    types = [array.dtype for array in arrays(instruction.shape_or_none)]
    return max(types, key=_significand_bits, default="")


def _significand_bits(dtype: str) -> int:
    """The bits of a float's significand; -1 for any other type."""
    return ELEMENT_TYPES[dtype].significand_bits if dtype in ELEMENT_TYPES else -1


def _is_of_tpu(pair: PassPair) -> bool:
    backends = {
        passes.backend
        for passes in pass_lists()
        if any(pair.pipeline in run for run in passes.passes)
    }
    return "tpu" in (pair.release or pair.pass_name) or backends == {"tpu"}


def _types_around(old: Instruction) -> frozenset[str]:
    """The element types up to two steps after an instruction, and before an exchange."""
    near = [*old.users, *(second for user in old.users for second in user.users)]
    before = [old, *old.producers] if old.opcode in COMMUNICATES else []
    shapes = [neighbour.shape_or_none for neighbour in (*near, *before)]
    shapes += [operand.shape for neighbour in before for operand in neighbour.operands]
    return frozenset(array.dtype for shape in shapes for array in arrays(shape))


def _rounded_operands(pair: PassPair) -> Findings:
    """Operands that new conversions round, of the same operation as before."""
    readers = set[str]()
    for body in pair.changed:
        rows = [body.after.rows[number] for number in body.added]
        converts = {name_of(row) for row in rows if opcode_of(row) == "convert"}
        converts -= body.before.index.keys()
        readers.update(name_of(row) for row in rows if not converts.isdisjoint(references_of(row)))
    links = pair.map.links(lambda row: name_of(row) in readers or opcode_of(row) in _PRODUCTS)
    for old, new, *_ in links if readers else ():
        # dot-algorithm-rewriter rounds the operands that `algorithm` asked it to round.
        if old.opcode != new.opcode or old.attributes_text != new.attributes_text:
            continue
        for ours, theirs in zip(old.operands, new.operands, strict=False):
            steps = list(chain(theirs.instruction, partial(_read_by_new_conversion, old)))
            source, types = ours.instruction, list(map(_widest, steps[:-1]))
            if not types or source is None or steps[-1].name != source.name:
                continue
            least = min(types, key=_significand_bits)
            given = min(_significand_bits(_widest(new)), *map(_significand_bits, _exact(source)))
            if given > _significand_bits(least) > 0:
                message = f"{pair.pass_name} rounds %{source.name} to {least} for this {new.opcode}"
                yield Finding(new, message, key="operand")


def _read_by_new_conversion(old: Instruction, step: Instruction) -> Instruction | None:
    """The operand of a conversion that the computation of `old` lacks; None for other values."""
    is_new = step.opcode == "convert" and step.name not in old.computation.index
    return step.producer() if is_new else None


def _exact(value: Instruction) -> Iterator[str]:
    """The element types that hold a value: its own, and that it was converted from."""
    yield "" if value.opcode == "constant" else _widest(value)
    if value.opcode == "convert":
        yield from map(_widest, value.producers)
