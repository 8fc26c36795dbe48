"""One module judged: compiled with every pass on disk, and its values compared.

The judge of values is XLA:CPU without its passes. Where a compiled module computes something else,
the dumps of the compilation are compared as `hlo-lint validate` does, and the first that differs
names the pass.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import isfinite, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hlo_lint.apps.api import lint
from hlo_lint.apps.hunt.fair import unfair
from hlo_lint.apps.jax.capture.targets import target_of
from hlo_lint.dumps.directory import open_dump
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.selection import FIRST, in_order, main_pipelines
from hlo_lint.engine.reduce.interest import skeleton
from hlo_lint.engine.reduce.values import DUMPING
from hlo_lint.engine.reduce.xla import ONLY_PASSES, cause_of
from hlo_lint.engine.values.compare import Bound, LargestDifference, result_difference
from hlo_lint.engine.values.inputs import value
from hlo_lint.engine.values.programs import JUDGE
from hlo_lint.engine.values.validate import SEEDS, validate_dumps
from hlo_lint.hlo.dtypes import is_integer
from hlo_lint.hlo.parser.literals import numpy_dtype
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.hlo.shape import ArrayShape
from hlo_lint.rules.findings import Severity
from hlo_lint.text.source import encode
from hlo_lint.xla.child import ChildDied, ChildError
from hlo_lint.xla.compiler import Ending, XlaCompiler
from hlo_lint.xla.cpu import (
    SEVERAL_DEVICES,
    XlaCpu,
    compile_text,
    devices_of,
    pack_arrays,
    run_text,
    unpack_arrays,
)
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
ON_GPU: Final = {"JAX_PLATFORMS": "cuda", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
SECONDS: Final = 20.0
"""Time that one small module may take."""
CHIP_SECONDS: Final = 90.0
"""The same for a compiler that is not the CPU's."""
MEMORY: Final = 4 << 30
GPU_MEMORY: Final = 1 << 40
"""CUDA reserves more than it takes."""
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

    @property
    def name(self) -> str:
        """`0.10.2 cpu`."""
        return f"{self.release} {self.target}"


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
        places: list[Path | None] = [Path(python) for python in pythons]
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
        *,
        passes: Sequence[str] = (),
        rules: bool = True,
        deadline: Deadline | None = None,
    ) -> None:
        """`passes` are the only ones to run; `rules` says if dumps are checked, too."""
        super().__init__()
        self._only, self._rules, self._deadline = passes, rules, deadline or Deadline()
        python, target, _ = compiler or HuntCompiler()
        self._is_gpu = target == GPU
        self._reference = self._plain = self._runner(None)
        self._runs = self._reference
        self._chip = None if target in (CPU, GPU) else target_of(target)
        if self._chip is not None:
            platform = "tpu" if self._chip.is_tpu else "cuda"
            self._compiler = self.enter_context(
                XlaCompiler(python, timeout=CHIP_SECONDS, platform=platform, deadline=deadline)
            )
        else:
            self._runs = self._runner(python, on_gpu=self._is_gpu)
            self._plain = self._runs if target == CPU else self._reference

    def _runner(self, python: Path | None, *, on_gpu: bool = False) -> XlaCpu:
        return self.enter_context(
            XlaCpu(
                python,
                seconds=CHIP_SECONDS if on_gpu else SECONDS,
                memory=GPU_MEMORY if on_gpu else MEMORY,
                deadline=self._deadline,
                environment=ON_GPU if on_gpu else SEVERAL_DEVICES,
            )
        )

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
            inputs = [hunt_inputs(module, seed) for seed in SEEDS]
            verdict = self.bug(text, inputs, folder)
            if verdict is None and self._rules:
                verdict = broken_rule(folder)
            passes = tuple(sorted({*passes_in(folder)}))
        if isinstance(verdict, BugFinding):
            return JudgeVerdict(FOUND, passes, verdict)
        return JudgeVerdict(verdict or SAME, passes)

    def bug(self, text: str, inputs: Sequence[Arrays], folder: Path) -> BugFinding | str | None:
        """The bug, or why nothing is known; the dumps are written into the folder."""
        if self._is_gpu and prod(devices_of(text)) > 1:
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
        difference = next(filter(None, map(_differ, plain, compiled)), None)
        if difference is None:
            return None
        again = self._run(self._plain, text, inputs, JUDGE)
        if isinstance(again, Ending) or any(map(_differ, plain, again)):
            return BugFinding("unsteady", CODE, "two runs give two results")
        by_steps = self.by_steps(folder)
        if isinstance(by_steps, BugFinding):
            return by_steps
        if any(_rounded.search(dump.module.text) for dump in dumped_steps(folder)):
            return by_steps or "rounding alone"
        return BugFinding("values", "" if by_steps else CODE, f"{difference}")

    def _compiled(self, text: str, inputs: Sequence[Arrays], folder: Path) -> list[Arrays] | Ending:
        """The results for each set of inputs, none for what does not run, or how it ends."""
        only, devices = ",".join(self._only), devices_of(text)
        if self._chip is not None:
            flags = f"--xla_dump_large_constants {DUMPING}{folder}"
            flags += f" --{ONLY_PASSES}={only}" * bool(only)
            ending = self._compiler.compile(text, self._chip.description, flags, devices)
            return ending if ending.status != "ok" else []
        dumped = {**DUMPED, "xla_dump_to": str(folder), **({ONLY_PASSES: only} if only else {})}
        return self._run(self._runs, text, inputs, dumped, devices)

    def _run(
        self,
        xla: XlaCpu,
        text: str,
        inputs: Sequence[Arrays],
        flags: Mapping[str, Any],
        devices: Sequence[int] = (1, 1),
    ) -> list[Arrays] | Ending:
        """The results for each set of inputs; none for several devices; or how it ends."""
        data, given, results = encode(text), dict(flags), []
        try:
            if prod(devices) > 1:
                xla.call(compile_text, data, flags=given, devices=list(devices))
                return []
            for types, blocks in map(pack_arrays, inputs):
                plain = flags is not JUDGE
                answer = xla.call(run_text, data, *blocks, types=types, flags=given, plain=plain)
                results.append(unpack_arrays(*answer))
        except ChildDied as death:
            status = "timeout" if death.is_late else "died"
            return Ending(status, death.last_words or death.reason, death.log)
        except ChildError as error:
            return Ending("error", f"{error}".partition("\n\nSuspected")[0])
        return results

    def by_steps(self, folder: Path) -> BugFinding | str | None:
        """The first pass after which the dumps compute something else, if it does so twice."""
        changes = []
        for _ in range(2):
            result = validate_dumps("", dumped_steps(folder), self._reference, draw=hunt_value)
            self._deadline.check()
            change = next((one for one in result.changes if one.comparison.difference), None)
            if change is None:
                break
            changes.append(change)
        if len(changes) == 1:
            return "the judge is of two minds"
        if not changes:
            return (
                None if result.compared else f"not run: {(result.notes or ['no dumps'])[0][-60:]}"
            )
        difference = changes[0].comparison.difference
        assert difference is not None
        ends = (difference.before, difference.after)
        if any(isinstance(end, float) and not isfinite(end) for end in ends):
            return "signs of zeros, or NaNs, of floats"
        name = changes[0].after.name
        return BugFinding("values", name.after if name else "", f"{difference}")

    def _failed(
        self, text: str, inputs: Sequence[Arrays], ending: Ending, folder: Path
    ) -> BugFinding | str:
        """The verdict on a module that did not compile; what nobody compiles is refused."""
        if ending.status == "error" and _unsupported.search(ending.message):
            return f"unsupported: {ending.message[:60]}"
        is_refused = ending.status == "refused"
        if ending.status == "error" and not ending.message.startswith("INTERNAL"):
            plain = self._run(self._plain, text, inputs[:1], JUDGE, devices_of(text))
            is_refused = isinstance(plain, Ending) and plain.status == "error"
        if is_refused:
            return f"refused: {ending.message[:60]}"
        kind = {"died": "crash", "timeout": "hang"}.get(ending.status, ending.status)
        named = _failed_after.search(ending.message)
        return BugFinding(
            "memory" if "more memory" in ending.message else kind,
            named[1] if named else last_pass(folder),
            cause_of(ending),
        )


@contextmanager
def judges_of(compilers: Iterable[HuntCompiler], **given: Any) -> Iterator[dict[str, Judge]]:
    """The judges of compilers by their names; arguments are those of `Judge`."""
    with ExitStack() as stack:
        yield {one.name: stack.enter_context(Judge(one, **given)) for one in compilers}


def _differ(ours: Arrays, theirs: Arrays) -> LargestDifference | None:
    return result_difference(ours, theirs, OWN_BOUND)


def hunt_value(shape: ArrayShape, seed: tuple[int, ...], **_: object) -> NDArray[Any]:
    """Values for a parameter: integers are small, at the ends of their types, or any bits."""
    import numpy as np

    plain = value(shape, seed, edges=True)
    if is_integer(shape.dtype):
        random, target = np.random.default_rng(seed), numpy_dtype(shape.dtype)
        any_bits = random.integers(0, 1 << 62, shape.dims).astype(target)
        small = random.integers(-2, 10, shape.dims).astype(target)
        kind = random.integers(0, 3, shape.dims)
        plain = np.where(kind == 0, plain, np.where(kind == 1, any_bits, small)).astype(target)
    return np.asarray(plain)


def hunt_inputs(module: Module, seed: int) -> Arrays:
    """A value for each parameter."""
    parameters = module.entry.parameters if module.entry else ()
    shapes = [one.shape for one in parameters]
    return [
        hunt_value(shape, (seed, number, 0))
        for number, shape in enumerate(shapes)
        if isinstance(shape, ArrayShape)
    ]


def dumped_steps(folder: Path) -> list[PassDump]:
    """The dumps of the module, the input first."""
    pipelines = main_pipelines(open_dump(folder))
    if not pipelines:
        return []
    dumps = in_order(max(pipelines, key=lambda pipeline: len(pipeline.dumps)))
    first = [one for one in dumps if one.name and one.name.rest.startswith(FIRST)]
    return first + [one for one in dumps if one.name and one.name.step is not None]


def passes_in(folder: Path) -> Iterator[str]:
    """The passes that changed something; what has no next one is written from inside a pass."""
    for dump in dumped_steps(folder):
        name = dump.name
        if name and name.step is not None and name.before and name.after != "pipeline-start":
            yield name.after


def last_pass(folder: Path) -> str:
    """The pass before which the last dump was written."""
    dumps = dumped_steps(folder)
    name = dumps[-1].name if dumps else None
    return (name.before or "") if name is not None else ""


def broken_rule(folder: Path) -> BugFinding | None:
    """The first error that a rule finds in a dump."""
    for finding in lint(open_dump(folder)).findings:
        if finding.severity is Severity.ERROR:
            by = finding.introduced_by.pass_name if finding.introduced_by else ""
            return BugFinding(finding.rule, by, skeleton(finding.message))
    return None
