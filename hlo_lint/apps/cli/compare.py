"""`hlo-lint compare`: two runs side by side, by their costs, settings or results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from hlo_lint.analysis.roofline import Device, gpu_device, tpu_device, tpu_of_dump
from hlo_lint.apps.cli import common, parameters
from hlo_lint.apps.cli.printing import print_validations
from hlo_lint.apps.cli.tables import print_table
from hlo_lint.apps.jax.capture.targets import target_of
from hlo_lint.dumps.artefacts.measured import find_measured
from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.directory import open_dump
from hlo_lint.dumps.run_records import RECORDS, OptionDifference, differences
from hlo_lint.engine.cost_comparison import CostComparison, compare_costs
from hlo_lint.report.costs import comparison_as_dict, line_cells, row_cells, shown_rows
from hlo_lint.report.json import as_dict
from hlo_lint.report.text import print_text
from hlo_lint.text.errors import DumpError, UsageError
from hlo_lint.text.phrases import counted
from hlo_lint.text.source import shown

COLUMNS = ("", "A", "B", "change", "since; from")
NUMBERS = (1, 2, 3)
MAX_LINES = 5


@click.command("compare")
@parameters.two_folders
@parameters.module_option
@click.option(
    "--settings",
    "of_settings",
    is_flag=True,
    help="Compare the flags, the configuration and the target of the runs instead.",
)
@click.option(
    "--results",
    "of_results",
    is_flag=True,
    help="Run the modules on the same inputs instead, and compare the results.",
)
@parameters.inputs_option
@parameters.show_inputs_option
@parameters.target_option()
@parameters.all_option
@parameters.output_format("text", "json", "html")
@parameters.color_option
@click.pass_context
def command(
    ctx: click.Context,
    before: Path,
    after: Path,
    module: str | None,
    of_settings: bool,
    of_results: bool,
    inputs: Path | None,
    show_inputs: bool,
    target: str | None,
    everything: bool,
    output_format: str,
) -> None:
    """Compare the costs, the settings or the values of two compilations.

    A and B are dumps of one program, before and after an upgrade, or with other flags. The final
    modules are compared: time, bytes, flops, memory, kernels, custom calls, collectives; with the
    pass after which each difference begins, and the line of Python. Times are estimated for
    --target, or for the chip that the dumps describe.

    With --results the final modules run on the CPU, on made-up inputs or those of --inputs; where
    they cannot run, the modules before optimization do.

    Exit status: 0 the same costs, settings or values, 1 different ones, 2 wrong use.
    """
    if of_settings and of_results:
        raise UsageError("give one of --settings and --results")
    if (inputs is not None or show_inputs) and not of_results:
        raise UsageError("--inputs and --show-inputs go with --results")
    is_other = of_settings or of_results
    if is_other and (target or everything or output_format == "html"):
        option = "--settings" if of_settings else "--results"
        raise UsageError(f"{option} goes with --module and --output-format json alone")
    if of_results:
        pairs, as_json = _pairs(before, after, module), output_format == "json"
        differ = _compare_results(pairs, inputs, as_json=as_json, show_inputs=show_inputs)
        ctx.exit(1 if differ else 0)
    if of_settings:
        different = _compare_settings(before, after, module, as_json=output_format == "json")
        ctx.exit(1 if different else 0)
    pairs = _pairs(before, after, module)
    measured = find_measured(before), find_measured(after)
    named = _named_device(target) if target else None
    with common.status_line() as note:
        comparisons = []
        for ours, theirs in pairs:
            note(f"comparing {ours.title}")
            device = named or _device_of(theirs) or _device_of(ours)
            comparisons.append(compare_costs(ours, theirs, device, measured))
    comparisons.sort(key=lambda comparison: -comparison.weight)
    if output_format == "json":
        modules = [comparison_as_dict(comparison) for comparison in comparisons]
        common.print_json(modules=modules)
    elif output_format == "html":
        from hlo_lint.report.html.compare import render_comparisons

        page = render_comparisons(comparisons, (str(before), str(after)))
        common.write_output(page.encode(), None)
    else:
        _show(comparisons, everything)
    ctx.exit(0 if all(comparison.same for comparison in comparisons) else 1)


def _compare_results(
    pairs: Sequence[tuple[Compilation, Compilation]],
    inputs: Path | None,
    *,
    as_json: bool,
    show_inputs: bool,
) -> bool:
    """Print whether modules compute different values on the same inputs; True if some do.

    Raises:
        UsageError: the inputs do not fit, or there are several modules.
        DumpError: no module was compared.
    """
    from hlo_lint.apps.validation import compare_values
    from hlo_lint.engine.values.findings import diagnostic_of

    if inputs is not None and len(pairs) != 1:
        raise UsageError("the inputs are for a single module: name it with --module")
    with common.status_line() as note:
        compared = [compare_values(*pair, inputs=inputs, note=note) for pair in pairs]
    findings = [diagnostic_of(change) for result in compared for change in result.changes]
    if as_json:
        modules = [
            {
                "modules": result.title,
                "outcome": result.steps[-1].comparison.outcome.value,
                "notes": result.notes,
            }
            for result in compared
        ]
        common.print_json(modules=modules, findings=[as_dict(finding) for finding in findings])
    else:
        if findings:
            print_text(common.console(), findings)
        print_validations(compared, show_inputs=show_inputs)
    if not any(result.compared for result in compared):
        raise DumpError("nothing compared: no module of both runs here")
    return bool(findings)


def _pairs(before: Path, after: Path, module: str | None) -> list[tuple[Compilation, Compilation]]:
    """The modules of equal names; two files that no compiler named are a pair."""
    if before.is_file() and after.is_file():
        sides = [open_dump(path).compilations for path in (before, after)]
        for path, compilations in zip((before, after), sides, strict=True):
            if not compilations:
                raise UsageError(f"{path} holds no HLO")
        if all(len(compilations) == len(compilations[0].dumps) == 1 for compilations in sides):
            return [(sides[0][0], sides[1][0])]
    return common.pairs_of(before, after, module)


def _named_device(target: str) -> Device:
    chip = target_of(target)
    device = tpu_device(target.lower().partition(":")[0])
    if device is None and not chip.is_tpu:
        device = gpu_device(chip.description)
    if device is None:
        raise UsageError(f"the rates of {target} are not known; there are h100, h200, v4, v5e, v5p")
    return device


def _device_of(compilation: Compilation) -> Device | None:
    text = compilation.artefact(".gpu_target_config.pbtxt")
    if text is not None:
        return gpu_device(text)
    text = compilation.artefact(".target_arguments.txt")
    return None if text is None else tpu_of_dump(text)


def _show(comparisons: Sequence[CostComparison], everything: bool) -> None:
    differing = [comparison for comparison in comparisons if not comparison.same]
    same = [comparison for comparison in comparisons if comparison.same]
    listed = comparisons if everything else differing
    shared = [
        note
        for note in (listed[0].notes if listed else ())
        if all(note in comparison.notes for comparison in listed)
    ]
    for number, comparison in enumerate(listed):
        if number:
            click.echo()
        _show_comparison(comparison, everything)
        _show_notes(note for note in comparison.notes if note not in shared)
    _show_notes(shared)
    if same and not everything:
        names = ", ".join(shown(comparison.before.title) for comparison in same[:4])
        more = "" if len(same) <= 4 else f" and {len(same) - 4} more"
        costs = "costs" if len(same) == 1 else "cost"
        click.echo(f"{counted(len(same), 'module')} {costs} the same in A and B: {names}{more}")


def _show_comparison(comparison: CostComparison, everything: bool) -> None:
    click.echo(click.style(shown(comparison.after.title), bold=True))
    rows = shown_rows(comparison, everything=everything)
    cells = [tuple(map(shown, row_cells(row))) for row in rows]
    dim = [number for number, row in enumerate(rows, 1) if not row.change]
    print_table([COLUMNS, *cells], right=NUMBERS, dim=dim)
    if left := sum(bool(row.change) for row in comparison.rows if row not in rows):
        click.echo(f"and {left} more quantities (--all)")
    lines = comparison.lines if everything else comparison.lines[:MAX_LINES]
    if lines:
        click.echo()
        head = (f"{comparison.line_quantity} by line", *COLUMNS[1:4], "since")
        print_table([head, *(tuple(map(shown, line_cells(row))) for row in lines)], right=NUMBERS)
        if left := len(comparison.lines) - len(lines):
            click.echo(f"and {counted(left, 'line')} more (--all)")


def _show_notes(notes: Iterable[str]) -> None:
    for note in notes:
        click.echo(f"note: {shown(note)}")


def _compare_settings(before: Path, after: Path, module: str | None, *, as_json: bool) -> bool:
    """Print the settings in which two runs differ; True if there are any."""
    by_difference: dict[OptionDifference, list[str]] = {}
    for ours, theirs in _runs_with_records(before, after, module):
        for difference in differences(ours, theirs):
            by_difference.setdefault(difference, []).append(ours.title)
    if as_json:
        rows = [
            {**difference._asdict(), "modules": modules}
            for difference, modules in by_difference.items()
        ]
        common.print_json(differences=rows)
    else:
        _show_settings(by_difference)
    return bool(by_difference)


def _runs_with_records(
    before: Path, after: Path, module: str | None
) -> list[tuple[Compilation, Compilation]]:
    """The modules of equal names in both directories; runs without recorded settings are left out.

    Raises:
        DumpError: a directory has no such record.
        UsageError: no module is in both.
    """
    sides: list[dict[str, list[Compilation]]] = []
    for path in (before, after):
        by_name: dict[str, list[Compilation]] = {}
        for name, compilations in common.runs_by_module(path, module).items():
            for compilation in compilations:
                if any(map(compilation.artefact_path, RECORDS)):
                    by_name.setdefault(name, []).append(compilation)
        if not by_name:
            raise DumpError(f"{path}: no record of flags, configuration or target is in it")
        sides.append(by_name)
    return common.paired(sides, (before, after))


def _show_settings(by_difference: dict[OptionDifference, list[str]]) -> None:
    if not by_difference:
        click.echo("the same")
    for difference, modules in by_difference.items():
        where = "" if len(modules) == 1 else f" ({len(modules)} modules)"
        click.echo(click.style(f"{difference.record}: {shown(difference.name)}{where}", bold=True))
        for mark, values, colour in (
            ("-", difference.before, "red"),
            ("+", difference.after, "green"),
        ):
            value = ", ".join(map(shown, values)) if values else "not set"
            click.echo(click.style(f"  {mark} {value}", fg=colour))
