"""One module judged: compiled with every pass on disk, and its values compared.

The judge of values is XLA:CPU without its passes. Where a compiled module computes something else,
the dumps of the compilation are compared as `hlo-lint validate` does, and the first that differs
names the pass.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import isfinite, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hlo_lint.apps.api import lint
from hlo_lint.apps.hunt.fair import unfair
from hlo_lint.apps.jax.capture.targets import target_of
from hlo_lint.dumps.directory import open_dump
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.selection import FIRST, in_order, module_named
from hlo_lint.engine.reduce.interest import skeleton
from hlo_lint.engine.reduce.values import DUMPING
from hlo_lint.engine.reduce.xla import ONLY_PASSES, cause_of
from hlo_lint.engine.values.compare import Bound, result_difference
from hlo_lint.engine.values.inputs import value
from hlo_lint.engine.values.programs import JUDGE
from hlo_lint.engine.values.validate import SEEDS, validate_dumps
from hlo_lint.hlo.dtypes import is_integer
from hlo_lint.hlo.parser.literals import numpy_dtype
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.hlo.shape import ArrayShape
from hlo_lint.rules.findings import Severity
from hlo_lint.text.errors import DumpError
from hlo_lint.text.source import encode
from hlo_lint.xla import cpu
from hlo_lint.xla.child import ChildDied, ChildError
from hlo_lint.xla.compiler import Ending, XlaCompiler
from hlo_lint.xla.environments import Platform, environment_of
from hlo_lint.xla.limits import Deadline
from hlo_lint.xla.parser import XlaParser

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hlo_lint.hlo.ir import Module

    Arrays = list[NDArray[Any]]

CPU: Final = "cpu"
GPU: Final = "gpu"
"""The target that is there, and runs what is compiled."""
CHIP_SECONDS: Final = 90.0
"""Time that a compiler may take which is not the CPU's."""
LIMITS: Final[Mapping[str, tuple[float, int, Mapping[str, str]]]] = {
    CPU: (20.0, 4 << 30, cpu.SEVERAL_DEVICES),
    GPU: (
        CHIP_SECONDS,
        1 << 40,
        {"JAX_PLATFORMS": "cuda", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
    ),
}
"""Seconds for a small module, bytes, of which CUDA reserves more than it takes, and variables."""
DUMPED: Final[Mapping[str, bool | int | str]] = {
    "xla_dump_hlo_as_text": True,
    "xla_dump_hlo_pass_re": ".*",
    "xla_dump_large_constants": True,
    "xla_allow_excess_precision": False,
    "xla_gpu_autotune_level": 0,
}
OWN_BOUND: Final = Bound(relative=2.0**-4, of_largest=2.0**-4)
"""Floats are looked at in f64 where they differ by more in their own types."""
FOUND: Final = "found"
SAME: Final = "same"
CODE: Final = "code generation"
"""The pass of what no dump shows."""
_failed_after = re.compile(r"Failed after (\S+)")
_unsupported = re.compile("UNIMPLEMENTED|[Uu]nsupported|not (yet )?(supported|implemented)")
_rounded = re.compile(r"\b(?:b?f\d\w*|c64|c128)\[")


@dataclass(frozen=True)
class BugFinding:
    """A problem of a compilation."""

    kind: str
    """`values`, `unsteady`, `crash`, `error`, `hang`, `memory`, or a rule."""
    pass_name: str
    """The pass that made it; empty where none is known."""
    message: str

    @property
    def cause(self) -> str:
        """The same for findings of one cause, as far as they can be told apart."""
        message = "" if self.kind == "values" else f" {self.message}"
        return f"{self.kind} {self.pass_name}{message}"


@dataclass(frozen=True)
class JudgeVerdict:
    """The verdict on one module."""

    outcome: str
    """`same`, `found`, `refused`, `unsupported`, `unfair`, or the reason why nothing is known."""
    passes: tuple[str, ...] = ()
    """The passes that changed something."""
    finding: BugFinding | None = None


class HuntCompiler(NamedTuple):
    """A compiler to hunt in."""

    python: Path | None = None
    """None for this interpreter."""
    target: str = CPU
    release: str = ""


def compilers_of(
    releases: Sequence[str],
    pythons: Sequence[str | Path],
    targets: Sequence[str],
    announce: Callable[[str], None] = lambda _: None,
) -> Iterator[HuntCompiler]:
    """Each release with each target; the one of this Python where none is named.

    Raises:
        UsageError: for a release, a Python or a target that is not one.
        CaptureError: an environment cannot be made.
    """
    for target in targets or (CPU,):
        platform = Platform.CPU if target == CPU else Platform.GPU
        if target not in (CPU, GPU) and target_of(target).is_tpu:
            platform = Platform.TPU
        places: list[Path | None] = [*map(Path, pythons)]
        places += [environment_of(name, announce, platform).path for name in releases]
        for python in places or [None]:
            with XlaParser(python) as parser:
                yield HuntCompiler(python, target, parser.release)


class Judge(ExitStack):
    """The judge of modules for one compiler of one release.

    What is compiled for a CPU, or a GPU that is there, runs; of other chips only the steps do.
    """

    def __init__(
        self,
        compiler: HuntCompiler | None = None,
        passes: Sequence[str] = (),
        deadline: Deadline | None = None,
    ) -> None:
        """`passes` are the only ones to run; without them rules look at what all have made."""
        super().__init__()
        self._only, self._deadline = passes, deadline or Deadline()
        python, target, _ = compiler or HuntCompiler()
        self._is_gpu = target == GPU
        self._chip = None if target in LIMITS else target_of(target)
        self._reference = self._runs = self._plain = self._runner(None, CPU)
        if self._chip is not None:
            platform = "tpu" if self._chip.is_tpu else "cuda"
            self._compiler = self.enter_context(
                XlaCompiler(python, timeout=CHIP_SECONDS, platform=platform, deadline=deadline)
            )
            return
        self._runs = self._runner(python, target)
        self._plain = self._reference if self._is_gpu else self._runs

    def _runner(self, python: Path | None, target: str) -> cpu.XlaCpu:
        seconds, memory, environment = LIMITS[target]
        limits: dict[str, Any] = {"seconds": seconds, "memory": memory, "deadline": self._deadline}
        return self.enter_context(cpu.XlaCpu(python, environment=environment, **limits))

    def __call__(self, text: str) -> JudgeVerdict:
        """The verdict on a module.

        Raises:
            NoTimeLeft: the time for all modules is over.
        """
        module = parse_file(text).modules[0]
        if reason := unfair(module):
            return JudgeVerdict(f"unfair: {reason}")
        with tempfile.TemporaryDirectory(prefix="hlo_lint_", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            verdict = self.bug(text, [hunt_inputs(module, seed) for seed in SEEDS], folder)
            if verdict is None and not self._only:
                verdict = broken_rule(folder)
            # What has no next pass is written from inside of one.
            names = [dump.name for dump in dumped_steps(folder) if dump.name and dump.name.before]
            passes = {name.after for name in names if name.step is not None} - {"pipeline-start"}
        finding = verdict if isinstance(verdict, BugFinding) else None
        outcome = FOUND if isinstance(verdict, BugFinding) else verdict or SAME
        return JudgeVerdict(outcome, tuple(sorted(passes)), finding)

    def bug(self, text: str, inputs: Sequence[Arrays], folder: Path) -> BugFinding | str | None:
        """The bug, or why nothing is known; the dumps are written into the folder."""
        if self._is_gpu and prod(cpu.devices_of(text)) > 1:
            return "it is for several devices"
        compiled = self._compiled(text, inputs, folder)
        if self._only and last_pass(folder) not in self._only:
            return self.by_steps(folder)  # no other pass lowers what is left
        if isinstance(compiled, Ending):
            return self._failed(text, inputs, compiled, folder)
        if not compiled:
            return self.by_steps(folder)
        plain = self._run(self._plain, text, inputs, JUDGE)
        if isinstance(plain, Ending):
            return f"no judge: {plain.message[:60]}"
        differences = (_difference(*pair) for pair in zip(plain, compiled, strict=True))
        difference = next(filter(None, differences), None)
        if difference is None:
            return None
        again = self._run(self._plain, text, inputs, JUDGE)
        if isinstance(again, Ending) or any(map(_difference, plain, again)):
            return BugFinding("unsteady", CODE, "two runs give two results")
        by_steps = self.by_steps(folder)
        if isinstance(by_steps, BugFinding):
            return by_steps
        if any(_rounded.search(dump.module.text) for dump in dumped_steps(folder)):
            return by_steps or "rounding alone"
        return BugFinding("values", "" if by_steps else CODE, difference)

    def _compiled(self, text: str, inputs: Sequence[Arrays], folder: Path) -> list[Arrays] | Ending:
        """The results for each set of inputs, none for what does not run, or how it ends."""
        only = {ONLY_PASSES: ",".join(self._only)} if self._only else {}
        if self._chip is None:
            dumped = {**DUMPED, "xla_dump_to": str(folder), **only}
            return self._run(self._runs, text, inputs, dumped)
        words = [f"--{name}={names}" for name, names in only.items()]
        words = ["--xla_dump_large_constants", f"{DUMPING}{folder}", *words]
        chip, flags, devices = self._chip.description, " ".join(words), cpu.devices_of(text)
        ending = self._compiler.compile(text, chip, flags, devices)
        return [] if ending.status == "ok" else ending

    def _run(
        self, xla: cpu.XlaCpu, text: str, inputs: Sequence[Arrays], flags: Mapping[str, Any]
    ) -> list[Arrays] | Ending:
        """The results for each set of inputs; none for several devices; or how it ends."""
        data, given, devices = encode(text), dict(flags), cpu.devices_of(text)
        is_plain, results = flags is not JUDGE, []
        try:
            if prod(devices) > 1:
                xla.call(cpu.compile_text, data, flags=given, devices=devices)
                return []
            for types, blocks in map(cpu.pack_arrays, inputs):
                answer = xla.call(
                    cpu.run_text, data, *blocks, types=types, flags=given, plain=is_plain
                )
                results.append(cpu.unpack_arrays(*answer))
        except ChildDied as death:
            return Ending.of(death)
        except ChildError as error:
            return Ending("error", f"{error}".partition("\n\nSuspected")[0])
        return results

    def by_steps(self, folder: Path) -> BugFinding | str | None:
        """The first pass after which the dumps compute something else, if it does so twice."""
        changes = []
        for _ in range(2):
            result = validate_dumps("", dumped_steps(folder), self._reference, draw=hunt_value)
            self._deadline.check()
            changes += [one for one in result.changes if one.comparison.difference][:1]
            if not changes:
                reason = (result.notes or ["no dumps"])[0][-60:]
                return None if result.compared else f"not run: {reason}"
        if len(changes) == 1:
            return "the judge is of two minds"
        difference, name = changes[0].comparison.difference, changes[0].after.name
        assert difference is not None
        ends = (difference.before, difference.after)
        if any(isinstance(end, float) and not isfinite(end) for end in ends):
            return "signs of zeros, or NaNs, of floats"
        return BugFinding("values", name.after if name else "", f"{difference}")

    def _failed(
        self, text: str, inputs: Sequence[Arrays], ending: Ending, folder: Path
    ) -> BugFinding | str:
        """The verdict on a module that did not compile; what nobody compiles is refused."""
        if ending.status == "error" and _unsupported.search(ending.message):
            return f"unsupported: {ending.message[:60]}"
        is_refused = ending.status == "refused"
        if ending.status == "error" and not ending.message.startswith("INTERNAL"):
            plain = self._run(self._plain, text, inputs[:1], JUDGE)
            is_refused = isinstance(plain, Ending) and plain.status == "error"
        if is_refused:
            return f"refused: {ending.message[:60]}"
        kind = {"died": "crash", "timeout": "hang"}.get(ending.status, ending.status)
        kind = "memory" if "more memory" in ending.message else kind
        named = _failed_after.search(ending.message)
        return BugFinding(kind, named[1] if named else last_pass(folder), cause_of(ending))


def _difference(ours: Arrays, theirs: Arrays) -> str:
    """The largest difference, in words; empty where there is none."""
    return str(result_difference(ours, theirs, OWN_BOUND) or "")


def hunt_value(shape: ArrayShape, seed: tuple[int, ...], **_: object) -> NDArray[Any]:
    """Values for a parameter: integers are small, at the ends of their types, or any bits."""
    import numpy as np

    plain = value(shape, seed, edges=True)
    if not is_integer(shape.dtype):
        return plain
    random, target = np.random.default_rng(seed), numpy_dtype(shape.dtype)
    any_bits = random.integers(0, 1 << 62, shape.dims).astype(target)
    small = random.integers(-2, 10, shape.dims).astype(target)
    return np.choose(random.integers(0, 3, shape.dims), (plain, any_bits, small)).astype(target)


def hunt_inputs(module: Module, seed: int) -> Arrays:
    """A value for each parameter."""
    shapes = [one.shape for one in module.entry.parameters] if module.entry else []
    return [
        hunt_value(shape, (seed, number, 0))
        for number, shape in enumerate(shapes)
        if isinstance(shape, ArrayShape)
    ]


def dumped_steps(folder: Path) -> list[PassDump]:
    """The dumps of the module, the input first; none where it was not dumped."""
    try:
        dumps = in_order(module_named(folder, None))
    except DumpError:
        return []
    names = [(dump, dump.name) for dump in dumps if dump.name]
    return [dump for dump, name in names if name.step is not None or name.rest.startswith(FIRST)]


def last_pass(folder: Path) -> str:
    """The pass before which the last dump was written."""
    names = [dump.name.before for dump in dumped_steps(folder) if dump.name]
    return (names[-1:] or [""])[0] or ""


def broken_rule(folder: Path) -> BugFinding | None:
    """The first error that a rule finds in a dump."""
    for finding in lint(open_dump(folder)).findings:
        if finding.severity is Severity.ERROR:
            by = finding.introduced_by.pass_name if finding.introduced_by else ""
            return BugFinding(finding.rule, by, skeleton(finding.message))
    return None
