"""Judges modules: compiles them with a dump of every pass, and compares values.

The reference is XLA:CPU without its passes. If a compiled module computes something else, the dumps
of the compilation are compared as `hlo-lint validate` does: the first that differs names the pass.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import isfinite, prod
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hlo_lint.apps.api import lint
from hlo_lint.apps.jax.capture.targets import gpu_description, target_of
from hlo_lint.dumps.directory import open_dump
from hlo_lint.dumps.names import DumpName
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.pass_lists import pass_lists
from hlo_lint.dumps.selection import FIRST, in_order, longest_run
from hlo_lint.engine.reduce.interest import ONLY_PASSES, cause_of, skeleton
from hlo_lint.engine.reduce.values import DUMPING
from hlo_lint.engine.values.compare import OWN_BOUND, result_difference
from hlo_lint.engine.values.inputs import value
from hlo_lint.engine.values.validate import SEEDS, validate_dumps
from hlo_lint.hlo.dtypes import is_integer
from hlo_lint.hlo.ir import Module
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.hlo.shape import ArrayShape, arrays
from hlo_lint.rules.findings import Severity
from hlo_lint.text.errors import DumpError
from hlo_lint.text.source import encode
from hlo_lint.xla import cpu
from hlo_lint.xla.child import ChildDied, ChildError
from hlo_lint.xla.compiler import Ending, XlaCompiler
from hlo_lint.xla.environments import Platform, environment_of
from hlo_lint.xla.limits import Deadline
from hlo_lint.xla.parser import XlaParser
from hlo_lint_hunt.fair import unfair

CPU: Final = "cpu"
GPU: Final = "gpu"
"""The target for the GPU of this machine, which runs the compiled modules."""
CHIP_SECONDS: Final = 90.0
"""Time for a compile by XLA:GPU or XLA:TPU."""
_CUDA: Final = {"JAX_PLATFORMS": "cuda", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
_LOGGED: Final = {"TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": "hlo_pass_pipeline=1"}
"""The environment of a compiler that logs each pass: a pass that dies leaves no dump."""
LIMITS: Final[Mapping[str, Mapping[str, Any]]] = {
    CPU: {"seconds": 20.0, "memory": 4 << 30, "environment": cpu.SEVERAL_DEVICES | _LOGGED},
    GPU: {"seconds": CHIP_SECONDS, "memory": 1 << 40, "environment": _CUDA | _LOGGED},
}
"""The limits for a small module; CUDA reserves more memory than it uses."""
DUMPED: Final = {
    "xla_dump_hlo_as_text": True,
    "xla_dump_hlo_pass_re": ".*",
    "xla_dump_large_constants": True,
    "xla_allow_excess_precision": False,
    "xla_gpu_autotune_level": 0,
}
FOUND, SAME = "found", "same"
CODE: Final = "code generation"
"""The pass name of a difference that no dump shows."""
_pass = re.compile(
    r"\]   HLO pass (?P<start>.+)$|\] HLO pass: (?P<end>.+?) time: |\] Running HLO pass pipeline",
    re.M,
)
_failed_after = re.compile(r"Failed after (\S+)")
_unsupported = re.compile("UNIMPLEMENTED|[Uu]nsupported|not (yet )?(supported|implemented)")
_rounded = re.compile(r"\b(?:b?f\d\w*|c64|c128)\[")

Arrays: TypeAlias = list[NDArray[Any]]


@dataclass(frozen=True)
class BugFinding:
    """A problem that a compilation shows."""

    kind: str
    """`values`, `unsteady`, `crash`, `error`, `hang`, `memory`, or a rule."""
    pass_name: str
    """The pass with the bug; empty if it is unknown."""
    message: str

    @property
    def cause(self) -> str:
        """The key of the cause, equal for findings that cannot be told apart."""
        return f"{self.kind} {self.pass_name}" + f" {self.message}" * (self.kind != "values")


@dataclass(frozen=True)
class JudgeVerdict:
    """The verdict on a module, with the results of reducing its finding."""

    outcome: str
    """`same`, `found`, `refused`, `unsupported`, `unfair`, or the reason for no verdict."""
    passes: tuple[str, ...] = ()
    """The passes that changed something."""
    finding: BugFinding | None = None
    seed: int = 0
    by: str = ""
    """The compiler of the judge: `0.10.2 cpu`."""
    traits: tuple[str, ...] = ()
    reduced: str = ""
    """The smallest module with the finding; empty before the reduction."""
    size: tuple[int, ...] = ()
    """The numbers of instructions before and after the reduction."""
    shows: tuple[str, ...] = ()
    """The judges that find the bug in the reduced module."""

    @property
    def cause(self) -> str:
        """The cause of the finding, or its signature after the reduction; empty without a finding.

        A signature adds the opcodes, and whether there are partitions: `values cse: 2 add,
        partitioned`.
        """
        if self.finding is None or not self.reduced:
            return self.finding.cause if self.finding else ""
        bodies = parse_file(self.reduced).modules[0].computations
        counts = Counter(row.opcode for body in bodies for row in body.instructions)
        for name in ("parameter", "constant", "tuple", "get-tuple-element"):
            del counts[name]
        words = [f"{count} {name}".removeprefix("1 ") for name, count in sorted(counts.items())]
        words += ["partitioned"] * (cpu.devices_of(self.reduced)[1] > 1)
        return f"{self.finding.cause}: {', '.join(words)}"


class HuntCompiler(NamedTuple):
    """A compiler to hunt in; `python` is None for this interpreter."""

    python: Path | None = None
    target: str = CPU
    release: str = ""


def compilers_of(
    releases: Sequence[str],
    pythons: Sequence[str | Path],
    targets: Sequence[str],
    announce: Callable[[str], None] = lambda _: None,
) -> Iterator[HuntCompiler]:
    """The compilers of each release for each target; of this Python without releases.

    Raises:
        UsageError: for an unknown release, Python or target.
        CaptureError: if an environment cannot be made.
    """
    for target in targets or (CPU,):
        platform = Platform.CPU if target == CPU else Platform.GPU
        if target not in LIMITS and target_of(target).is_tpu:
            platform = Platform.TPU
        places: list[Path | None] = [*map(Path, pythons)]
        places += [environment_of(name, announce, platform).path for name in releases]
        for python in places or [None]:
            with XlaParser(python) as parser:
                yield HuntCompiler(python, target, parser.release)


class Judge(ExitStack):
    """Judges modules for a compiler.

    Modules for a CPU, or for a GPU that is present, run as compiled. For other chips only the dumps
    are run, by XLA:CPU.
    """

    def __init__(
        self,
        compiler: HuntCompiler | None = None,
        passes: Sequence[str] = (),
        deadline: Deadline | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start the child processes.

        Args:
            compiler: the compiler; None for XLA:CPU of this interpreter.
            passes: judge only these passes; without them rules check the dumps of all passes.
            deadline: the end of the time for all modules.
            environment: variables for the compiler of an absent chip.
        """
        super().__init__()
        self._deadline = deadline or Deadline()
        self._log = ""
        self._pipelines: dict[str, set[str]] = {}
        self.narrow(passes, {})
        python, self._target, _ = compiler or HuntCompiler()
        self._chip = None if self._target in LIMITS else target_of(self._target)
        platform = "tpu" if self._chip and self._chip.is_tpu else "cuda"
        limits: dict[str, Any] = {
            "timeout": CHIP_SECONDS,
            "deadline": self._deadline,
            "environment": {**_LOGGED, **(environment or {})},
        }
        self._compiler = self.enter_context(XlaCompiler(python, platform=platform, **limits))
        self._config = ""
        if self._chip:
            is_gpu = not self._chip.is_tpu
            own = self._chip.description
            self._config = gpu_description(self._target, self._compiler) if is_gpu else own
        self._reference = self._runner(None, CPU)
        self._runs = self._reference if self._chip else self._runner(python, self._target)
        self._plain = self._runs if self._target == CPU else self._reference

    def narrow(self, passes: Sequence[str], flags: Mapping[str, str]) -> None:
        """Judge these passes alone from now on, or all, with these debug options."""
        self._only, self._flags = passes, dict(flags)
        # XLA leaves out a pass of a pipeline that runs to a fixed point, unless that is named, too.
        pairs = [pair for release in pass_lists() for pair in release.passes] if passes else []
        around = {pipeline for pipeline, name in pairs if name in passes}
        around.update(*(self._pipelines.get(name, ()) for name in passes))
        self._named = ",".join({*passes, *around})

    @property
    def started(self) -> list[str]:
        """The passes that the last compilation started, in order; empty where no log has them."""
        return [match["start"] for match in _pass.finditer(self._log) if match["start"]]

    def _ended_in(self, compiled: list[Arrays] | Ending, folder: Path) -> str:
        """The pass in which a compilation ended, by XLA's words, its log, or the last dump."""
        running: list[str] = []
        last = ""
        for match in _pass.finditer(self._log):
            if match["start"]:
                last = match["start"]
                self._pipelines.setdefault(last, set()).update(running)
                running.append(last)
            elif match["end"]:
                if match["end"] in running:
                    del running[running.index(match["end"]) :]
            elif not running:
                last = ""  # another pipeline follows
        if not isinstance(compiled, Ending):
            return ""
        if named := _failed_after.search(compiled.message):
            return named[1]
        died_in = last if compiled.status == "error" else (running or [""])[-1]
        if died_in and compiled.status == "error" and [*folder.glob("*after_optimizations*")]:
            return CODE
        return died_in or ([name.before for _, name in _steps(folder)] or [""])[-1] or ""

    def _runner(self, python: Path | None, target: str) -> cpu.XlaCpu:
        xla = cpu.XlaCpu(python, deadline=self._deadline, **LIMITS[target])
        return self.enter_context(xla)

    def __call__(self, text: str) -> JudgeVerdict:
        """Judge a module; raises NoTimeLeft when the time for all modules is over."""
        module = parse_file(text).modules[0]
        if reason := unfair(module):
            return JudgeVerdict(f"unfair: {reason}")
        with tempfile.TemporaryDirectory(prefix="hlo_lint_", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            verdict = self.bug(text, [hunt_inputs(module, seed) for seed in SEEDS], folder)
            if verdict is None and not self._only:
                for error in lint(open_dump(folder)).findings:
                    if error.severity is Severity.ERROR:
                        by = error.introduced_by.pass_name if error.introduced_by else ""
                        verdict = BugFinding(error.rule, by, skeleton(error.message))
                        break
            # What has no next pass is written from inside of one.
            names = [name for _, name in _steps(folder) if name.before and name.step is not None]
        passes = sorted({name.after for name in names} - {"pipeline-start"})
        finding = verdict if isinstance(verdict, BugFinding) else None
        if finding and self._only and finding.pass_name not in self._only:
            return JudgeVerdict(f"of another pass: {finding.pass_name}", tuple(passes))
        return JudgeVerdict(FOUND if finding else f"{verdict or SAME}", tuple(passes), finding)

    def bug(self, text: str, inputs: Sequence[Arrays], folder: Path) -> BugFinding | str | None:
        """The bug, or the reason for no verdict; the dumps are written into the folder.

        Without inputs no values are compared.
        """
        if self._target == GPU and prod(cpu.devices_of(text)) > 1:
            return "for several devices"
        compiled = self._compiled(text, inputs, folder)
        ended_in = self._ended_in(compiled, folder)
        if self._only and ended_in not in self._only:
            # No other pass lowers what is left.
            return self.by_steps(folder, inputs[0]) if inputs else None
        if isinstance(compiled, Ending):
            return self._failed(text, inputs, compiled, ended_in)
        if not any(compiled):
            return self.by_steps(folder, inputs[0]) if inputs else None
        plain = self._run(self._plain, text, inputs, cpu.JUDGE)
        if isinstance(plain, Ending):
            return f"no judge: {plain.message[:60]}"
        results = zip(inputs, plain, compiled, strict=True)
        differing = [(given, words) for given, *pair in results if (words := _difference(*pair))]
        if not differing:
            return None
        given, difference = differing[0]
        again = self._run(self._plain, text, inputs, cpu.JUDGE)
        if isinstance(again, Ending) or any(map(_difference, plain, again)):
            return BugFinding("unsteady", CODE, "two runs give two results")
        by_steps = self.by_steps(folder, given)
        if isinstance(by_steps, BugFinding):
            return by_steps
        if any(_rounded.search(dump.module.text) for dump, _ in _steps(folder)):
            return by_steps or "rounding alone"
        return BugFinding("values", "" if by_steps else CODE, difference)

    def _compiled(self, text: str, inputs: Sequence[Arrays], folder: Path) -> list[Arrays] | Ending:
        """The results for each set of inputs, empty for a chip that is absent; or how XLA ended."""
        more = self._flags | ({ONLY_PASSES: self._named} if self._only else {})
        if self._chip is None:
            dumped = DUMPED | {"xla_dump_to": f"{folder}"} | more
            return self._run(self._runs, text, inputs, dumped, keeps_log=True)
        words = [f"--{name}={names}" for name, names in more.items()]
        flags = " ".join(["--xla_dump_large_constants", f"{DUMPING}{folder}", *words])
        devices = cpu.devices_of(text)
        ending = self._compiler.compile(text, self._config, flags, devices)
        self._log = ending.log
        return [] if ending.status == "ok" else ending

    def _run(
        self,
        xla: cpu.XlaCpu,
        text: str,
        inputs: Sequence[Arrays],
        flags: Mapping[str, Any],
        keeps_log: bool = False,
    ) -> list[Arrays] | Ending:
        """The results for each set of inputs, empty for several devices; or how XLA ended."""
        given: dict[str, Any] = {"flags": dict(flags), "plain": flags is not cpu.JUDGE}
        given["devices"] = cpu.devices_of(text)
        results = []
        try:
            for number, (types, blocks) in enumerate(map(cpu.pack_arrays, inputs)):
                answer = xla.call(cpu.run_text, encode(text), *blocks, types=types, **given)
                results.append(cpu.unpack_arrays(*answer))
                if keeps_log and not number:
                    self._log = xla.log()
        except ChildDied as death:
            self._log = death.log if keeps_log else self._log
            return Ending.of(death)
        except ChildError as error:
            self._log = xla.log() if keeps_log else self._log
            return Ending("error", f"{error}".partition("\n\nSuspected")[0])
        return results

    def by_steps(self, folder: Path, given: Arrays) -> BugFinding | str | None:
        """The first pass that changes the values in two runs; or the reason for no verdict.

        `given` is the first set of inputs.
        """
        dumps, changes = [dump for dump, _ in _steps(folder)], []
        for _ in range(2):
            result = validate_dumps("", dumps, self._reference, given=dict(enumerate(given)))
            self._deadline.check()
            changes += [change for change in result.changes if change.comparison.difference][:1]
            if not changes:
                reason = (result.notes or ["no dumps"])[0][-60:]
                return None if result.compared else f"not run: {reason}"
        if len(changes) == 1:
            return "unsteady judge"
        difference, name = changes[0].comparison.difference, changes[0].after.name
        assert difference is not None
        ends = (difference.before, difference.after)
        if any(isinstance(end, float) and not isfinite(end) for end in ends):
            return "signs of zeros or NaNs"
        return BugFinding("values", name.after if name else "", f"{difference}")

    def _failed(
        self, text: str, inputs: Sequence[Arrays], ending: Ending, ended_in: str
    ) -> BugFinding | str:
        """The verdict on a module that did not compile: refused, unsupported or a bug."""
        message, is_refused = ending.message, ending.status == "refused"
        if ending.status == "error" and _unsupported.search(message):
            return f"unsupported: {message[:60]}"
        if ending.status == "error" and not message.startswith("INTERNAL"):
            plain = self._run(self._plain, text, inputs[:1], cpu.JUDGE)
            is_refused = isinstance(plain, Ending) and plain.status == "error"
        if is_refused:
            return f"refused: {message[:60]}"
        kind = {"died": "crash", "timeout": "hang"}.get(ending.status, ending.status)
        kind = "memory" if "more memory" in message else kind
        return BugFinding(kind, ended_in, cause_of(ending))


def _difference(ours: Arrays, theirs: Arrays) -> str:
    """The largest difference of results, in words; empty if they are equal."""
    return str(result_difference(ours, theirs, OWN_BOUND) or "")


def _value(shape: ArrayShape, seed: tuple[int, ...]) -> NDArray[Any]:
    """Values for a parameter: integers are small, at the ends of their ranges, or any bits."""
    plain, random = value(shape, seed, edges=True), np.random.default_rng(seed)
    if not is_integer(shape.dtype):
        return plain
    any_bits, small = random.integers(0, 1 << 62, shape.dims), random.integers(-2, 10, shape.dims)
    numbers = (plain, any_bits.astype(plain.dtype), small.astype(plain.dtype))
    return np.choose(random.integers(0, 3, shape.dims), numbers).astype(plain.dtype)


def hunt_inputs(module: Module, seed: int) -> Arrays:
    """The values of all parameters."""
    parameters = module.entry.parameters if module.entry else ()
    return [
        _value(array, (seed, number, 0))
        for number, parameter in enumerate(parameters)
        for array in arrays(parameter.shape)
    ]


def _steps(folder: Path) -> list[tuple[PassDump, DumpName]]:
    """The dumps of the module, the input first; empty if it was not dumped."""
    try:
        dumps = in_order(longest_run(folder, None))
    except DumpError:
        return []
    named = [(dump, dump.name) for dump in dumps if dump.name]
    return [(d, name) for d, name in named if name.step is not None or name.rest.startswith(FIRST)]
