"""Parameters and results of the program whose type or layout a pass changes."""

from __future__ import annotations

from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.analysis.shape_inference.types import without_layout
from hlo_lint.analysis.verifier.scope import header_span
from hlo_lint.dumps.transitions import may
from hlo_lint.hlo.attributes.shapes import ProgramShape
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.shape import ArrayShape
from hlo_lint.rules.base import Bad, Finding, Findings, Good, PublicReport, Rule, Severity
from hlo_lint.text.source import Span


class InterfaceChanged(Rule):
    """A pass that changes the types or layouts of the program's parameters or results.

    ## Why
    `entry_computation_layout` is the contract with the caller, which passes arguments and reads
    results in these types, layouts and order. Partitioners divide the arrays, and layout-assignment
    chooses the layouts left open; no other pass may change them. If a pass does, header and entry
    still agree, so the verifier passes, but the caller reads a transposed result, or bytes of a
    different type. In a text without the attribute, the types of the entry's parameters and root
    count.
    """

    severity = Severity.WARNING
    evidence = (PublicReport("openxla/xla#35762"),)
    examples = (
        Bad.step("""
            -HloModule m, entry_computation_layout={(f32[8,4]{1,0})->f32[8,4]{0,1}}
            +HloModule m, entry_computation_layout={(f32[8,4]{1,0})->f32[8,4]{1,0}}  // error

            ENTRY e {
              p = f32[8,4]{1,0} parameter(0)
            - ROOT c = f32[8,4]{0,1} copy(p)
            + ROOT c = f32[8,4]{1,0} copy(p)
            }
        """),
        Bad.step("""
              n = f32[8]{0} negate(f32[8]{0} p)
            - ROOT c = f32[8]{0} copy(n)
            + ROOT t = (f32[8]{0}) tuple(n)  // error
        """),
        Good.step("""
            HloModule m, entry_computation_layout={(f32[8,4]{1,0})->f32[8,4]{0,1}}

            ENTRY e {
              p = f32[8,4]{1,0} parameter(0)
            - ROOT c = f32[8,4]{0,1} transpose(p)
            + ROOT c = f32[8,4]{0,1} copy(p)
            }
        """),
    )

    def check(self, change: PassPair) -> Findings:
        """A finding naming the first parameter or result that changed."""
        before, after = change.before, change.after
        is_told = "entry_computation_layout" in before.header
        if (is_told and before.header == after.header) or may(change.pass_name, "interface"):
            return
        ours, theirs = map(_told, (before, after))
        place: Span | Instruction = header_span(after)
        source = "entry_computation_layout"
        if ours is None and theirs is None and (entry := after.entry) and entry.root:
            ours, theirs = map(_of_entry, (before, after))
            place, source = entry.root, "the entry computation"
        if ours is None or theirs is None or ours == theirs:
            return
        if difference := _difference(ours, theirs):
            yield Finding(
                place,
                f"{change.pass_name} changed the interface of the program: {difference}",
                notes=(f"according to {source} before and after the pass",),
            )


def _told(module: Module) -> ProgramShape | None:
    """The types and layouts in the header; None if it has none."""
    if "entry_computation_layout" not in module.header:
        return None
    shape = module.attribute_or_none("entry_computation_layout")
    return shape if isinstance(shape, ProgramShape) else None


def _of_entry(module: Module) -> ProgramShape | None:
    """The types of the entry's parameters and result, without layouts."""
    entry = module.entry
    if entry is None or entry.root is None:
        return None
    instructions = (*entry.parameters, entry.root)
    shapes = [instruction.shape_or_none for instruction in instructions]
    bare = [without_layout(shape) for shape in shapes if shape is not None]
    return ProgramShape(tuple(bare[:-1]), bare[-1]) if len(bare) == len(shapes) else None


def _difference(ours: ProgramShape, theirs: ProgramShape) -> str:
    if len(ours.parameters) != len(theirs.parameters):
        return f"it had {len(ours.parameters)} parameters, now {len(theirs.parameters)}"
    olds, news = ours.arrays(), theirs.arrays()
    if olds.keys() != news.keys():
        name = next(name for name in (*olds, *news) if name not in olds or name not in news)
        return f"{name.partition(',')[0]} is a different tuple"
    for name, old in olds.items():
        if _is_other(old, news[name]):
            return f"{name} was {old}, now {news[name]}"
    return ""


def _is_other(old: ArrayShape, new: ArrayShape) -> bool:
    """True if element type, sizes or the order of dimensions in memory differ."""
    if (old.dtype, old.dims) != (new.dtype, new.dims):
        return True
    layouts = old.layout, new.layout
    return None not in layouts and layouts[0].minor_to_major != layouts[1].minor_to_major  # type: ignore[union-attr]
