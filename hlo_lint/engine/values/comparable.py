"""The reasons to leave two programs uncompared, or to excuse a difference between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hlo_lint.analysis.walks import reached

if TYPE_CHECKING:
    from hlo_lint.engine.values.lowering.program import Program
    from hlo_lint.hlo.ir import Instruction
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
    # The number of equal calls may differ: their results follow from their operands.
    cuts = [{f"{cut.what} {cut.signature}" for cut in program.cuts} for program in (before, after)]
    if cuts[0] != cuts[1]:
        only = (cuts[0] - cuts[1], "before"), (cuts[1] - cuts[0], "after")
        names = [(sorted({cut.split(" ")[0] for cut in own}), side) for own, side in only if own]
        sides = [f"{', '.join(own)} {side}" for own, side in names]
        return f"operations that are not run differ: {' and '.join(sides)}"
    return ""


def excuse(before: Program, after: Program) -> str:
    """The reason why a difference may come from undefined parts of the programs, or empty."""
    if left_out(after) != left_out(before):
        # A pass folds constants: `negate(constant({...}))` becomes a new constant; a slice of an
        # identity table becomes the index.
        return "constants that are left out of the text may differ"
    # Bits of another generator are computed by new nodes.
    if _generators(after) != _generators(before) and not set(after.nodes) <= set(before.nodes):
        return "XLA:CPU's default random generator may differ from the backend's"
    if _wide_divisions(before) and not _wide_divisions(after):
        return "a 64-bit integer divided by 0 is undefined, and the pass expanded the division"
    return ""


def left_out(program: Program) -> tuple[set[str], int]:
    """The names of elided constants, and the number of non-integers that depend on integer ones.

    A pass knows the numbers in a table, such as the slice offset of each device.
    """
    constants = [cut.instruction for cut in program.cuts if cut.instruction.opcode == "constant"]
    names = {constant.name.partition(".clone")[0].replace(".", "_") for constant in constants}
    tables = [constant for constant in constants if _is_integer(constant)]
    users = reached(tables, lambda index: index.users if _is_integer(index) else ())
    return names, sum(not _is_integer(user) for user in users)


def _is_integer(instruction: Instruction) -> bool:
    return instruction.type_text.startswith(("s", "u"))


def _wide_divisions(program: Program) -> bool:
    """True if 64-bit integers are divided by a non-constant: XLA:TPU expands that division."""
    return any(
        node.opcode in ("divide", "remainder")
        and node.shape.dtype in ("s64", "u64")
        and not any(
            source.opcode == "constant"
            for source in reached(
                [node.operands[1]], lambda n: n.operands if n.opcode == "broadcast" else ()
            )
        )
        for node in program.nodes
    )


def _generators(program: Program) -> set[tuple[ArrayShape, ...]]:
    """The result shapes of random generators that the backend chooses."""
    return {
        node.shapes
        for node in program.nodes
        if node.opcode == "rng-bit-generator" and ("algorithm", "rng_default") in node.attributes
    }


def _other_shapes(what: str, ours: Sequence[ArrayShape], theirs: Sequence[ArrayShape]) -> str:
    """The first parameter or result whose shape differs."""
    if len(ours) != len(theirs):
        return f"{len(ours)} {what}s before, {len(theirs)} after"
    pairs = enumerate(zip(ours, theirs, strict=True))
    number, (our, their) = next((number, pair) for number, pair in pairs if pair[0] != pair[1])
    return f"{what} {number} is {our} before and {their} after"
