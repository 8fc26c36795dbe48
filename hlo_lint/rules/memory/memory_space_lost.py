"""Memory spaces that a pass drops from values or from the entry's layout."""

from __future__ import annotations

from collections.abc import Mapping

from hlo_lint.analysis.calls import instructions_of
from hlo_lint.analysis.kinds import types_in
from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.analysis.side_effects import MARKERS
from hlo_lint.analysis.step_map.links import Link, LinkKind
from hlo_lint.analysis.verifier.scope import header_span
from hlo_lint.dumps.transitions import may
from hlo_lint.hlo.attributes.shapes import ProgramShape
from hlo_lint.hlo.ir import Module
from hlo_lint.hlo.records import type_of
from hlo_lint.hlo.shape import ArrayShape
from hlo_lint.rules.base import Bad, Finding, Findings, Good, PublicReport, Rule, Severity

_PROGRAM = """
HloModule m, entry_computation_layout={{(f32[8]{{0}})->f32[8]{{0{space}}}}}{mark}

ENTRY e {{
  p = f32[8]{{0}} parameter(0)
  ROOT n = f32[8]{{0}} {opcode}(p)
}}
"""
_OFFLOADED = """
HloModule m

ENTRY e {{
  p = f32[8]{{0}} parameter(0)
  h = f32[8]{{0{space}}} copy(p){mark}
  ROOT d = f32[8]{{0}} copy(h)
}}
"""
_MARKED = """
HloModule m, entry_computation_layout={(f32[8]{0})->f32[8]{0}}

ENTRY e {
  p = f32[8]{0} parameter(0)
  h = f32[8]{0} custom-call(p), custom_call_target="MoveToHost"
  d = f32[8]{0} custom-call(h), custom_call_target="MoveToDevice"
  ROOT n = f32[8]{0} negate(d)
}
"""
_BEFORE = "module_0001.m.0001.layout_assignment.after_pipeline-start.before_layout-assignment.txt"
_AFTER = "module_0001.m.0002.layout_assignment.after_layout-assignment.before_pipeline-end.txt"


class MemorySpaceLost(Rule):
    """A value, parameter or result that a pass moved back to the default memory.

    ## Why
    `entry_computation_layout` states the memory spaces of arguments and results: host memory is
    S(5). A pass that rewrites the entry's layout has to keep them. Otherwise the caller and the
    program disagree about a buffer: an offloaded result takes device memory, or a kernel reads an
    address of the wrong memory. Within the program, an instruction that keeps its name, opcode and
    operands must keep its memory space: a copy to the host that stays on the device frees nothing.
    Offloading passes may choose other memory spaces; but once host-offloader has removed the last
    `MoveToHost`, some value must be in host memory.
    """

    severity = Severity.WARNING
    evidence = (PublicReport("openxla/xla@8cb19d9776"),)
    examples = (
        Bad(
            _PROGRAM.format(space="", mark="  // error", opcode="negate"),
            file=_AFTER,
            beside={_BEFORE: _PROGRAM.format(space=":S(5)", mark="", opcode="negate")},
        ),
        Bad(
            _OFFLOADED.format(space="", mark="  // error"),
            file=_AFTER,
            beside={_BEFORE: _OFFLOADED.format(space=":S(5)", mark="")},
        ),
        Bad(
            _PROGRAM.format(space="", mark="  // error", opcode="negate"),
            file=_AFTER.replace("layout-assignment", "host-offloader"),
            beside={_BEFORE.replace("layout-assignment", "host-offloader"): _MARKED},
        ),
        Good(
            _PROGRAM.format(space=":S(5)", mark="", opcode="negate"),
            file=_AFTER,
            beside={_BEFORE: _PROGRAM.format(space=":S(5)", mark="", opcode="abs")},
        ),
    )

    def check_values(self, change: PassPair) -> Findings:
        """A finding at the first instruction whose result lost its memory space."""
        if may(change.pass_name, "placement"):
            return
        links = change.map.links(lambda row: ":S(" in type_of(row))
        lost = [
            (link.old, link.new)
            for link in links
            if (link.is_equal or link.kind == LinkKind.KEPT) and _has_moved(link)
        ]
        if lost:
            (old, new), more = lost[0], f" and {len(lost) - 1} more" if len(lost) > 1 else ""
            yield Finding(
                new,
                f"{change.pass_name} lost the memory space of %{new.name}{more}",
                notes=(f"before it, it was {old.type_text}",),
            )

    def check_marks(self, change: PassPair) -> Findings:
        """A finding if every value marked MoveToHost stayed on the device."""
        if MARKERS["MoveToHost"] != change.pass_name:
            return
        marks = [
            [call for call in calls if call.custom_call_target == "MoveToHost"]
            for calls in (
                instructions_of(module, "custom-call") for module in (change.before, change.after)
            )
        ]
        if marks[0] and not marks[1] and not any("S(5)" in text for text in types_in(change.after)):
            yield Finding(
                header_span(change.after),
                f"{change.pass_name} removed %{marks[0][0].name}, a MoveToHost, but no value is in "
                "host memory",
            )

    def check(self, change: PassPair) -> Findings:
        """A finding naming the first parameter or result that lost its memory space."""
        before, after = change.before, change.after
        if ":S(" not in before.header or before.header == after.header:
            return
        if may(change.pass_name, "memory-spaces"):
            return
        ours, theirs = _arrays(before), _arrays(after)
        if ours.keys() != theirs.keys():
            return  # the program's interface changed
        lost = [
            (place, shape.memory_space)
            for place, shape in ours.items()
            if shape.memory_space
            and not theirs[place].memory_space
            and (shape.dtype, shape.dims) == (theirs[place].dtype, theirs[place].dims)
        ]
        if lost:
            (place, space), more = lost[0], f" and {len(lost) - 1} more" if len(lost) > 1 else ""
            yield Finding(
                header_span(after),
                f"{change.pass_name} lost the memory space S({space}) of {place}{more}",
                notes=("before it, entry_computation_layout had it",),
            )


def _has_moved(link: Link) -> bool:
    """True if an unchanged operation now has its result in the default memory."""
    ours, theirs = link.old.shape_or_none, link.new.shape_or_none
    is_same = link.old.operand_names == link.new.operand_names or link.is_equal
    return (
        link.old.opcode == link.new.opcode
        and isinstance(ours, ArrayShape)
        and isinstance(theirs, ArrayShape)
        and bool(ours.memory_space)
        and not theirs.memory_space
        and (ours.dtype, ours.dims) == (theirs.dtype, theirs.dims)
        and is_same
    )


def _arrays(module: Module) -> Mapping[str, ArrayShape]:
    layout = module.attribute_or_none("entry_computation_layout")
    return layout.arrays() if isinstance(layout, ProgramShape) else {}
