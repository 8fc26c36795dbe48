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
    """The rules and the command for a message; for a single rule, its page.

    Raises:
        UsageError: no rule and no command stands for it.
    """
    from hlo_lint.report.messages import command_for, messages_of, rules_for

    rules = rules_for(log, all_rules())
    if len(rules) == 1:
        return f"{_asked(rules[0].name())}\n\n{render_page(rules[0])}"
    if rules:
        lines = [f"{len(rules)} rules stand for such messages; {_asked('RULE')} runs one of them:"]
        for rule in rules:
            lines += [f"  {rule.name()}: {rule.summary()}"]
            lines += [f"    XLA: {message.text}" for message in messages_of(rule)]
        return "\n".join(lines) + "\n"
    if answer := command_for(log):
        meaning, line = answer
        return f"{meaning}: {line}\n"
    raise UsageError(
        f"no rule stands for a message in {shown(log[:80])!r}: `hlo-lint check DUMP` reads the "
        "dump of the run, XLA_FLAGS='--xla_dump_to=DUMP --xla_dump_hlo_pass_re=.+'"
    )


def _asked(rule: str) -> str:
    return f"`hlo-lint check --select {rule} DUMP`"
