"""Runs `worker` in a process of its own: under any interpreter that has jax, whatever XLA does."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hlo_lint.apps.jax.capture.targets import Target
from hlo_lint.apps.jax.capture.worker import OptionRefused, TargetRefused, bytecode_of
from hlo_lint.hlo.children import (
    LIMITED,
    LOGS_ERRORS,
    ChildTimeout,
    ResourceLimits,
    ending,
    python_command,
    terms_of,
)
from hlo_lint.hlo.xla_log import fatal_messages
from hlo_lint.text.errors import CaptureError, HloLintError, UsageError, os_errors_as
from hlo_lint.text.source import decode, shown

WORKER = Path(__file__).with_name("worker.py")

MAX_SECONDS = 3600.0
"""Time in which the programs of one script are compiled, unless the environment says another."""

SHORTENED = "JAX_HLO_SOURCE_FILE_CANONICALIZATION_REGEX"
"""The variable that says what of the name of a source file is left out of the HLO."""

_parsing = re.compile(r"Error parsing text-format \S+: (.*)")
_ASK = """
import json
from importlib import metadata
from importlib.util import find_spec
packages = {"jax": metadata.version("jax"), "gpu": False, "tpu": bool(find_spec("libtpu"))}
for number in ("12", "13"):
    try:
        packages["gpu"] |= find_spec("jax_plugins.xla_cuda" + number) is not None
    except ModuleNotFoundError:
        pass
print(json.dumps(packages))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python that has jax."""

    path: Path
    jax: str
    """Its release."""
    has_gpu_compiler: bool
    has_tpu_compiler: bool


def interpreter_at(path: str | Path) -> Interpreter:
    """Find the jax of a Python, without importing it.

    Raises:
        UsageError: where it cannot be run, or has no jax.
    """
    with os_errors_as(f"{path} cannot be run", UsageError):
        done = subprocess.run([str(path), "-c", _ASK], capture_output=True)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise UsageError(f"{path} is not a Python in which jax is installed") from None
    return Interpreter(Path(path), answer["jax"], answer["gpu"], answer["tpu"])


@dataclass(frozen=True)
class Job:
    """The programs that a child process compiles."""

    script: Path
    function: str | None
    """None to run the script and to take what it hands to `jax.jit`."""
    shapes: Sequence[Any] | None
    """For each argument a numpy type's name and the dimensions, or a list of such."""
    arguments: Sequence[str]
    """The script's own, where it is run."""
    target: Target
    options: Mapping[str, Any]


@dataclass(frozen=True)
class ProgramOutcome:
    """The outcome of one program."""

    name: str
    folder: Path
    failure: str | None
    """XLA's message if it failed or ended the process; else None."""
    not_lowered: str | None = None
    """jax's reason for not lowering it, as in a program for several devices; else None."""


@dataclass(frozen=True)
class Answer:
    """The answer of a child process, and its log."""

    outcomes: tuple[ProgramOutcome, ...]
    log: str


def run(interpreter: Interpreter, job: Job, folder: Path, environment: Mapping[str, str]) -> Answer:
    """Compiles the programs of a job, each into a folder below `folder`.

    Raises:
        UsageError: for an option or a target that this jax does not take.
        CaptureError: where the script fails.
    """
    with tempfile.TemporaryDirectory(prefix="hlo_lint_") as scratch:
        answer = Path(scratch, "answer.json")
        limits = ResourceLimits.by_default(seconds=MAX_SECONDS)
        given = {
            "limited": str(LIMITED),
            "limits": terms_of(limits),
            "script": str(job.script),
            "function": job.function,
            "shapes": job.shapes,
            "arguments": list(job.arguments),
            "target": dict(job.target.topology()),
            "options": dict(job.options),
            "folder": str(folder),
            "answer": str(answer),
        }
        with Path(scratch, "log").open("w+b") as log:
            late = ""
            status = 0
            try:
                status = subprocess.run(
                    [str(interpreter.path), "-P", str(WORKER)],
                    input=json.dumps(given).encode(),
                    stdout=log,
                    stderr=log,
                    env={
                        SHORTENED: re.escape(f"{Path.cwd()}/"),
                        **os.environ,
                        **LOGS_ERRORS,
                        **environment,
                        "JAX_PLATFORMS": "cpu",
                    },
                    timeout=limits.seconds,
                ).returncode
            except subprocess.TimeoutExpired:
                late = f"{ChildTimeout(limits)}"
            log.seek(0)
            text = decode(log.read())
        # The worker wrote it before and after each program: XLA may have ended the process.
        result = json.loads(answer.read_bytes()) if answer.exists() else {"programs": []}
    if "error" in result:
        kind, message = result["error"]
        raise _refusal(kind, shown(message), text, interpreter)
    died = late or (last_words(status, text) if status else "")
    if died and not result["programs"]:
        raise CaptureError(f"{job.script}: {died}")
    return Answer(tuple(_outcome(program, died) for program in result["programs"]), text)


class Compiler(AbstractContextManager["Compiler"]):
    """A child process that compiles one lowered program for a chip that is not there.

    XLA's code makes the description of the chip there first: if it aborts, the caller need not try.
    """

    def __init__(self, target: Mapping[str, str]) -> None:
        """Start it, and have it read the target.

        Raises:
            TargetRefused: where this jax cannot compile for the target.
            CaptureError: where XLA does not survive it.
        """
        self._limits = ResourceLimits.by_default(seconds=MAX_SECONDS)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the child
        self._child = subprocess.Popen(
            python_command("hlo_lint.apps.jax.capture.worker", "serve", limits=self._limits),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, **LOGS_ERRORS, "JAX_PLATFORMS": "cpu"},
        )
        self._clock = threading.Timer(self._limits.seconds or MAX_SECONDS, self._stop)
        self._clock.daemon = True
        self._clock.start()
        self._is_late = False
        failure = self._answer(json.dumps(dict(target)).encode() + b"\n")
        if failure is not None:
            self.close()
            raise CaptureError(f"the description of the target: {failure}")

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child."""
        self._clock.cancel()
        self._child.kill()
        self._child.communicate()
        self._log.close()

    def compile(
        self, lowered: Any, folder: Path, options: Mapping[str, Any], passes: str
    ) -> str | None:
        """The reason why a program was not compiled, or None; the dumps are in `folder`.

        Raises:
            OptionRefused: for a compiler option that XLA does not take.
        """
        module, parameters, results = bytecode_of(lowered)
        request = {
            "folder": str(folder),
            "options": dict(options),
            "passes": passes,
            "parameters": parameters,
            "results": results,
            "size": len(module),
        }
        return self._answer(json.dumps(request).encode() + b"\n" + module)

    def _stop(self) -> None:
        self._is_late = True
        self._child.kill()

    def _answer(self, data: bytes) -> str | None:
        """XLA's error after a request, or the reason that the child ended."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        with suppress(BrokenPipeError):
            self._child.stdin.write(data)
            self._child.stdin.flush()
        line = self._child.stdout.readline()
        if not line:
            status = self._child.wait()
            if self._is_late:
                return f"{ChildTimeout(self._limits)}"
            self._log.seek(0)
            return last_words(status, decode(self._log.read()))
        answer = json.loads(line)
        if "refusal" in answer:
            kind, message = answer["refusal"]
            raise (TargetRefused if kind == "TargetRefused" else OptionRefused)(message)
        failure = answer.get("failure")
        return None if failure is None else str(failure)


def _outcome(program: Mapping[str, Any], died: str) -> ProgramOutcome:
    name, folder, message = program["name"], Path(program["folder"]), program.get("message")
    if program["state"] == "not lowered":
        return ProgramOutcome(name, folder, None, message)
    return ProgramOutcome(name, folder, died if program["state"] == "compiling" else message)


def _refusal(kind: str, message: str, log: str, interpreter: Interpreter) -> HloLintError:
    if kind == "ScriptFailed":
        return CaptureError(message)
    if kind == "OptionRefused":
        return UsageError(f"jax {interpreter.jax}: {message}")
    where = _parsing.search(log)
    detail = f": {where[1]}" if where else ""
    return UsageError(
        f"jax {interpreter.jax} in {interpreter.path} cannot compile for this target: "
        f"{message}{detail}"
    )


def last_words(status: int, log: str) -> str:
    """The reason that a process ended: XLA's own last message, a signal, or the last line."""
    fatal = fatal_messages(log)
    if status < 0 or fatal:
        return f"XLA's process {ending(status, log)}" + (f": {shown(fatal[0])}" if fatal else "")
    lines = [line for line in log.splitlines() if line.strip()]
    return shown(lines[-1].strip()) if lines else f"the process ended with status {status}"
