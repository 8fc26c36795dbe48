"""Parameters and results of the program that a pass gives another type or layout."""

from __future__ import annotations

from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.analysis.verifier.scope import header_span
from hlo_lint.dumps.transitions import may
from hlo_lint.hlo.attributes.shapes import ProgramShape
from hlo_lint.hlo.shape import ArrayShape
from hlo_lint.rules.base import Bad, Findings, Good, Rule
from hlo_lint.rules.findings import Finding, Severity

_PROGRAM = """
HloModule m, entry_computation_layout={{(f32[8,4]{{1,0}})->f32[8,4]{{{order}}}}}{mark}

ENTRY e {{
  p = f32[8,4]{{1,0}} parameter(0)
  ROOT c = f32[8,4]{{{order}}} {opcode}(p)
}}
"""
_BEFORE = "module_0001.m.0001.layout_normalization.after_pipeline-start.before_algsimp.txt"
_AFTER = "module_0001.m.0002.layout_normalization.after_algsimp.before_pipeline-end.txt"


class InterfaceChanged(Rule):
    """A pass after which the program takes or gives other arrays than the caller has.

    ## Why
    `entry_computation_layout` is what the caller was told: it makes the arguments and reads the
    results in these types and layouts, in this order. Partitioners divide the arrays, and
    layout-assignment chooses the layouts that were left open; no other pass may touch them. Where
    one does, header and entry agree, so that the verifier is content, and the caller reads a
    transposed result, or bytes of another type.
    """

    severity = Severity.WARNING
    examples = (
        Bad(
            _PROGRAM.format(order="1,0", opcode="copy", mark="  // error"),
            file=_AFTER,
            beside={_BEFORE: _PROGRAM.format(order="0,1", opcode="copy", mark="")},
        ),
        Good(
            _PROGRAM.format(order="0,1", opcode="copy", mark=""),
            file=_AFTER,
            beside={_BEFORE: _PROGRAM.format(order="0,1", opcode="transpose", mark="")},
        ),
    )

    def check(self, change: PassPair) -> Findings:
        """One finding, with the first array that is another one."""
        before, after = change.before, change.after
        if before.header == after.header or may(change.pass_name, "interface"):
            return
        ours, theirs = (
            module.attribute_or_none("entry_computation_layout") for module in (before, after)
        )
        if ours == theirs or not (
            isinstance(ours, ProgramShape) and isinstance(theirs, ProgramShape)
        ):
            return
        if difference := _difference(ours, theirs):
            yield Finding(
                header_span(after),
                f"{change.pass_name} changed the interface of the program: {difference}",
                notes=("before it, entry_computation_layout said otherwise",),
            )


def _difference(ours: ProgramShape, theirs: ProgramShape) -> str:
    if len(ours.parameters) != len(theirs.parameters):
        return f"it took {len(ours.parameters)} parameters, and takes {len(theirs.parameters)}"
    olds, news = ours.arrays(), theirs.arrays()
    if olds.keys() != news.keys():
        name = next(name for name in (*olds, *news) if name not in olds or name not in news)
        return f"{name.partition(',')[0]} is another tuple"
    for name, old in olds.items():
        if _is_other(old, news[name]):
            return f"{name} was {old} and is {news[name]}"
    return ""


def _is_other(old: ArrayShape, new: ArrayShape) -> bool:
    """True for another type, other sizes, or another order of dimensions in memory."""
    if (old.dtype, old.dims) != (new.dtype, new.dims):
        return True
    layouts = old.layout, new.layout
    return None not in layouts and layouts[0].minor_to_major != layouts[1].minor_to_major  # type: ignore[union-attr]
