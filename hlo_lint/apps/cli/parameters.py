"""Parameters that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hlo_lint.apps.cli.common import SharedOptions, choose_color
from hlo_lint.apps.settings.settings import LEVELS, SEVERITIES
from hlo_lint.apps.settings.settings import MAX_COUNT as MAX_COUNT
from hlo_lint.report.formats import FORMATS
from hlo_lint.text.source import whole_number

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Command = TypeVar("Command", bound=Callable[..., object])

PATH = click.Path(path_type=Path)
_ANY_PATH = click.Path(readable=False)
"""A path that a shell completes; also `-`, and paths that the command itself refuses."""


def output_option(name: str = "out", **settings: Any) -> Callable[[Any], Any]:
    """`--output`, the file or folder that a command writes; the command gets it by a name."""
    return click.option(
        "-o",
        "--output",
        name,
        **{"type": PATH, "metavar": "PATH", "help": "Write the result to this path.", **settings},
    )


def two_folders(command: Callable[..., object]) -> Callable[..., object]:
    """The arguments A and B, the dumps of two runs; the command gets `before` and `after`."""
    after = click.argument("after", metavar="B", type=PATH)
    return click.argument("before", metavar="A", type=PATH)(after(command))


paths_argument = click.argument("paths", nargs=-1, required=True, metavar="PATH…", type=_ANY_PATH)


def _or_dump(_: click.Context, __: click.Parameter, paths: tuple[str, ...]) -> tuple[str, ...]:
    """The paths; by default the folder that `XLA_FLAGS` dumps to, else the working directory."""
    if paths:
        return paths
    flags = os.environ.get("XLA_FLAGS", "")
    if "--xla_dump_to=" not in flags:
        return (".",)
    from hlo_lint.apps.cli.xla_flags import dumped_to

    return (dumped_to(flags) or ".",)


dump_argument = click.argument(
    "paths", nargs=-1, metavar="[PATH…]", type=_ANY_PATH, callback=_or_dump
)
module_option = click.option(
    "--module",
    metavar="NAME",
    help="Only the compilations of this module: jit_f, or module_0001.jit_f for one of several.",
)


def leave_plugins_out(ctx: click.Context, _: click.Parameter | None, wanted: bool) -> bool:
    """Set the environment variable, so that the worker processes of `--jobs` see it."""
    from hlo_lint.rules.plugins import ISOLATED, is_isolated

    if wanted and not is_isolated():
        os.environ[ISOLATED] = "1"
        ctx.call_on_close(lambda: os.environ.pop(ISOLATED))
    return wanted


_FILE = (
    click.option(
        "--config", metavar="FILE", help="Read this settings file instead of searching for one."
    ),
    click.option(
        "--isolated",
        is_flag=True,
        callback=leave_plugins_out,
        help="Read no settings file, and run no rules of other packages.",
    ),
)


def complete_rules(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    """The names of rules and families that a shell offers."""
    from hlo_lint.rules.registry import known_names

    return sorted(name for name in known_names() if name.startswith(begun))


def _complete_passes(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    from hlo_lint.dumps.pass_lists import passes_and_pipelines

    return sorted(name for name in passes_and_pipelines() if name.startswith(begun))


def _complete_targets(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from hlo_lint.apps.jax.capture.targets import TPUS, target_names

    chips = [name for name in (*target_names(), *TPUS) if name.startswith(begun)]
    return [*map(CompletionItem, chips)] or [CompletionItem(begun, type="file")]


def _rules_option(flag: str, text: str) -> Callable[[Command], Command]:
    return click.option(
        flag,
        multiple=True,
        metavar="RULE",
        shell_complete=complete_rules,
        help=f"{text} (repeatable).",
    )


RULES = (
    _rules_option("--select", "Run only these rules or families"),
    _rules_option("--ignore", "Do not run these rules or families"),
    _rules_option("--extend-select", "Also run these rules or families"),
    click.option(
        "--severity",
        multiple=True,
        metavar="RULE=LEVEL",
        help=f"The severity of a rule or a family: {', '.join(LEVELS)} (repeatable).",
    ),
    click.option(
        "--before",
        metavar="PASS",
        shell_complete=_complete_passes,
        help="The pass that comes next, if the dump does not say: layout_normalization, autotuner.",
    ),
    click.option(
        "--stage",
        metavar="STAGE",
        help="The place in the pipeline of texts that do not state theirs, 'gpu post-layout': gpu, "
        "cpu, tpu, pre-layout, post-layout, normalized, scheduled, final, a pass or a pipeline "
        "that has run, FIELD=VALUE.",
    ),
    click.option(
        "--baseline",
        type=PATH,
        metavar="FILE",
        help="Do not report the findings that this file lists.",
    ),
    click.option(
        "--no-cache",
        is_flag=True,
        help="Check every file, also those whose findings are known from an earlier run.",
    ),
)
"""Options of commands that run rules."""
FINDINGS = (
    click.option(
        "--min-severity",
        type=click.Choice(SEVERITIES),
        help="The least severe findings that are reported: by default errors and warnings; less "
        "severe ones are counted.",
    ),
)
"""Options of commands that report findings."""
FILES = (
    click.option(
        "--exclude",
        multiple=True,
        metavar="GLOB",
        help="Leave these files and folders out (repeatable).",
    ),
    click.option(
        "--force-exclude", is_flag=True, help="Apply --exclude to files given by name, too."
    ),
)
"""Options of commands that take several files."""
MODULE = (module_option,)
ALLOW_EMPTY = (
    click.option(
        "--allow-empty",
        is_flag=True,
        help="Accept a PATH that has no HLO to check; by default the exit status is then 2.",
    ),
)
STDIN = (
    click.option(
        "--stdin-filename", metavar="NAME", help="The file name for the text on standard input."
    ),
)
INPUT = (
    *STDIN,
    click.option(
        "--sniff",
        is_flag=True,
        help="Skip files that hold no HLO, whatever their names; --verbose lists them.",
    ),
    *ALLOW_EMPTY,
)
"""Options of commands that check whatever files they are given."""


def seconds(least: float) -> click.FloatRange:
    """The type of an option that takes a time."""
    return _Seconds(least, MAX_COUNT)


def seconds_option(**settings: Any) -> Callable[[Any], Any]:
    """`--seconds`, the time for comparing values."""
    return click.option(
        "--seconds",
        type=seconds(1),
        metavar="SECONDS",
        help="Time for comparing values, for all programs together.",
        **settings,
    )


class _Seconds(click.FloatRange):
    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if number != number:
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


color_option = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    expose_value=False,
    callback=choose_color,
    help="When to use colours; auto obeys NO_COLOR, FORCE_COLOR and the terminal.",
)


def output_format(*formats: str, **settings: Any) -> Callable[[Any], Any]:
    """`--output-format` with the given formats; the first is the default."""
    return click.option(
        "--output-format",
        type=click.Choice(formats),
        help="The format of the output; by default that of the settings where findings are "
        "reported, else text.",
        **{"default": formats[0], **settings},
    )


findings_format = output_format(*FORMATS, default=None, envvar="HLO_LINT_OUTPUT_FORMAT")
"""`--output-format` of commands that report findings; None stands for that of the settings."""
report_output = output_option("output", type=click.Path(path_type=Path, dir_okay=False))
"""`--output` of commands that print a report."""
quiet_option = click.option(
    "-q", "--quiet", is_flag=True, help="Print only the result, without counts and notes."
)
all_option = click.option(
    "--all", "everything", is_flag=True, help="Print everything, however long."
)
verbose_option = click.option(
    "-v", "--verbose", is_flag=True, help="Print each finding, and each file that was skipped."
)
exit_zero_option = click.option(
    "--exit-zero", is_flag=True, help="Exit with 0 even if there are findings."
)
resolved_option = click.option(
    "--resolved", is_flag=True, help="Also report findings that a later pass resolved."
)
seed_option = click.option(
    "--seed",
    type=click.IntRange(0, MAX_COUNT),
    default=0,
    show_default=True,
    help="The seed of what is drawn at random.",
)
inputs_option = click.option(
    "--inputs",
    type=PATH,
    metavar="FILE",
    help="The values of parameters: a .npz file, by name, number or jax's path (of a tuple's "
    "element as name.0), or a snapshot that XLA wrote.",
)
show_inputs_option = click.option(
    "--show-inputs", is_flag=True, help="Print the inputs, given or made up."
)
passes_option = click.option(
    "--passes", default="", metavar="PASS,…", help="Only these passes of XLA."
)


def _repeatable(multiple: bool) -> str:
    return " (repeatable)" if multiple else ""


def release_option(name: str, *, multiple: bool = False) -> Callable[[Any], Any]:
    """`--jax`, a release of jax, or several."""
    return click.option(
        "--jax",
        name,
        multiple=multiple,
        metavar="RELEASE",
        help="The release of jax to ask, in an environment of its own: 0.11.2"
        f"{_repeatable(multiple)}.",
    )


def python_option(name: str, *, multiple: bool = False) -> Callable[[Any], Any]:
    """`--python`, a Python, or several."""
    return click.option(
        "--python",
        name,
        multiple=multiple,
        metavar="PATH",
        help=f"The Python whose jax to ask{_repeatable(multiple)}.",
    )


def target_option(
    name: str = "target", *, multiple: bool = False, **settings: Any
) -> Callable[[Any], Any]:
    """`--target`, a chip, or several."""
    return click.option(
        "--target",
        name,
        multiple=multiple,
        metavar="CHIP",
        shell_complete=_complete_targets,
        help="The chip, present or not: h100, h200, the path of a gpu_target_config.pbtxt from a "
        f"dump, or a TPU: v5e, v5p, v6e{_repeatable(multiple)}.",
        **settings,
    )


def _processes(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """The number of processes; 0 for `auto`, None if the option is not given."""
    if value is None:
        return None
    if value == "auto":
        return 0
    number = whole_number(value)
    if number is not None and 1 <= number <= MAX_COUNT:
        return number
    raise click.BadParameter(f"{value[:60]!r} is neither auto nor a whole number from 1")


jobs_option = click.option(
    "-j",
    "--jobs",
    metavar="N|auto",
    callback=_processes,
    help="Number of processes; auto, the default, chooses by the work.",
)


report_options = (
    findings_format,
    report_output,
    click.option(
        "--statistics", is_flag=True, help="Print the number of findings of each rule instead."
    ),
)
"""The options that say how a report is printed, and where."""


def gathered(
    name: str, of: Any, options: Sequence[Callable[[Any], Any]] = ()
) -> Callable[[Command], Callable[..., object]]:
    """Adds options; the command gets those in a named tuple as an argument of that type."""

    def decorated(command: Command) -> Callable[..., object]:
        @wraps(command)
        def collected(*arguments: object, **values: Any) -> object:
            given = {field: values.pop(field) for field in of._fields if field in values}
            return command(*arguments, **{name: of(**given)}, **values)

        for option in reversed(options):
            collected = option(collected)
        return collected

    return decorated


def shared_options(
    *groups: Sequence[Callable[[Any], Any]],
) -> Callable[[Command], Callable[..., object]]:
    """Adds options, and those that name the settings file; the command gets them as `shared`."""
    return gathered("shared", SharedOptions, [*chain(*groups), *_FILE])


check_options = shared_options(RULES, FINDINGS, FILES, MODULE, INPUT)
"""Adds the options of commands that check paths and report findings."""
