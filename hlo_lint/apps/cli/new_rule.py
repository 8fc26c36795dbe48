"""`hlo-lint new-rule`: the files that a rule begins with."""

from __future__ import annotations

from pathlib import Path

import click

from hlo_lint.rules.registry import known_names
from hlo_lint.text.errors import UsageError
from hlo_lint.text.files import write

OWN = Path("hlo_lint/rules")
"""The folder of the rules of hlo_lint, from the root of a checkout."""

_RULE = '''\
"""TODO: what the rule is about, in one line."""

from {home} import Bad, Computation, Finding, Findings, Good, Rule, Severity


class {class_name}(Rule):
    """TODO: one sentence that says what is found.

    ## Why
    TODO: what goes wrong, and where XLA stops or what it costs.
    """

    severity = Severity.WARNING
    opcodes = frozenset({{"negate"}})  # TODO: computations without these are not checked
    examples = (
        Bad.entry(
            """
            n = f32[8] negate(f32[8] p)
            ROOT r = f32[8] negate(n)  // error
            """
        ),
        Good.entry("ROOT r = f32[8] negate(f32[8] p)"),
    )

    def check(self, computation: Computation) -> Findings:
        """TODO: each negate of a negate."""
        for negate in computation.with_opcode("negate"):
            operand = negate.producer()
            if operand is not None and operand.opcode == "TODO":
                yield Finding(negate, f"TODO: the fact about %{{operand.name}}", operand=0)
'''
_TEST = """\
from hlo_lint import testing
from {package}.{module} import {class_name}


def test_its_examples() -> None:
    testing.check_examples({class_name})
"""


@click.command("new-rule")
@click.argument("name")
@click.option(
    "--package",
    metavar="DIR",
    help="Write a rule of your own into this package, and its test into tests/.",
)
@click.option(
    "--family",
    metavar="FAMILY",
    help=f"In a checkout of hlo_lint: write it into {OWN}/FAMILY, which may be new.",
)
def command(name: str, package: str | None, family: str | None) -> None:
    """Write the file of a new rule, with an example that fails.

    The example passes when the rule is written.

    NAME is in kebab-case: it completes "allow ...". Existing files are never overwritten.
    """
    if (package is None) == (family is None):
        raise UsageError("new-rule takes either --package or --family")
    module = _identifier(name, "rule")
    if name in known_names():
        raise UsageError(f"{name} exists already: hlo-lint explain {name}")
    class_name = "".join(part.capitalize() for part in name.split("-"))
    if package is not None:
        _identifier(package, "package")
        folder = Path(package)
        files = {
            folder / "__init__.py": "",
            folder / f"{module}.py": _RULE.format(home="hlo_lint", class_name=class_name),
            Path("tests") / f"test_{module}.py": _TEST.format(
                package=package, module=module, class_name=class_name
            ),
        }
        run = f"python -m pytest -q tests/test_{module}.py"
    else:
        if not OWN.is_dir():
            raise UsageError(f"--family is for a checkout of hlo_lint: there is no {OWN} here")
        folder = OWN / _identifier(family or "", "family")
        files = {
            folder / "__init__.py": f'"""Rules about {family}."""\n',
            folder / f"{module}.py": _RULE.format(
                home="hlo_lint.rules.base", class_name=class_name
            ),
        }
        run = f"python -m pytest -q tests/rules/test_examples.py -k {name}"
    rule = folder / f"{module}.py"
    if rule.exists():
        raise UsageError(f"{rule} exists already")
    for path, text in files.items():
        if not path.exists():
            write(path, text)
            click.echo(f"wrote {path}")
    click.echo(f"red until the rule is written: {run}")
    if family is not None:
        click.echo("green, then write its page and the tables: make docs")


def _identifier(name: str, thing: str) -> str:
    """The module name for a name in kebab-case; UsageError if there is none."""
    module = name.replace("-", "_")
    if not module.isidentifier() or module != module.lower():
        raise UsageError(f"{name!r} cannot name a {thing}: use lower case, digits and -")
    return module
