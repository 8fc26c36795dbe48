"""Runs `worker` in a child process, under any interpreter that has jax; survives aborts of XLA."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hlo_lint.apps.jax.capture import worker
from hlo_lint.apps.jax.capture.targets import Chip, readable_part
from hlo_lint.dumps.file_types import ERROR_FILE
from hlo_lint.text.errors import CaptureError, HloLintError, UsageError
from hlo_lint.text.source import shown
from hlo_lint.xla.child import Child, ChildDied, ChildError
from hlo_lint.xla.environments import PACKAGES, Interpreter
from hlo_lint.xla.limits import ChildLimits

MAX_SECONDS = 3600.0
"""Time for compiling a program, unless the environment sets another limit."""

SHORTENED = "JAX_HLO_SOURCE_FILE_CANONICALIZATION_REGEX"
"""The variable with the part of source file names that jax leaves out of the HLO."""

_diagnostic = re.compile(r"^loc\((.*?)\): error: (.*)", re.M).search
_place = re.compile(r'"([^"]+)":(\d+):\d+').search
_missing = re.compile(r"ModuleNotFoundError: No module named '(?!jax)(\w+)").findall
_parsing = re.compile(r"Error parsing text-format \S+: (.*)")


@dataclass(frozen=True)
class Job:
    """The programs that a child process compiles."""

    script: Path
    function: str | None
    """None to run the script and to compile the functions that it jits."""
    shapes: Sequence[Any] | None
    """For each argument the name of a numpy type and the dimensions, or a list of such pairs."""
    arguments: Sequence[str]
    """The arguments of the script, if it is run."""
    target: Chip
    options: Mapping[str, Any]


@dataclass(frozen=True)
class ProgramOutcome:
    """The outcome of compiling a program."""

    name: str
    folder: Path
    failure: str | None
    """XLA's message if the compile failed or ended the process; else None."""
    not_lowered: str | None = None
    """jax's error if it did not lower the program, for several devices for example; else None."""


@dataclass(frozen=True)
class JobResult:
    """The answer of a child process, and its log."""

    outcomes: tuple[ProgramOutcome, ...]
    log: str


def with_advice(message: str) -> str:
    """A message that names missing modules, with the options that install them.

    >>> with_advice("model.py:1: ModuleNotFoundError: No module named 'optax.losses'")
    "model.py:1: ModuleNotFoundError: No module named 'optax.losses'; --with optax installs it"
    """
    missing = _missing(message)
    if not missing:
        return message
    packages = dict.fromkeys(PACKAGES.get(module, module) for module in missing)
    options = " ".join(f"--with {package}" for package in packages)
    return f"{message}; {options} installs {'it' if len(missing) == 1 else 'them'}"


def run_job(
    interpreter: Interpreter,
    job: Job,
    folder: Path,
    environment: Mapping[str, str],
    progress: Callable[[str], None] = lambda _: None,
) -> JobResult:
    """Compile the programs of a job, each into a folder below `folder`.

    `progress` is called with each step: `compiling step (2 of 6)`.

    Raises:
        UsageError: for an option or a target that this jax refuses.
        CaptureError: where the script fails.
    """
    given = {SHORTENED: re.escape(f"{Path.cwd()}/"), **os.environ, **environment}
    limits = ChildLimits.by_default(MAX_SECONDS)
    outcomes: list[ProgramOutcome] = []
    logs: list[str] = []
    target: dict[str, str] | None = None
    with Child(interpreter.path, limits=limits, environment=_kept(given)) as child:
        try:
            progress(f"importing {job.script}")
            names, _ = child.call(
                worker.load_script,
                script=str(job.script),
                function=job.function,
                shapes=None if job.shapes is None else list(job.shapes),
                arguments=list(job.arguments),
            )
            logs.append(child.log())
            target = _read_target(child, job.target.topology())
            of = f" ({{}} of {len(names)})" if len(names) > 1 else ""
            for number, name in enumerate(names):
                progress(f"compiling {name}{of.format(number + 1)}")
                (failure, not_lowered), _ = child.call(
                    worker.compile_loaded,
                    number=number,
                    target=target,
                    options=dict(job.options),
                    folder=str(folder / name),
                )
                logs.append(child.log())
                failure = kept_beside(folder / name, with_diagnostic(failure, logs[-1]))
                outcomes.append(ProgramOutcome(name, folder / name, failure, not_lowered))
        except ChildError as error:
            raise _refusal(error, child.log(), interpreter) from None
        except ChildDied as death:
            if target is None:
                raise CaptureError(f"{job.script}: {death}") from None
            logs.append(death.log)
            name = names[len(outcomes)]
            kept_beside(folder / name, death.log)
            outcomes.append(ProgramOutcome(name, folder / name, f"{death}"))
    return JobResult(tuple(outcomes), "".join(logs))


class Compiler(Child):
    """A child process that compiles lowered programs for a chip that is not there.

    XLA's code makes the description of the chip there first: if it aborts, the caller need not try.
    """

    def __init__(self, target: Mapping[str, str]) -> None:
        """Start the child, and have it read the target.

        Raises:
            TargetRefused: where this jax cannot compile for the target.
            CaptureError: where XLA aborts on the target.
        """
        limits = ChildLimits.by_default(MAX_SECONDS)
        super().__init__(limits=limits, environment=_kept(os.environ))
        try:
            self.target = _read_target(self, target)
            """The target without fields that are unknown to this jax."""
        except ChildDied as death:
            raise CaptureError(f"the description of the target: {death}") from None
        except ChildError as error:
            self.close()
            raise _exception(error) from None

    def compile(
        self, lowered: Any, folder: Path, options: Mapping[str, Any], passes: str
    ) -> str | None:
        """The error of the compile, or None; the dumps are in `folder`.

        Raises:
            OptionRefused: for a compiler option that XLA refuses.
        """
        module, parameters, results = worker.bytecode_of(lowered)
        try:
            failure, _ = self.call(
                worker.compile_module,
                module,
                target=self.target,
                folder=str(folder),
                options=dict(options),
                passes=passes,
                parameters=parameters,
                results=results,
            )
            log = self.log()
        except ChildDied as death:
            kept_beside(folder, death.log)
            return f"{death}"
        except ChildError as error:
            raise _exception(error) from None
        return kept_beside(folder, with_diagnostic(failure, log))


def kept_beside(folder: Path, failure: str | None) -> str | None:
    """XLA's message, written beside the dump, too: there it names the pass that failed."""
    if failure is not None and folder.is_dir():
        (folder / ERROR_FILE).write_text(f"{failure}\n", "utf-8")
    return failure


def with_diagnostic(failure: str | None, log: str) -> str | None:
    """A failure with MLIR's error in the log of the compile, if XLA's message leaves it out.

    A Mosaic kernel for a GPU fails with "Pass pipeline failed"; the reason is only in the log.

    >>> with_diagnostic("INTERNAL: Pass failed", 'loc("model.py":7:3): error: no such instruction')
    'INTERNAL: Pass failed: model.py:7: no such instruction'
    """
    diagnostic = _diagnostic(log)
    if failure is None or diagnostic is None or diagnostic[2] in failure:
        return failure
    place = _place(diagnostic[1])
    where = f"{place[1].removeprefix(f'{Path.cwd()}/')}:{place[2]}: " if place else ""
    first_line, newline, rest = failure.partition("\n")
    return f"{first_line}: {where}{diagnostic[2]}{newline}{rest}"


def _read_target(child: Child, target: Mapping[str, str]) -> dict[str, str]:
    """The target as the child reads it, without fields that are unknown to its release."""
    while True:
        try:
            child.call(worker.read_target, target=dict(target))
        except ChildError:
            part = readable_part(target.get("target_config", ""), child.log())
            if part is None:
                raise
            target = {**target, "target_config": part}
        else:
            return dict(target)


def _kept(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of the child, with `XLA_FLAGS`; jax itself runs on the CPU."""
    return {"TF_CPP_MIN_LOG_LEVEL": "1", **environment, "JAX_PLATFORMS": "cpu"}


def _exception(error: ChildError) -> Exception:
    """The exception that the worker raised, as a CaptureError if it is unexpected."""
    refusals: dict[str, type[Exception]] = {
        refusal.__name__: refusal for refusal in (worker.TargetRefused, worker.OptionRefused)
    }
    return refusals.get(error.class_name, CaptureError)(f"{error}")


def _refusal(error: ChildError, log: str, interpreter: Interpreter) -> HloLintError:
    message = shown(f"{error}")
    if error.class_name == "OptionRefused":
        return UsageError(f"jax {interpreter.jax}: {message}")
    if error.class_name != "TargetRefused":
        return CaptureError(with_advice(message))
    where = _parsing.search(log)
    detail = f": {where[1]}" if where else ""
    return UsageError(
        f"jax {interpreter.jax} in {interpreter.path} cannot compile for this target: "
        f"{message}{detail}"
    )
