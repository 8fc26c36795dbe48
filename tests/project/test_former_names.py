"""Nothing that version 0.1.0 had is lost: modules, names, commands, options, rules, formats, keys.

A module or a name that moved still imports, for one release, and says where it is now.
"""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from importlib import import_module

import click
import pytest

import hlo_lint
from hlo_lint.apps.cli.main import cli
from hlo_lint.apps.moved import MODULES, MOVED
from hlo_lint.apps.settings.keys import KEYS as KEYS_OF_TODAY
from hlo_lint.report.formats import FORMATS as FORMATS_OF_TODAY
from hlo_lint.rules.registry import all_rules
from tests.conftest import ROOT

# What the pages of 0.1.0 imported, with a name from each.
STAY = {
    "hlo_lint.live": "install",
    "hlo_lint.match": "find",
    "hlo_lint.report.formats": "render",
    "hlo_lint.report.html.page": "render_html",
    "hlo_lint.testing": "check_examples",
}
GONE = {
    "hlo_lint.capture.jit": "FindingsError",
    "hlo_lint.compare": "__doc__",
    "hlo_lint.compare.bisection": "bisect",
    "hlo_lint.compare.difference": "diff",
    "hlo_lint.errors": "HloSyntaxError",
    "hlo_lint.passes": "passes",
    "hlo_lint.shape": "parse_shape",
    "hlo_lint.strict": "__doc__",
    "hlo_lint.syntax.attributes": "read_attribute",
}
NAMES = """
Allowance Allowed AutotuningRuns Bad BeforeAutotuner Capture CaptureError Compilation Computation
ConfigError Diagnostic Dump DumpError DumpFolder Edit FinalModule Finding Findings FindingsError Fix
FixResult Form Good HloLintError HloSyntaxError Instruction Module Option Report Rewrite Rule
RuleError Safety Settings Severity Span Stage UsageError capture_jit check_jit compile_for emit fix
lint load_settings open_dump parse parse_all
""".split()
"""`hlo_lint.__all__` of 0.1.0."""
SHARED = """
--baseline --before --config --exclude --extend-ignore --extend-select --force-exclude --ignore
--isolated --select --severity --sniff --stdin-filename
"""

OPTIONS = """
baseline: SHARED --output --prune --update -o
bisect: --all --json --module
blame: --before --config --isolated --json
capture: --backend --baseline --before --config --extend-ignore --extend-select --ignore
    --isolated --jax --keep --option --output-format --python --select --severity --shape
    --target
check: SHARED --color --cured --exit-zero --jobs --output --output-format --quiet --show-files
    --statistics --verbose --watch -j -o -q -v
config: SHARED --schema --show
config-diff: --json
diff: --all --in --json --metadata --module
explain:
fix: SHARED --color --diff --exit-non-zero-on-fix --exit-zero --form --no-unsafe-fixes --output
    --quiet --unsafe-fixes -o -q
match: --all --explain --json
passes: --changed --json --module
payload:
report: SHARED --output --source -o
rules:
server:
"""
"""The commands of 0.1.0, with their options."""
RULES = """
autotuned-aliases-differ autotuning-runs-early fragile-autotuner-winner
gemm-breaks-on-backend-flip gemm-slows-on-backend-flip kernel-misses-result unreadable-text
unused-allowance collective-not-outermost constraint-ignored gemm-layout-unsupported
layout-changed normal-form-lost reduce-inputs-differ reduce-off-normal-form reshape-moves-data
reshape-runs-as-kernel scatter-off-normal-form transpose-off-normal-form
asynchronous-buffer-reused custom-call-overlaps-operand host-memory-leak start-without-done
store-overtakes-copy subbyte-size-missing call-graph-not-flat change-without-effect
compilation-died incomplete-dump premature-operation required-pass-order silent-change
unsupported-at-emission costly-transposes needless-transpose tma-descriptor-refused bad-aliasing
bad-bitcast bad-buffer bad-channel bad-collective bad-comparison bad-constant bad-copy
bad-custom-call bad-feed bad-output-aliasing bad-random-numbers bad-reduction bad-replica-groups
bad-result-accuracy bad-scaled-dot bad-scan bad-schedule bad-send-recv bad-sharding bad-sort
bad-source-target-pairs broken-async broken-call broken-conditional broken-fusion
broken-structure broken-while entry-layout-disagrees invalid-layout mixed-float-operands
origin-disagrees send-recv-deadlock unordered-broadcast wrong-result-shape
""".split()
"""The rules of 0.1.0."""
FAMILIES = """
autotuning form layout memory pipeline speed tma verifier
""".split()
"""The families of 0.1.0."""
FORMATS = """
text concise json json-lines sarif github gitlab junit rdjson markdown
""".split()
"""The output formats of 0.1.0."""
KEYS = """
select ignore extend-select extend-ignore per-path-ignores severity rules before exclude
force-exclude baseline allow jobs output-format unsafe-fixes
""".split()
"""The keys of a settings file of 0.1.0."""
RULE_OPTIONS = """
fragile-autotuner-winner.lasting-lead reshape-runs-as-kernel.min-bytes
costly-transposes.min-bytes needless-transpose.min-bytes
""".split()
"""The options of rules of 0.1.0."""


@pytest.mark.parametrize(("module", "name"), STAY.items(), ids=STAY)
def test_a_public_module_imports_without_a_warning(module: str, name: str) -> None:
    assert imported(module, name) == ""


@pytest.mark.parametrize(("module", "name"), GONE.items(), ids=GONE)
def test_a_moved_module_imports_with_a_warning(module: str, name: str) -> None:
    old = next(old for old in MOVED if module == old or module.startswith(f"{old}."))
    assert f"{module} has moved to {MOVED[old]}" in imported(module, name)


@pytest.mark.parametrize("old", [*MODULES, *MOVED])
def test_both_names_are_one_module(old: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert import_module(old) is import_module((MODULES | MOVED)[old])


def test_a_submodule_under_its_former_name_is_the_same_module() -> None:
    """A second copy would have classes of its own, of which nothing is an instance."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        former = import_module("hlo_lint.compare.difference")
    assert former is import_module("hlo_lint.analysis.diff.difference")


def test_no_folder_has_a_former_name() -> None:
    folders = {
        path.name for path in (ROOT / "hlo_lint").iterdir() if (path / "__init__.py").exists()
    }
    assert folders | {"__main__"} == hlo_lint._OWN


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_the_package_is_there(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert getattr(hlo_lint, name)


@pytest.mark.parametrize("line", re.split(r"\n(?!    )", OPTIONS.strip()))
def test_a_command_still_takes_its_options(line: str) -> None:
    command, _, before = line.partition(":")
    found = cli.get_command(click.Context(cli), command)
    assert found is not None
    options = {name for param in found.params for name in (*param.opts, *param.secondary_opts)}
    assert set(before.replace("SHARED", SHARED).split()) <= options


def test_every_rule_family_option_format_and_key_is_still_there() -> None:
    rules = {rule.name(): rule for rule in all_rules()}
    assert set(RULES) <= rules.keys()
    assert set(FAMILIES) <= {rule.family() for rule in rules.values()}
    assert set(RULE_OPTIONS) <= {f"{name}.{o}" for name in rules for o in rules[name].options()}
    assert set(FORMATS) <= FORMATS_OF_TODAY.keys()
    assert set(KEYS) <= {key.name for key in KEYS_OF_TODAY}


def imported(module: str, name: str) -> str:
    """The warnings of an import in a process of its own, where no other has imported it."""
    code = f"from {module} import {name}"
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", code], capture_output=True, text=True, check=True
    )
    return done.stderr
