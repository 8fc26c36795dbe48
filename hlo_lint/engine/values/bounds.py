"""Bounds on the difference between the results of two programs, from their operations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from enum import IntEnum
from math import frexp, isfinite
from typing import TYPE_CHECKING, Final

from hlo_lint.analysis.walks import reached
from hlo_lint.engine.values.compare import EXACT, Bound, largest_error
from hlo_lint.engine.values.lowering.graph import nodes_in_order
from hlo_lint.engine.values.own_types import narrows, rounds, unit_of
from hlo_lint.hlo.dtypes import BITS, is_float, is_inexact
from hlo_lint.hlo.parser.literals import AnyArray

if TYPE_CHECKING:
    from hlo_lint.engine.values.lowering.graph import Node
    from hlo_lint.engine.values.lowering.program import Program

WIDE_BOUND: Final = Bound(relative=2.0**-30, of_largest=2.0**-36)
"""The bound of results in f64: 2^22 times its rounding, and far below that of any other type."""
CONSTANT_ULPS: Final = 32
"""Units in the last place allowed for a new constant, which the pass rounded to its own type. The
same multiple of the native run's error is allowed, too."""
ROUNDED_ULPS: Final = 4
"""Units in the last place by which a constant may differ that a pass rounded otherwise."""
FALLBACK_ULPS: Final = 64
"""Units in the last place of the results' type where no run in f64 is possible, times the number
of rounding operations on the longest path through the program."""


def wide_bound(
    before: Program, after: Program, native: Sequence[list[AnyArray]], truth: list[AnyArray]
) -> Bound:
    """The bound of results in f64, wider where a pass computed float constants."""
    if keeps_zero_signs(before, after):
        return EXACT
    constants, were, are = _constants(after), _readers(before), _readers(after)
    computed = constants - _constants(before)
    if were - are:  # a division by 3 may become a product with a third that is there already
        computed |= constants & (are - were).keys()
    had = {shape.dtype for node in before.nodes for shape in node.shapes}
    new = {dtype for dtype, data in computed} & had  # no pass rounds a constant to fewer digits
    if not new or _has_other_numbers(before, after):
        return WIDE_BOUND
    unit = max(map(unit_of, new))
    rounding = max((largest_error(results, truth) for results in native), default=unit)
    share = CONSTANT_ULPS * max(unit, min(rounding, unit * 2**10))
    return Bound(relative=share, of_largest=share)


def _has_other_numbers(before: Program, after: Program) -> bool:
    """True if the same operations read other constants, which no folding or rounding computed."""
    ours, theirs = ([(n.opcode, n.shapes, n.attributes) for n in p.nodes] for p in (before, after))
    return ours == theirs and any(
        was.literal is not None
        and new.literal is not None
        and is_inexact(was.shape.dtype)
        and largest_error([new.literal], [was.literal]) > ROUNDED_ULPS * unit_of(was.shape.dtype)
        for was, new in zip(before.nodes, after.nodes, strict=True)
    )


def _constants(program: Program) -> set[tuple[str, bytes]]:
    """The float constants of a program, without those that every type holds: 0, 1, 0.5 …"""
    return {
        (node.shape.dtype, node.literal.tobytes())
        for node in program.nodes
        if node.literal is not None
        and is_inexact(node.shape.dtype)
        and (node.literal.ndim or not _is_short(float(abs(node.literal))))
    }


def _readers(program: Program) -> Counter[tuple[str, bytes]]:
    """The number of uses of each float constant of a program, broadcast or not."""
    readers: Counter[tuple[str, bytes]] = Counter()
    for node in program.nodes:
        for operand in node.operands if node.opcode != "broadcast" else ():
            source = operand.operands[0] if operand.opcode == "broadcast" else operand
            if source.literal is not None and is_inexact(source.shape.dtype):
                readers[source.shape.dtype, source.literal.tobytes()] += 1
    return readers


def narrowed(program: Program, of_parameters: bool) -> set[str]:
    """The float types to which floats with more digits are rounded.

    Parameters count only up to 16 bits, as a product of f32 has a default precision.
    """
    conversions = [(node.shape.dtype, node.operands[0]) for node in program.nodes if narrows(node)]
    return {
        target
        for target, source in conversions
        if (source.opcode == "parameter" and BITS[source.shape.dtype] <= 16) or not of_parameters
    }


def rounded_back(before: Program, after: Program) -> set[str]:
    """The types absent in `before` to which `after` rounds a float and converts it back.

    Empty where fewer bits suffice: for a product (XLA:TPU uses bf16 by default, and keeps only the
    rounded operand), and where `before` has a `reduce-precision`.
    """
    if any(node.opcode in ("convolution", "dot", "reduce-precision") for node in before.nodes):
        return set()
    targets: set[str] = set()
    for node in after.nodes:
        if node.opcode == "convert" and node.operands[0].opcode == "convert":
            narrow = node.operands[0]
            dtypes = [value.shape.dtype for value in (narrow.operands[0], narrow, node)]
            if all(map(is_float, dtypes)):
                source, target, result = map(unit_of, dtypes)
                targets |= {narrow.shape.dtype} if source < target > result else set()
    return targets - {shape.dtype for node in before.nodes for shape in node.shapes}


def narrowed_operations(before: Program, after: Program) -> set[str]:
    """The types in which `after` computes what `before` computes in a type with more digits.

    An accumulator of bf16 in place of f32, say. Products of f32 have a default precision.
    """
    ours, theirs = (
        Counter((n.opcode, s.dtype, _loses(n)) for n in side.nodes for s in n.shapes[:1])
        for side in (before, after)
    )
    wide_products = {
        operand.shape.dtype
        for node in before.nodes
        if node.opcode in ("convolution", "dot")
        for operand in node.operands
        if operand.opcode != "convert" and BITS.get(operand.shape.dtype, 0) > 16
    }
    gone = [(opcode, dtype) for opcode, dtype, _ in ours - theirs if is_inexact(dtype)]
    return {
        narrow
        for opcode, narrow, loses in theirs - ours
        if loses and is_inexact(narrow)
        if not (opcode in ("convolution", "dot") and wide_products)
        if any(name == opcode and unit_of(wide) < unit_of(narrow) for name, wide in gone)
    }


def _loses(node: Node) -> bool:
    """True if an operation in a narrower type loses digits: it rounds, or reads a rounded number.

    The maximum of numbers of bf16 is the same in bf16 and in f32.
    """
    reads_rounded = any(
        operand.opcode == "convert" and operand.operands[0].literal is None
        for operand in node.operands
    )
    is_move = node.opcode in MOVES or node.opcode in ("constant", "convert", "parameter", "while")
    return not is_move and (reads_rounded or rounds(node))


_find_precision: Final = re.compile("highest|x[369]$").findall
"""Precisions of a product above those of single bf16 factors."""
FINE_PARTS: Final = 64
"""A difference of 1/64 of a unit in the last place shows that results were rounded to it."""


def rounded_share(before: Program, after: Program, rounds_freely: bool) -> float:
    """The share of a result that `after` must not lose by rounding; 0 without such a limit.

    f64 hides that rounding. With `rounds_freely` the pass chooses the types of operations.
    """
    narrow = rounded_back(before, after)
    if not rounds_freely:
        narrow |= narrowed_operations(before, after)
    asked, left = (
        {
            word
            for instruction in side.origins.values()
            if instruction.opcode in ("convolution", "dot")
            for name in ("algorithm", "operand_precision")
            for word in _find_precision(instruction.attributes.get(name, ""))
        }
        for side in (before, after)
    )
    if asked - left:
        narrow |= {"bf16"}  # the factors are split into a sum of bf16 parts
    return min(map(unit_of, narrow), default=0.0) / FINE_PARTS


def _is_short(number: float) -> bool:
    """True for a number of at most 3 significant bits, which every type holds exactly."""
    return not isfinite(number) or (frexp(number)[0] * 8).is_integer()


SMOOTH: Final = frozenset(
    "abs add bounded broadcast clamp complex concatenate conditional constant convert convolution "
    "copy cosine dot dynamic-slice dynamic-update-slice erf exponential fft gather "
    "get-tuple-element imag iota logistic maximum minimum multiply negate pad parameter real "
    "reduce reduce-window reshape reverse scatter select sine slice subtract tanh transpose "
    "tuple".split()
)
"""Opcodes that turn a small error of an operand into a small error of the result. The others
divide, decide, or read bits."""
SMOOTH_SHARE: Final = 2.0**-16
"""The share of the native rounding error that a smooth program may have in f64, whose units are at
least 2^29 times smaller."""


_SMOOTH_ABOVE_0: Final = frozenset("divide log power rsqrt sqrt".split())
"""Opcodes that are smooth where their divisor or operand is positive."""


def is_smooth(program: Program) -> bool:
    """True if rounding cannot grow into a large difference.

    No float is sorted, compared, or divided by a number that may be 0.
    """
    signs: dict[Node, _Sign] = {}
    for node in program.nodes:
        # Where operands cannot cancel, the relative rounding error stays small.
        signs[node] = _sign(node, [signs.get(operand, _Sign.ANY) for operand in node.operands])
        if not _is_smooth(node):
            divisor = node.operands[node.opcode == "divide"]
            if node.opcode not in _SMOOTH_ABOVE_0 or signs[divisor] is not _Sign.POSITIVE:
                return False
    return True


def is_exact_on_sparse(program: Program) -> bool:
    """True if no float is divided, so that the zeros of sparse inputs do no harm.

    Rounding grows in a loop, but sparse inputs do not round.
    """
    return all(node.opcode == "while" or _is_smooth(node) for node in program.nodes)


def _is_smooth(node: Node) -> bool:
    read = [shape.dtype for operand in node.operands for shape in operand.shapes]
    if not any(map(is_inexact, read)):
        return True
    is_number = node.opcode == "convert" and not is_inexact(node.shape.dtype)
    return node.opcode in SMOOTH and not is_number


class _Sign(IntEnum):
    """A lower bound on all elements of an array."""

    ANY = 0
    NOT_NEGATIVE = 1
    POSITIVE = 2


_LEAST: Final = frozenset(
    "broadcast concatenate convert copy divide minimum multiply pad reshape reverse rsqrt slice "
    "sqrt transpose".split()
)
"""Opcodes whose results are positive where all operands are."""


def _sign(node: Node, operands: Sequence[_Sign]) -> _Sign:
    """The sign of a node, by those of its operands."""
    if not is_float(node.shape.dtype):
        return _Sign.ANY
    match node.opcode:
        case "constant" if node.literal is not None:
            least = float(node.literal.astype("f8").min(initial=1))
            return _Sign(1 + (least > 0)) if least >= 0 else _Sign.ANY
        case "exponential" | "logistic":
            return _Sign.POSITIVE
        case "abs":
            return max(_Sign.NOT_NEGATIVE, operands[0])
        case "multiply" if node.operands[0] is node.operands[1]:
            return max(_Sign.NOT_NEGATIVE, operands[0])
        case "maximum":
            return max(operands)
        case "add":
            return max(operands) if min(operands) else _Sign.ANY
        case "reduce" if len(operands) == 2:
            root = node.called[0][1].roots[0]
            adds = root.opcode == "add" and operands[1] is not _Sign.ANY
            is_plain = all(operand.opcode == "parameter" for operand in root.operands)
            return operands[0] if is_plain and (adds or root.opcode == "maximum") else _Sign.ANY
    return min(operands) if node.opcode in _LEAST else _Sign.ANY


def is_by_sign_of_nan(before: Program, after: Program) -> bool:
    """True if a result may depend on the sign of a computed NaN.

    Infinity minus infinity is a NaN of either sign, which the total order puts before or after all
    numbers.
    """
    return _reads_sign_of_nan(before) or _reads_sign_of_nan(after)


def _reads_sign_of_nan(program: Program) -> bool:
    reads_bits = any(
        ("type", "TOTALORDER") in node.attributes
        if node.opcode == "compare"
        else node.opcode == "bitcast-convert" and not is_inexact(node.shape.dtype)
        for node in program.nodes
        if node.operands and is_inexact(node.operands[0].shape.dtype)
    )
    return reads_bits and any(
        node.opcode in _MAKES_NAN and is_inexact(node.shape.dtype) for node in program.nodes
    )


def is_masked_by_product(before: Program, after: Program) -> bool:
    """True if a float is multiplied by a converted predicate.

    0 times a NaN or an infinity is a NaN, but 0 once algsimp has turned the product into a select.
    No pass of XLA turns a select into a product of elements; a gather may become a dot.
    """
    return _has_mask(before, _PRODUCTS) or _has_mask(after, _PRODUCTS - {"multiply"})


def _has_mask(program: Program, products: Set[str]) -> bool:
    return any(
        node.opcode in products
        and is_inexact(node.shape.dtype)
        and any(map(_is_mask, node.operands))
        for node in program.nodes
    )


def _is_mask(node: Node) -> bool:
    """True for an array that was converted from predicates."""
    sources = reached([node], lambda n: n.operands if n.opcode in _KEEPS_ELEMENTS else ())
    return any(source.shape.dtype == "pred" for source in sources)


_PRODUCTS: Final = frozenset({"convolution", "dot", "multiply"})
_KEEPS_ELEMENTS: Final = frozenset("broadcast convert reshape slice transpose".split())
_MAKES_NAN: Final = frozenset(
    "add convolution divide dot fft multiply power reduce reduce-window scatter subtract".split()
)


MOVES: Final = frozenset(
    "bitcast-convert broadcast concatenate copy dynamic-slice dynamic-update-slice gather "
    "get-tuple-element pad reshape reverse slice transpose tuple".split()
)
"""Opcodes whose results hold elements of their operands."""
_KEEPS_SIGN: Final = MOVES | set(
    "abs compare complex constant convert imag iota negate parameter real select sign".split()
)
"""Opcodes that define the sign of each zero, on which no pass of XLA relaxes them."""


def keeps_zero_signs(before: Program, after: Program) -> bool:
    """True if the sign of a zero in a result is defined, so that `after` must keep it.

    XLA writes `x + 0` as `x`, and leaves the sign of a sum or a maximum of zeros open.
    """
    sides = (before, _KEEPS_SIGN), (after, _KEEPS_SIGN | {"multiply", "subtract"})
    return all(
        node.opcode in allowed or not any(is_inexact(shape.dtype) for shape in node.shapes)
        for side, allowed in sides
        for node in side.nodes
    )


OPERATION_ULPS: Final[Mapping[str, int]] = {
    **dict.fromkeys("dot convolution reduce reduce-window scatter fft".split(), 8),
    **dict.fromkeys("exponential log power tanh logistic erf sine cosine".split(), 4),
}
"""Units in the last place by which an operation may be off; 1 for other opcodes."""


def fallback_bound(before: Program, after: Program) -> Bound:
    """The bound of results in their own types, by the operations of both programs."""
    ulps, unit = 0, 0.0
    for program in (before, after):
        depth: dict[int, int] = {}
        for node in nodes_in_order(program.graph.roots):
            deepest = max((depth[operand.number] for operand in node.operands), default=0)
            rounded = any(is_inexact(shape.dtype) for shape in node.shapes)
            depth[node.number] = deepest + rounded * OPERATION_ULPS.get(node.opcode, 1)
            if rounded:
                unit = max(unit, *(unit_of(s.dtype) for s in node.shapes if is_inexact(s.dtype)))
        ulps = max(ulps, *depth.values())
    share = min(FALLBACK_ULPS * ulps * unit, 0.5)
    return Bound(relative=share, of_largest=share)
