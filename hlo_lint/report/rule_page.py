"""The page of a rule, as `explain` prints it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from difflib import SequenceMatcher

from hlo_lint.dumps.names import parse_name
from hlo_lint.rules.base import Bad, Example, Rule, without_marks


def render_page(rule: Rule) -> str:
    """The page as Markdown: the rule's docstring, options and examples."""
    parts = [f"# {rule.name()}", rule.page()]
    if rule.precondition is not None:
        demand = rule.precondition
        guards = ", ".join(f"`{name}`" for name in demand.established_by)
        unsure = "nothing is reported" if demand.only_if_certain else "it is a warning"
        parts.append(
            f"## When it is an error\n\nIt is an error if `{demand.demanded_by}` comes next, with "
            f"none of {guards} before it. If the dump does not show the next pass, {unsure}; "
            f"`--before {demand.demanded_by}` states it."
        )
    if options := rule.options():
        lines = [
            f"- `{name} = {json.dumps(option.default)}` ({option.expected}): {option.doc}"
            for name, option in options.items()
        ]
        parts.append(
            f"## Options\n\nIn `[tool.hlo_lint.rules.{rule.name()}]`:\n\n" + "\n".join(lines)
        )
    if rule.evidence:
        reports = [f"Public reports: {rule.reports}."] if rule.reports else []
        lines = [f"- {piece}" for piece in (*rule.evidence, *reports)]
        parts.append("## Evidence\n\n" + "\n".join(lines))
    for example in rule.examples:
        title = "## Bad" if isinstance(example, Bad) else "## Good"
        parts.append(f"{title}\n\n{_text_of(example)}")
        if isinstance(example, Bad) and example.fixed:
            given = [f"`{name} = {json.dumps(value)}`" for name, value in example.options.items()]
            title = f"Fixed, with {', '.join(given)}" if given else "Fixed"
            parts.append(f"{title}:\n\n```\n{example.fixed_source}```")
    return "\n\n".join(parts) + "\n"


def _text_of(example: Example) -> str:
    """The example and the files beside it; the step of a pass as the lines that it changed."""
    names = [parse_name(name) for name in (example.file, *example.beside)]
    steps = [name for name in names if name is not None and name.step is not None]
    if len(steps) == len(names) == 2:
        (before,) = example.others.values()
        changed = "\n".join(_changed_lines(before, example.shown))
        return f"`{steps[0].after}` of `{steps[0].pipeline}`:\n\n```diff\n{changed}\n```"
    named = f"`{example.file}`:\n\n" if example.file else ""
    parts = [f"{named}```\n{example.shown}\n```"]
    others = example.others.items()
    parts += [f"Beside it `{name}`:\n\n```\n{text}\n```" for name, text in others]
    return "\n\n".join(parts)


def _changed_lines(before: str, after: str) -> Iterator[str]:
    """All lines: removed ones with `-`, added ones with `+`."""
    old, new = before.split("\n"), after.split("\n")
    matcher = SequenceMatcher(None, old, without_marks(after).split("\n"), autojunk=False)
    for tag, first, last, begin, end in matcher.get_opcodes():
        if tag != "equal":
            yield from (f"-{line}" for line in old[first:last])
        sign = " " if tag == "equal" else "+"
        yield from (f"{sign}{line}".rstrip() for line in new[begin:end])
