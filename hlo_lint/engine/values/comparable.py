"""The reasons why two programs are not compared, or a difference between them says nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from hlo_lint.analysis.walks import reached

if TYPE_CHECKING:
    from hlo_lint.engine.values.lowering.graph import Node
    from hlo_lint.engine.values.lowering.program import Program
    from hlo_lint.hlo.shape import ArrayShape


def incomparable(before: Program, after: Program) -> str:
    """The reason why two programs cannot run on the same inputs; empty if they can."""
    if before.devices != after.devices:
        return f"devices before: {before.devices}, after: {after.devices}"
    ours, theirs = before.graph.parameters, after.graph.parameters
    if ours != theirs:
        return _other_shapes("parameter", ours, theirs)
    ours, theirs = (
        tuple(root.shape.with_layout(None) for root in program.graph.roots)
        for program in (before, after)
    )
    if ours != theirs:
        return _other_shapes("result", ours, theirs)
    # A call may be there more or less often: its results follow from its operands.
    cuts = [{f"{cut.what} {cut.signature}" for cut in program.cuts} for program in (before, after)]
    if cuts[0] != cuts[1]:
        only = [sorted(one - other) for one, other in (cuts, cuts[::-1])]
        names = [
            ", ".join(sorted({signature.split(" ")[0] for signature in side})) for side in only
        ]
        sides = [
            f"{name} {side}" for name, side in zip(names, ("before", "after"), strict=True) if name
        ]
        return f"operations that are not run differ: {' and '.join(sides)}"
    return ""


def excuse(before: Program, after: Program) -> str:
    """The reason why a difference says nothing, left open by the programs; empty without one."""
    if left_out(after) != left_out(before):
        # A pass computes with constants: `negate(constant({...}))` becomes another one, a slice of
        # a table that holds each index at its place the index.
        return "constants that are left out of the text may be others"
    # Bits that another generator makes are computed by what was not there before.
    if _generators(after) != _generators(before) and not set(after.nodes) <= set(before.nodes):
        return "XLA:CPU's default generator of random bits need not be the backend's"
    if _wide_divisions(before) and not _wide_divisions(after):
        return "an integer of 64 bits divided by 0 has no defined value, and is divided bit by bit"
    return ""


_INTEGERS: Final = ("s", "u")


def left_out(program: Program) -> tuple[set[str], int]:
    """The names of constants that the text leaves out, but for their ends, and what they decide.

    A pass knows the numbers in a table: of each device the offset of its slice.
    """
    constants = [cut.instruction for cut in program.cuts if cut.instruction.opcode == "constant"]
    names = {one.name.partition(".clone")[0].replace(".", "_") for one in constants}
    tables = [one for one in constants if one.type_text.startswith(_INTEGERS)]
    users = reached(tables, lambda one: one.users if one.type_text.startswith(_INTEGERS) else ())
    return names, sum(not one.type_text.startswith(_INTEGERS) for one in users)


def _wide_divisions(program: Program) -> bool:
    """True if integers of 64 bits are divided by another than a constant: XLA:TPU expands that."""
    return any(
        node.opcode in ("divide", "remainder")
        and node.shape.dtype in ("s64", "u64")
        and not any(one.opcode == "constant" for one in reached([node.operands[1]], _repeated))
        for node in program.nodes
    )


def _repeated(node: Node) -> Sequence[Node]:
    return node.operands if node.opcode == "broadcast" else ()


def _generators(program: Program) -> set[tuple[ArrayShape, ...]]:
    """The shapes of what generators of the backend's choice make."""
    return {
        node.shapes
        for node in program.nodes
        if node.opcode == "rng-bit-generator" and ("algorithm", "rng_default") in node.attributes
    }


def _other_shapes(what: str, ours: Sequence[ArrayShape], theirs: Sequence[ArrayShape]) -> str:
    """The first parameter or result that has another shape."""
    if len(ours) != len(theirs):
        return f"{len(ours)} {what}s before, {len(theirs)} after"
    pairs = enumerate(zip(ours, theirs, strict=True))
    number, (one, other) = next((at, pair) for at, pair in pairs if pair[0] != pair[1])
    return f"{what} {number} is {one} before and {other} after"
