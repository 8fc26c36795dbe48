"""Differences in the programs' own types that f64 hides: overflow, underflow, lost rounding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from hlo_lint.engine.values.compare import Bound, LargestDifference, array_difference, is_rounded
from hlo_lint.engine.values.lowering.graph import nodes_in_order
from hlo_lint.engine.values.lowering.program import nodes_of
from hlo_lint.hlo.dtypes import ELEMENT_TYPES, PART_OF_COMPLEX, is_float, is_inexact
from hlo_lint.hlo.parser.literals import AnyArray

if TYPE_CHECKING:
    from hlo_lint.engine.values.lowering.graph import Node
    from hlo_lint.engine.values.lowering.program import Program

MAX_NODES: Final = 512
"""The most nodes of a program that is compiled again to confirm or to find a difference."""
FAR: Final = 2.0**32
"""A factor that brings ordinary numbers near the end of a range."""
_RANGED: Final = frozenset(
    "abs atan2 cbrt complex convert divide dot exponential exponential-minus-one log log-plus-one "
    "logistic multiply power reduce reduce-precision rsqrt sqrt tanh".split()
)
"""Opcodes that may leave the range of a type, or that round to fewer bits."""
_GROWING: Final = frozenset("exponential exponential-minus-one log log-plus-one power".split())
_PLAIN: Final = frozenset("divide dot multiply reduce".split())
"""Those that leave it with numbers far from 1 alone."""
_EXACT: Final = frozenset(
    "abs bitcast-convert broadcast ceil clamp compare complex concatenate constant convert copy "
    "dynamic-slice dynamic-update-slice floor gather get-tuple-element imag iota is-finite maximum "
    "minimum negate pad parameter real reduce-precision reshape reverse round-nearest-afz "
    "round-nearest-even select sign slice sort transpose tuple".split()
)
"""Opcodes whose float results are not rounded, except to a type that the text names."""
_ROUGH: Final = Bound(relative=0.125)
"""Equal except for rounding: one side is infinite, NaN or 0."""
_SAME: Final = Bound(of_largest=2.0**-200)
"""Equal except for the signs of zeros."""


Ranged = Counter[tuple[str, str, str]]
"""The number of operations that overflow, vanish or round, by opcode, type and detail.

The detail of `reduce-precision` are its attributes, and of operations that may be copies the large
and small constants that they read."""


def ranged_changes(before: Program, after: Program) -> tuple[Ranged, Ranged]:
    """The operations that overflow, vanish or round and that only `before`, or `after`, has."""
    return _changes(before.nodes, after.nodes)


def _changes(before: Iterable[Node], after: Iterable[Node]) -> tuple[Ranged, Ranged]:
    ours, theirs = _ranged(before), _ranged(after)
    return ours - theirs, theirs - ours


def may_hide(before: Program, after: Program, gone: Ranged, new: Ranged) -> bool:
    """True if the difference of two programs may show in their own types alone."""
    if max(len(side.nodes) for side in (before, after)) > MAX_NODES:
        return False
    if rounds_nothing(before) and rounds_nothing(after):
        # Also where a clamp before one is lost.
        return any(_ranged(side.nodes) for side in (before, after))
    if any(kind[0] == "dot" and kind not in gone for kind in new):
        # XLA chooses the types of products, and of several devices or turns of a loop each has its
        # own: only other kinds are new.
        kinds = [
            {kind for kind in _ranged(side.nodes, is_copy=True) if kind[0] not in _PLAIN or kind[2]}
            for side in (before, after)
        ]
        return kinds[0] != kinds[1]
    return bool(gone | new)


def _ranged(nodes: Iterable[Node], is_copy: bool = False) -> Ranged:
    return Counter(
        (node.opcode, node.shapes[0].dtype, _detail(node, is_copy))
        for node in nodes
        if node.opcode in _RANGED
        and any(is_inexact(value.shapes[0].dtype) for value in (node, *node.operands))
    )


def _detail(node: Node, is_copy: bool) -> str:
    if node.opcode == "reduce-precision":
        return f"{node.attributes}"
    sources = (n.operands[0] if n.opcode == "broadcast" else n for n in node.operands)
    literals = (n.literal for n in sources if n.literal is not None and n.literal.size == 1)
    numbers = [abs(complex(literal.item())) for literal in literals]
    return " ".join(f"{n}" for n in numbers if is_copy and n and not 1 / FAR < n < FAR)


def narrows(node: Node) -> bool:
    """True for a conversion of a float to a float with fewer digits."""
    if node.opcode != "convert" or not is_float(node.shape.dtype):
        return False
    (source,) = node.operands
    return is_float(source.shape.dtype) and unit_of(source.shape.dtype) < unit_of(node.shape.dtype)


def unit_of(dtype: str) -> float:
    """The unit in the last place of 1 in an element type."""
    facts = ELEMENT_TYPES[PART_OF_COMPLEX.get(dtype, dtype)]
    return 2.0 ** (1 - facts.significand_bits)


def hidden_difference(
    before: Program,
    after: Program,
    native: Sequence[Sequence[AnyArray]],
    wide: Sequence[Sequence[AnyArray]],
    rounds_freely: bool,
) -> LargestDifference | None:
    """A difference of results in their own types where both sides agree in f64.

    With `rounds_freely` a pass may have dropped a conversion to a narrower type and back.
    """
    for number, (ours, theirs) in enumerate(
        zip(before.graph.roots, after.graph.roots, strict=True)
    ):
        gone, new = _changes(nodes_of([ours]), nodes_of([theirs]))
        # Where exponentials are rewritten, or a type is wider than the text names.
        may_gain = _rewrites_exponentials(gone) or any(name == "convert" for name, *_ in new)
        may_lose = _may_lose(before, gone, new)
        arrays = [side[number] for side in (*native, *wide)]
        if _is_exact(ours) and _is_exact(theirs):
            if rounds_freely and sum(map(narrows, after.nodes)) < sum(map(narrows, before.nodes)):
                continue
            difference = array_difference(arrays[0], arrays[1], _SAME, number)
        elif not may_lose and is_rounded(arrays[0]) and arrays[0].dtype.kind != "c":
            difference = _of_range(arrays, may_gain, number)
        else:
            continue
        if difference is not None:
            return difference
    return None


def _is_exact(root: Node) -> bool:
    """True if no operation before a result rounds a float."""
    return not any(map(rounds, nodes_in_order([root])))


def rounds(node: Node) -> bool:
    """True if an operation rounds floats, other than to a type that the text names."""
    if node.opcode in _EXACT or not any(is_inexact(shape.dtype) for shape in node.shapes):
        return False
    # The maximum of an array is one of its elements.
    roots = [root for _, graph in node.called for root in graph.roots]
    return node.opcode not in ("reduce", "reduce-window") or not all(map(_is_exact, roots))


def may_become_finite(before: Program, after: Program) -> bool:
    """True if a pass rewrote exponentials, and may have made an infinite number finite on purpose.

    XLA writes `log(exp(x))` as `x`, and `exp(x) * exp(y)` as `exp(x + y)`.
    """
    return _rewrites_exponentials(ranged_changes(before, after)[0])


def _rewrites_exponentials(gone: Ranged) -> bool:
    return any(opcode in _GROWING for opcode, *_ in gone)


def rounds_nothing(program: Program) -> bool:
    """True if no result of a program is rounded, except to a type that the text names."""
    return all(map(_is_exact, program.graph.roots))


def _may_lose(before: Program, gone: Ranged, new: Ranged) -> bool:
    """True if the pass may have left the range of a type on purpose.

    XLA writes `(x / y) / z` as `x / (y * z)`, and rounds more numbers to a type that the program
    has.
    """
    had = {s.dtype for node in before.nodes for s in node.shapes if is_float(s.dtype)}
    widest = max((ELEMENT_TYPES[dtype].significand_bits for dtype in had), default=0)
    narrow = {dtype for dtype in had if ELEMENT_TYPES[dtype].significand_bits < widest}
    quotients = any(name == "divide" for name, *_ in gone)
    products = any(name == "multiply" for name, *_ in new)
    # A product in a narrow type and one that is converted to it are rounded alike.
    rounded = Counter[str]()
    for sign, side in ((1, new), (-1, gone)):
        for (name, dtype, _), count in side.items():
            if dtype in narrow and (name == "convert" or sign < 0):
                rounded[dtype] += sign * count
    return (quotients and products) or any(count > 0 for count in rounded.values())


def _of_range(arrays: Sequence[AnyArray], may_gain: bool, number: int) -> LargestDifference | None:
    """The elements that are infinite, NaN or 0 on one side and right on the other.

    `arrays` are the results before and after in their own type, then those in f64. With `may_gain`
    the pass may have made an infinite number finite on purpose.
    """
    import numpy as np

    ours, theirs, truth, other = arrays
    facts = next(t for t in ELEMENT_TYPES.values() if t.numpy == ours.dtype.name)
    # Where large numbers cancel, the order of a sum decides.
    may_vanish = bool((np.abs(truth[np.isfinite(truth)]) < 1).all())
    low, high = 2.0 ** (8 - facts.max_exponent), 2.0 ** (facts.max_exponent - 3)
    with np.errstate(all="ignore"):
        size = np.abs(truth)
        # `exp(x) - 1` in place of `expm1(x)` is 0 for a small number in f64, too.
        is_agreed = (np.abs(truth - other) <= 1e-3 * size) | ((theirs == 0) & (other == 0))
        is_known = (size > low) & (size < high) & is_agreed
        right, lost = [], []
        for side in (ours.astype(np.float64), theirs.astype(np.float64)):
            right.append(np.abs(side - truth) <= size / 8)
            lost.append(~np.isfinite(side) | ((side == 0) & may_vanish))
        gained = lost[0] & ~np.isfinite(ours.astype(np.float64)) & right[1] & (not may_gain)
        wrong = is_known & ((right[0] & lost[1]) | gained)
    if not wrong.any():
        return None
    return array_difference(ours, np.where(wrong, theirs, ours), _ROUGH, number)
