"""The page of `hlo-lint compare`: tables without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlo_lint import __version__
from hlo_lint.engine.cost_comparison import CostComparison
from hlo_lint.engine.cost_figures import CostRow
from hlo_lint.report.costs import amount, change_of, shown_rows, since_of
from hlo_lint.report.html.page import content_of, digest, jinja_environment
from hlo_lint.text.source import shown


def render_comparisons(comparisons: Sequence[CostComparison], paths: tuple[str, str]) -> str:
    """The page for the modules of two dumps at `paths`.

    Raises:
        UsageError: jinja2 is missing (extra `report`).
    """
    style = content_of("page.css")
    page: str = (
        jinja_environment()
        .get_template("compare.html")
        .render(
            title=" and ".join(map(shown, paths)),
            before=shown(paths[0]),
            after=shown(paths[1]),
            version=__version__,
            style=style,
            policy=f"default-src 'none'; img-src data:; style-src {digest(style)}",
            modules=[_module(comparison) for comparison in comparisons if not comparison.same],
            same=[shown(comparison.before.title) for comparison in comparisons if comparison.same],
        )
    )
    return page


def _module(comparison: CostComparison) -> dict[str, Any]:
    return {
        "title": shown(comparison.after.title),
        "rows": [_row(row) for row in shown_rows(comparison)],
        "lines": [_row(row) for row in comparison.lines],
        "line_quantity": comparison.line_quantity,
        "notes": [shown(note) for note in comparison.notes],
    }


def _row(row: CostRow) -> dict[str, str]:
    return {
        "name": shown(row.name),
        "before": amount(row.before, row.unit),
        "after": amount(row.after, row.unit),
        "change": change_of(row),
        "tone": "more"
        if row.unit and row.change > 0
        else "less"
        if row.unit and row.change
        else "",
        "since": shown(since_of(row)),
        "origin": shown(str(row.origin or "")),
    }
