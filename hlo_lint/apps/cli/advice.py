"""Advice after a fix of a dump: editing a dump does not change the next compile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hlo_lint.dumps.directory import Dump
from hlo_lint.dumps.names import parse_name
from hlo_lint.engine.preconditions import remedy
from hlo_lint.rules.registry import find_rule
from hlo_lint.text.source import shown

if TYPE_CHECKING:
    from hlo_lint.engine.findings import Diagnostic

MAX_CAUSES = 5
"""Maximum number of fixed findings with advice."""
_LIVE = (
    '`hlo_lint.live.install("fix")` makes such edits inside a compile, on a GPU before layout '
    "assignment"
)


def advice(causes: Sequence[Diagnostic], dump: Dump) -> Iterator[str]:
    """Lines of advice on the findings that were fixed in dumps of passes."""
    runs = {str(file.path): compilation for compilation in dump for file in compilation.dumps}
    by_kind = {
        (cause.rule, cause.origin): runs[cause.path]
        for cause in causes
        if (name := parse_name(Path(cause.path).name)) is not None and name.step is not None
    }
    if by_kind:
        yield "note: editing a dump does not change the next compile"
    for (rule, place), compilation in list(by_kind.items())[:MAX_CAUSES]:
        demand = find_rule(rule).precondition
        line = f"note: {rule}" + (f" comes from {shown(str(place))}" if place else "")
        yield f"{line}; {_LIVE if demand is None else remedy(demand, compilation)}"
