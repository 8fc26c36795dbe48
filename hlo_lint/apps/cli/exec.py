"""`hlo-lint exec`: a check of every module that a program compiles while it runs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

import click

from hlo_lint.apps.cli import (
    check,
    common,
    ending,
    launch,
    parameters,
    ranks,
    report,
    validate,
    xla_flags,
)
from hlo_lint.dumps.directory import RECORDED
from hlo_lint.text.errors import DumpError, UsageError, os_errors_as
from hlo_lint.text.source import shown

FOLDER = "hlo-dump"
"""The folder of the dumps, in the working directory; the next ones are `hlo-dump-2` and so on."""
LAUNCHERS = ("torchrun", "mpirun", "mpiexec", "srun", "jsrun")
"""Programs that start the processes of a run."""
RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
"""Variables in which torchrun, srun and mpirun tell a process its number."""


@click.command("exec", context_settings={"allow_interspersed_args": False})
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND…")
@click.option(
    "--dump-to",
    type=parameters.PATH,
    metavar="DIR",
    help=f"The folder for the dumps; by default {FOLDER}, or {FOLDER}-2 and so on.",
)
@click.option(
    "--hang-seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Kill the program after so many seconds without a line of output or a dump.",
)
@click.option(
    "--record-inputs",
    is_flag=True,
    help="Save the arguments of the first run of each module that jax compiles, as "
    "module_0001.NAME.inputs.npz beside its dumps; `validate` begins with them.",
)
@click.option("--validate", "validates", is_flag=True, help="Also run `hlo-lint validate`.")
@click.option(
    "--report", "page", type=parameters.PATH, metavar="FILE", help="Also write the HTML page."
)
@parameters.findings_format
@parameters.resolved_option
@parameters.quiet_option
@parameters.verbose_option
@parameters.color_option
@parameters.shared_options(parameters.RULES, parameters.FINDINGS, parameters.MODULE)
@click.pass_context
def command(
    ctx: click.Context,
    /,
    program: tuple[str, ...],
    dump_to: Path | None,
    hang_seconds: float | None,
    record_inputs: bool,
    validates: bool,
    page: Path | None,
    output_format: str | None,
    resolved: bool,
    quiet: bool,
    verbose: bool,
    shared: common.SharedOptions,
) -> None:
    """Run a program, and check the modules that XLA compiles in it.

    In `hlo-lint exec python model.py` XLA dumps into a folder of its own. Other flags in XLA_FLAGS
    stay, and jax does not use its persistent cache. After Ctrl-C the dumps so far are checked; a
    second Ctrl-C ends a program that ignores the first.

    What the program prints on standard error is kept in DIR.log. After a program that failed comes
    a page: the pass or the module, the message, the line of Python, commands to run next.

    Exit status: that of the program if it is not 0, else that of the check.
    """
    folder = _folder(dump_to)
    log = folder.parent / f"{folder.absolute().name}.log"
    try:
        end = _run(program, folder, log, hang_seconds, record_inputs)
    finally:
        with suppress(OSError):
            folder.rmdir()  # fails if it has files
        if log.exists() and not log.stat().st_size:
            log.unlink()
    # A negative code is the number of a signal, for which a shell gives another status.
    died = end.code if end.code >= 0 else 128 - end.code
    # A launcher's ranks leave their logs in it, too.
    compiled = folder.exists() and any(path.suffix != ".log" for path in folder.iterdir())
    if not compiled and not died:
        log.unlink(missing_ok=True)
        raise DumpError(
            f"{program[0]} compiled nothing with XLA: it left no dump; a program that sets "
            "XLA_FLAGS itself has to keep the flags that are set"
        )
    if compiled and not quiet:
        beside = f"; its log is {log}" if log.exists() else ""
        click.echo(shown(f"hlo-lint: its dumps are in {folder}{beside}"), err=True)
    if record_inputs and compiled and not any(folder.rglob(f"*{RECORDED}")):
        click.echo("hlo-lint: no inputs were recorded: no jax ran a module", err=True)
    statuses = [0]
    options = shared._asdict()
    if compiled:
        status = _status(
            ctx,
            check.command,
            folder,
            output_format=output_format,
            resolved=resolved,
            quiet=quiet,
            verbose=verbose,
            explains=False,  # the page does
            **options,
        )
        statuses.append(status)
    if compiled and validates:
        statuses.append(_status(ctx, validate.command, folder, verbose=verbose, **options))
    if compiled and page is not None:
        statuses.append(_status(ctx, report.command, folder, out=page, **options))
    if died:
        for line in ending.page(end, folder, log):
            click.echo(line, err=True)
        place = ending.folder_of_ranks(folder)
        # The launcher, else the first rank, speaks for all.
        if place and folder.name in (place.name, min(path.name for path in place.glob("rank*/"))):
            with suppress(DumpError):  # nothing to compare yet
                _status(ctx, ranks.command, place, output_format="text", quiet=quiet)
    ctx.exit(died or max(statuses))


def _run(
    program: Sequence[str], folder: Path, log: Path, hang_seconds: float | None, record_inputs: bool
) -> ending.ProgramEnd:
    """Run a program to its end; its errors are printed, and kept in a log."""
    variables = launch.with_stacks(
        environment(os.environ, folder, program), unbuffered=hang_seconds is not None
    )
    for_hooks: dict[str, str] = {}
    if Path(program[0]).name in LAUNCHERS or "torch.distributed.run" in program:
        for_hooks["HLO_LINT_DUMPS"] = str(folder.absolute())
    if record_inputs:
        for_hooks["HLO_LINT_INPUTS"] = str(folder.absolute())
    if for_hooks:
        # Python in each process runs its sitecustomize, which reads them.
        paths = [str(Path(__file__).parent / "launched"), variables.get("PYTHONPATH", "")]
        variables |= {"PYTHONPATH": os.pathsep.join(filter(None, paths)), **for_hooks}
    return launch.run_to_end(program, variables, folder, log, hang_seconds)


def environment(
    variables: Mapping[str, str], folder: Path, program: Sequence[str]
) -> dict[str, str]:
    """The variables of a program whose dumps go to a folder.

    Raises:
        UsageError: XLA_FLAGS names a file that cannot be read.
    """
    more = [f"{xla_flags.EMITTERS}=.*"] * xla_flags.knows_emitters(program, variables)
    flags = xla_flags.dumping(variables.get("XLA_FLAGS", ""), folder, *more)
    return {**variables, "XLA_FLAGS": flags.strip(), "JAX_ENABLE_COMPILATION_CACHE": "false"}


def _folder(given: Path | None) -> Path:
    """A new folder for the dumps; that of a rank is in the folder of all ranks."""
    rank = next((os.environ[name] for name in RANKS if os.environ.get(name, "").isdigit()), None)
    own = "" if rank is None else f"rank{rank}"
    names = (Path(FOLDER if number == 1 else f"{FOLDER}-{number}", own) for number in count(1))
    folder = given / own if given else next(name for name in names if not name.exists())
    with os_errors_as(f"{folder}: cannot be made", UsageError):
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(f"{folder} is not empty: dumps of two runs in it would be mixed")
    return folder


def _status(ctx: click.Context, command: click.Command, folder: Path, **options: object) -> int:
    """The exit status of another command for the dumps."""
    try:
        ctx.invoke(command, paths=(str(folder),), **options)
    except click.exceptions.Exit as end:
        return end.exit_code
    return 0
