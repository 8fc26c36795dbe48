"""`hlo-lint fix`: applies the fixes of findings."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from difflib import unified_diff
from pathlib import Path

import click

from hlo_lint.apps.cli import common, parameters
from hlo_lint.apps.fixes import FixResult
from hlo_lint.apps.fixes import fix as fix_all
from hlo_lint.dumps.directory import FIXED, Dump, fixed_in
from hlo_lint.dumps.names import parse_name
from hlo_lint.report.text import print_report
from hlo_lint.text.errors import DumpError, UsageError
from hlo_lint.text.files import (
    copy_file,
    is_proto,
    mirrored,
    refuse_stream,
    remove_left_over,
    write,
)
from hlo_lint.text.phrases import counted
from hlo_lint.text.source import encode, shown, shown_lines
from hlo_lint.text.stored import COMPRESSED, archive_of


@click.command("fix")
@parameters.paths_argument
@parameters.check_options
@click.option("--diff", is_flag=True, help="Print the fixes as a patch, and write nothing.")
@click.option(
    "--unsafe-fixes/--no-unsafe-fixes",
    default=None,
    help="Also apply fixes that may change a value or the cost.",
)
@click.option(
    "--form",
    type=click.Choice(["copy", "transpose"]),
    help="The spelling of a move of bytes: by default copy where layout_normalization comes next, "
    "else transpose.",
)
@parameters.output_option()
@click.option("--in-place", is_flag=True, help="Also edit the files of a dump directory.")
@click.option(
    "--verify",
    is_flag=True,
    help="Prove each fix, print the proof, and apply only proven fixes as safe.",
)
@click.option("--fix-only", is_flag=True, help="Do not report the remaining findings.")
@parameters.exit_zero_option
@click.option("--exit-non-zero-on-fix", is_flag=True, help="Exit with 1 if anything was fixed.")
@parameters.quiet_option
@parameters.verbose_option
@parameters.color_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    paths: tuple[str, ...],
    diff: bool,
    form: str | None,
    out: Path | None,
    in_place: bool,
    unsafe_fixes: bool | None,
    verify: bool,
    fix_only: bool,
    exit_zero: bool,
    exit_non_zero_on_fix: bool,
    quiet: bool,
    verbose: bool,
    shared: common.SharedOptions,
) -> None:
    """Apply all safe fixes: to files in place, to dumps in a copy.

    Nothing else in a file changes. `-o` names the fixed file, or the folder of fixed copies. A
    directory that XLA dumped is evidence of a run: it is copied, or edited with `--in-place`.

    Exit status: 0 if no error or warning remains, 1 otherwise.
    """
    if out is None and not diff and "-" not in paths:
        for path in paths:
            refuse_stream(Path(path))  # before it is read: a FIFO is waited for
    settings = common.settings_of(paths, shared).overridden(unsafe_fixes=unsafe_fixes)
    dump = common.open_given(paths, settings, shared)
    if out is None and not diff and not in_place:
        _refuse_dump_directories(paths, dump)
    with common.progress_bar(dump, wanted=not quiet) as progress:
        result = fix_all(dump, settings=settings, form=form, verify=verify, progress=progress)
    errors = common.console(stderr=True)
    if not quiet:
        for verdict in result.verdicts:
            errors.print(f"{verdict}", highlight=False, markup=False, soft_wrap=True)
    if diff:
        _write_diff(result)
    elif "-" in paths or str(out) == "-":
        common.write_output(encode(result.text), out)
    else:
        for folder in {file.path.parent for compilation in dump for file in compilation.dumps}:
            remove_left_over(folder)  # of a run that was killed
        written = list(_write_fixed(result, [Path(path) for path in paths], out))
        if not quiet and (written or not fix_only):
            # A fix may be there that is unsafe, or was refused.
            outcome = "nothing fixed" if any(at.fix for at in result.findings) else "nothing to fix"
            if result.edits:
                where = f"{written[0]}" if len(written) == 1 else f"{len(written)} files"
                outcome = f"fixed {counted(len(result.fixed), 'finding')} in {shown(where)}"
            errors.print(outcome, highlight=False, markup=False, soft_wrap=True)
    if not fix_only:
        remaining = common.without_errors(result.remaining, shared)
        print_report(errors, remaining, quiet=quiet, verbose=verbose)
    if result.edits and not (fix_only or quiet or diff):
        from hlo_lint.apps.cli.advice import advice

        for line in advice(result.fixed, dump):
            errors.print(line, highlight=False, markup=False, soft_wrap=True)
    if exit_non_zero_on_fix and result.edits:
        ctx.exit(1)
    ctx.exit(common.exit_status(result.remaining, shared, exit_zero=exit_zero or fix_only))


def _refuse_dump_directories(paths: Sequence[str], dump: Dump) -> None:
    folders = [Path(path) for path in paths if Path(path).is_dir()]
    steps = [step.path for compilation in dump for step in compilation.steps] if folders else []
    for folder in folders:
        if any(path.is_relative_to(folder) for path in steps):
            name = shown(str(folder))
            raise UsageError(
                f"{name} is a dump directory: `hlo-lint fix {name} -o FIXED` writes a fixed copy; "
                "--in-place edits the dump itself"
            )


def _write_diff(result: FixResult) -> None:
    """Print the fixes as `diff -u` does."""
    for file in result.files:
        name = shown(str(file.path))
        # Only a line feed ends a line, as for `diff` and `patch`.
        before, after = (re.findall(r"[^\n]*\n|[^\n]+", text) for text in (file.before, file.after))
        for line in unified_diff(before, after, name, name, n=2):
            end = "" if line.endswith("\n") else "\n\\ No newline at end of file\n"
            if sys.stdout.isatty():
                line = shown_lines(line)
            sys.stdout.buffer.write(encode(line + end))
        sys.stdout.buffer.flush()


def _write_fixed(result: FixResult, inputs: Sequence[Path], out: Path | None) -> Iterator[Path]:
    """Write the fixed files: in place, or to `out`, and yield the path of each.

    For one input file `out` is a file, else a folder that mirrors the inputs; a fixed protocol
    buffer is written there as text.

    Raises:
        DumpError: a file cannot be written, or two would be the same file; nothing is written then.
    """
    changed = {file.path: file for file in result.files if file.path is not None}
    for path, file in changed.items():
        if file.edits and (archive_of(path) or path.name.endswith(COMPRESSED)):
            raise DumpError(f"{path}: fix does not write compressed files: unpack it first")
    if out is None:
        for path, file in changed.items():
            if file.edits and is_proto(path.name):
                raise DumpError(f"{path}: a protocol buffer cannot be fixed in place; give -o OUT")
        targets = {path: path for path, file in changed.items() if file.edits}
    elif len(inputs) == 1 and inputs[0].is_file():
        targets = dict.fromkeys(changed, out)
    else:
        targets = {
            path: target.with_name(target.name.partition(".hlo.pb")[0] + ".txt")
            if path in changed and is_proto(path.name)
            else target
            for path, target in mirrored(inputs, out).items()
        }
    if len(set(targets.values())) < len(targets):
        raise DumpError(f"{out}: two of the inputs would be the same file there")
    for path, target in targets.items():
        if path in changed:
            read = changed[path].before if target == path else None
            write(target, changed[path].after, read=read)
            if changed[path].edits and parse_name(target.name) is not None:
                # Its folder lists a dump that is no longer what the compiler met.
                names = fixed_in(target.parent) | {target.name}
                write(target.with_name(FIXED), "".join(f"{name}\n" for name in sorted(names)))
            yield target
        else:
            copy_file(path, target)
