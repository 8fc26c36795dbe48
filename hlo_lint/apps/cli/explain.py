"""`hlo-lint explain`: the page of a rule, or the rule for a message of XLA."""

from __future__ import annotations

import re

import click

from hlo_lint.apps.cli import common, completion
from hlo_lint.report.page import render_page
from hlo_lint.rules.registry import all_rules, find_rule
from hlo_lint.text.errors import UsageError
from hlo_lint.text.source import decode, shown


@click.command("explain")
@click.argument("rule", metavar="RULE|MESSAGE|-", shell_complete=completion.rules)
def command(rule: str) -> None:
    """Print the page of a rule, or of the rule for a message of XLA.

    The page says why the RULE matters, with a bad and a good example. A MESSAGE may be a part of a
    message, a source file (`layout_normalization.cc:431`), or a log on standard input (`-`).
    """
    from hlo_lint.report.messages import command_for

    if rule != "-" and _is_name(rule) and command_for(rule) is None:
        click.echo(render_page(find_rule(rule)), nl=False)
        return
    click.echo(_answer(decode(common.standard_input()) if rule == "-" else rule), nl=False)


_is_name = re.compile(r"[\w-]+").fullmatch


def _answer(log: str) -> str:
    """The component, the rules and the command for a message; for a single rule, its page.

    Raises:
        UsageError: nothing is known of it.
    """
    from hlo_lint.dumps.messages import failure_in, find_sources
    from hlo_lint.report.messages import (
        GENERAL,
        KNOWN,
        command_for,
        messages_of,
        origin,
        rules_for,
        rules_for_files,
    )

    rules = rules_for(log, all_rules())
    sources = find_sources(log)
    parts = [origin(sources)] if sources else []
    is_quoted = bool(sources and sources[0].quoted)
    if len(rules) == 1:
        return "\n".join([*parts, f"{_asked(rules[0].name())}\n\n{render_page(rules[0])}"])
    if rules:
        title = f"{len(rules)} rules stand for such messages"
    else:
        answer = command_for(failure_in(log), KNOWN)
        # Words that say less than the file, or than the message that has them.
        if answer and not is_quoted:
            parts = []
        if not parts:
            answer = answer or command_for(log, GENERAL)
        if answer:
            meaning, line = answer
            parts.insert(0, f"{meaning}: {line}\n")
        rules = rules_for_files(log, all_rules())
        title = f"{len(rules)} rule{'s' * (len(rules) > 1)} for messages of such files"
    if rules:
        lines = [f"{title}; {_asked('RULE')} runs one of them:"]
        for rule in rules:
            lines += [f"  {rule.name()}: {rule.summary()}"]
            lines += [f"    XLA: {message.text}" for message in messages_of(rule)]
        parts.append("\n".join(lines) + "\n")
    if parts:
        return "\n".join(parts)
    raise UsageError(
        f"no rule stands for a message in {shown(log[:80])!r}, and no component of XLA is known to "
        "say it: `hlo-lint check DUMP` reads the "
        "dump of the run, XLA_FLAGS='--xla_dump_to=DUMP --xla_dump_hlo_pass_re=.+'"
    )


def _asked(rule: str) -> str:
    return f"`hlo-lint check --select {rule} DUMP`"
