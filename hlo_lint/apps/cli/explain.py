"""`hlo-lint explain`: the page of a rule, or the rule for a message of XLA."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hlo_lint.apps.cli import common, parameters
from hlo_lint.dumps.crash import MAX_LOG_BYTES
from hlo_lint.report.rule_page import render_page
from hlo_lint.rules.registry import find_rule, rule_entries
from hlo_lint.text.errors import UsageError
from hlo_lint.text.source import decode, shown
from hlo_lint.text.stored import read_stored

if TYPE_CHECKING:
    from hlo_lint.dumps.directory import Dump


@click.command("explain")
@click.argument("rule", metavar="RULE|MESSAGE|LOG|-", shell_complete=parameters.complete_rules)
@click.argument("dump", required=False, type=parameters.PATH)
def command(rule: str, dump: Path | None) -> None:
    """Print the page of a rule, or the origin of a message of XLA.

    The page says why the RULE matters, with a bad and a good example. A MESSAGE may be a part of a
    message, a source file (`layout_normalization.cc:431`), a LOG, or a log on standard input (`-`).
    The instructions that it names are looked up in the DUMP.
    """
    from hlo_lint.report.messages import meaning_of

    if dump is not None:
        from hlo_lint.dumps.directory import open_dump

        click.echo(answer(_log(rule), open_dump(dump)), nl=False)
        return
    if rule != "-" and _is_name(rule) and meaning_of(rule) is None:
        click.echo(render_page(find_rule(rule)), nl=False)
        return
    click.echo(answer(_log(rule)), nl=False)


def _log(given: str) -> str:
    """The text of a message, of a log, or of standard input."""
    if given == "-":
        return decode(common.standard_input())
    try:
        is_log = Path(given).is_file()
    except (OSError, ValueError):  # a message may be longer than a path can be
        is_log = False
    return log_text(Path(given)) if is_log else given


def log_text(path: Path) -> str:
    """The text of a log, also of a compressed log.

    Raises:
        DumpError: it cannot be read, or is too large.
    """
    return decode(read_stored(path, MAX_LOG_BYTES))


def _places(log: str, dump: Dump) -> str:
    """The instructions of a dump that a log names, or may be about, with the lines of Python."""
    from hlo_lint.dumps.messages import failure_in
    from hlo_lint.engine.mentions import mentions_in
    from hlo_lint.report.messages import kernels_behind

    lines = []
    compilations = [compilation for compilation in dump if not compilation.is_helper]
    for mention in mentions_in(failure_in(log), compilations, kernels_behind(log)):
        lines.append(shown(f"%{mention.instruction.name}: {mention.path}:{mention.line}"))
        text = mention.instruction.text.strip()
        lines.append(f"  {shown(text[:_WIDTH])}{'…' if len(text) > _WIDTH else ''}")
        if mention.source:
            lines.append(f"  from: {shown(mention.source)}")
        if mention.callers:
            lines.append(f"  called by: {', in '.join(map(shown, mention.callers))}")
        lines += [
            shown(f"  collective of this line: %{added.name}: {added.opcode} {added.type_text}")
            for added in mention.collectives
        ]
    return "\n".join(lines) + "\n" if lines else ""


_WIDTH = 160
# A word in capitals, such as ReshapeIsBitcast, is a part of a message: names of rules have none.
_is_name = re.compile(r"[a-z\d_-]+").fullmatch


def answer(log: str, dump: Dump | None = None, *, has_page: bool = True) -> str:
    """The component, the rules and the command for a message, and the instructions of a dump that
    it names; for a single rule, its page or, without `has_page`, what it is about.

    Raises:
        UsageError: nothing is known of it.
    """
    from hlo_lint.report.messages import (
        meaning_and_sources,
        messages_of,
        origin,
        rules_for,
        rules_for_files,
    )

    rules = rules_for(log, rule_entries())
    meaning, sources = meaning_and_sources(log)
    places = "" if dump is None else _places(log, dump)
    parts = [origin(sources)] if sources else []
    if meaning and not (rules and meaning.is_general):
        parts.insert(0, f"{meaning}\n")
    if len(rules) == 1:
        parts += [places] if places else []
        only = rules[0].load()
        command = only.command if only.command != "check" else f"check --select {only.name()}"
        rest = f"\n{render_page(only)}" if has_page else f"  {only.name()}: {only.summary()}\n"
        return "\n".join([*parts, f"`hlo-lint {command} DUMP`\n{rest}"])
    if rules:
        title = f"{len(rules)} rules stand for such messages"
    else:
        rules = rules_for_files(log, rule_entries())
        title = f"{len(rules)} rule{'s' * (len(rules) > 1)} for messages of such files"
    if rules:
        lines = [f"{title}; `hlo-lint check --select RULE DUMP` runs one of them:"]
        for rule in rules:
            lines += [f"  {rule.name}: {rule.load().summary()}"]
            lines += [f"    XLA: {message.text}" for message in messages_of(rule)]
        parts.append("\n".join(lines) + "\n")
    if places:
        parts.append(places)
    if parts:
        return "\n".join(parts)
    raise UsageError(
        f"no rule stands for a message in {shown(log[:80])!r}, and no component of XLA is known to "
        "say it: `hlo-lint check DUMP` reads the "
        "dump of the run, XLA_FLAGS='--xla_dump_to=DUMP --xla_dump_hlo_pass_re=.+'"
    )
