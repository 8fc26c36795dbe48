"""The page of `hlo-lint compare`: tables without scripts."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_lint import __version__
from hlo_lint.engine.cost_comparison import CostComparison
from hlo_lint.report.costs import amount, change_of, shown_rows, since_of
from hlo_lint.report.html.page import digest, jinja_environment, page_file
from hlo_lint.text.source import shown


def render_comparisons(comparisons: Sequence[CostComparison], paths: tuple[str, str]) -> str:
    """The page for the modules of two dumps at `paths`."""
    environment = jinja_environment()
    environment.filters["shown"] = lambda value: shown(str(value))
    style = page_file("page.css")
    page: str = environment.get_template("compare.html").render(
        title=" and ".join(map(shown, paths)),
        paths=paths,
        version=__version__,
        style=style,
        policy=f"default-src 'none'; img-src data:; style-src {digest(style)}",
        comparisons=comparisons,
        shown_rows=shown_rows,
        amount=amount,
        change_of=change_of,
        since_of=since_of,
    )
    return page
