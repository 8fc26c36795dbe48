"""The page: its template, filled with style, scripts, data."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from hlo_lint import __version__
from hlo_lint.dumps.directory import Dump
from hlo_lint.report.html.collect import collect
from hlo_lint.report.html.visible import script
from hlo_lint.report.links import rule_link
from hlo_lint.report.report import Report
from hlo_lint.report.text import hidden_line
from hlo_lint.rules.base import Rule
from hlo_lint.rules.registry import all_rules
from hlo_lint.text.source import shown

if TYPE_CHECKING:
    from jinja2 import Environment
    from markdown_it import MarkdownIt

_PROGRAM = ("graph", "timeline", "elements", "list", "finding", "drawings", "page")
"""The scripts in order: the last runs the functions of the others."""
# They draw the graphs of modules.
GRAPH_LIBRARIES = ("vendor/graphology-0.26.0.min.js", "vendor/sigma-3.0.3.min.js")


def render_html(
    dump: Dump,
    report: Report,
    *,
    title: str = "",
    sources: Sequence[str | Path] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> str:
    """The page for a dump and the report of `lint(dump, resolved=True)`.

    Python lines are shown from files below `sources`; `progress` is called with each step.
    """
    from markdown_it import MarkdownIt

    environment = jinja_environment()
    markdown = MarkdownIt("commonmark", {"html": False}).disable(["link", "image"])
    collected = collect(dump, report, [Path(source) for source in sources], progress)
    style = page_file("page.css")
    # The libraries are a third of a small page.
    libraries = GRAPH_LIBRARIES if collected["graphs"] else ()
    program = ";\n".join(map(page_file, (*libraries, *(f"{name}.js" for name in _PROGRAM))))
    policy = (
        "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"style-src {digest(style)}; script-src {digest(program)}; "
        "require-trusted-types-for 'script'"
    )
    named = {finding["rule"] for finding in collected["index"]["findings"]}
    page: str = environment.get_template("page.html").render(
        title=shown(title) or "HLO",
        version=__version__,
        policy=policy,
        style=style,
        program=program,
        graphs=collected["graphs"],
        differences=collected["differences"],
        stats=report.stats,
        # Resolved findings are infos, but the page counts them apart.
        infos=report.stats["infos"] - len(report.resolved),
        resolved=len(report.resolved),
        hidden=hidden_line(report.hidden) if report.hidden else "",
        allowed=len(report.allowed),
        releases=sorted({m["release"] for m in collected["index"]["modules"] if m["release"]}),
        rules=[
            (rule.name(), rule_link(rule.name()), _html(rule, markdown))
            for rule in all_rules()
            if rule.name() in named
        ],
        index=script(collected["index"]),
        details={number: script(detail) for number, detail in collected["details"].items()},
    )
    return page


def jinja_environment() -> Environment:
    """The templates of this folder, with escaped values."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("hlo_lint.report.html", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _html(rule: Rule, markdown: MarkdownIt) -> str:
    """The page of a rule as HTML, without examples."""
    tokens = markdown.parse(rule.page())
    for token in tokens:
        if token.type.startswith("heading"):
            token.tag = "h4"  # below an h3 of the page
    return str(markdown.renderer.render(tokens, markdown.options, {}))


def page_file(name: str) -> str:
    """The text of a file of this package."""
    return files("hlo_lint.report.html").joinpath(name).read_text("utf-8")


def digest(text: str) -> str:
    """The hash source of a style or a script in a content security policy."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
