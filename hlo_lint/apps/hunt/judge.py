"""One module judged: compiled with every pass on disk, and its values compared.

The judge of values is XLA:CPU without its passes. Where a compiled module computes something else,
the dumps of the compilation run there one by one, and the first that differs from the input names
the pass. Floats run in f64, so that rounding makes none.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hlo_lint.apps.api import lint
from hlo_lint.apps.hunt.fair import unfair
from hlo_lint.dumps.directory import open_dump
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.selection import FIRST, in_order, main_pipelines
from hlo_lint.engine.reduce.interest import skeleton
from hlo_lint.engine.reduce.values import DUMPING
from hlo_lint.engine.reduce.xla import ONLY_PASSES, cause_of
from hlo_lint.engine.values.bounds import WIDE_BOUND, all_nodes
from hlo_lint.engine.values.compare import Bound, LargestDifference, result_difference
from hlo_lint.engine.values.inputs import value
from hlo_lint.engine.values.lowering.emit import WIDE, emit_graph
from hlo_lint.engine.values.lowering.graph import Nodes, NotLowered
from hlo_lint.engine.values.lowering.lower import Lowering
from hlo_lint.engine.values.programs import JUDGE, in_types, incomparable
from hlo_lint.hlo.dtypes import FLOATS, PART_OF_COMPLEX, is_integer
from hlo_lint.hlo.parser.literals import numpy_dtype
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.hlo.shape import ArrayShape
from hlo_lint.rules.findings import Severity
from hlo_lint.text.errors import DumpError
from hlo_lint.text.source import encode
from hlo_lint.xla.child import Child, ChildDied, ChildError
from hlo_lint.xla.compiler import Ending, XlaCompiler
from hlo_lint.xla.cpu import NotRun, XlaCpu, load_runtime, pack_arrays, run_text, unpack_arrays
from hlo_lint.xla.limits import ChildLimits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hlo_lint.apps.jax.capture.targets import Chip
    from hlo_lint.engine.values.lowering.program import Program
    from hlo_lint.hlo.ir import Module

    Arrays = list[NDArray[Any]]

SEEDS: Final = (0, 1)
SECONDS: Final = 20.0
"""Time that one small module may take."""
CHIP_SECONDS: Final = 90.0
"""The same for a compiler that is not the CPU's."""
MEMORY: Final = 4 << 30
DUMPED: Final[Mapping[str, bool | int | str]] = {
    "xla_dump_hlo_as_text": True,
    "xla_dump_hlo_pass_re": ".*",
    "xla_dump_large_constants": True,
    "xla_allow_excess_precision": False,
}
OWN_BOUND: Final = Bound(relative=2.0**-4, of_largest=2.0**-4)
"""Floats in their own types are looked at in f64 where they differ by more."""
FOUND: Final = "found"
SAME: Final = "same"
CODE: Final = "code generation"
"""The pass of what no dump shows."""
_failed_after = re.compile(r"Failed after (\S+)")
_unsupported = re.compile("UNIMPLEMENTED|[Uu]nsupported|not (yet )?(supported|implemented)")


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
        if self.kind == "values":
            return f"values {self.pass_name}"
        return f"{self.kind} {self.pass_name} {self.message}"


@dataclass(frozen=True)
class JudgeVerdict:
    """The verdict on one module."""

    outcome: str
    """`same`, `found`, `refused`, `unsupported`, `unfair`, or the reason why nothing is known."""
    passes: frozenset[str] = frozenset()
    """The passes that changed something."""
    finding: BugFinding | None = None


class Judge(AbstractContextManager["Judge"], ABC):
    """The judge of modules for one compiler of one release."""

    def __init__(self, *, passes: Sequence[str] = (), rules: bool = True) -> None:
        """`passes` are the only ones to run; `rules` says if dumps are checked, too."""
        self._only = ",".join(passes)
        self._stack = ExitStack()
        self._reference = self._stack.enter_context(XlaCpu(seconds=SECONDS, memory=MEMORY))
        self._rules = rules

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __call__(self, text: str) -> JudgeVerdict:
        """The verdict on a module."""
        module = parse_file(text).modules[0]
        if reason := unfair(module):
            return JudgeVerdict(f"unfair: {reason}")
        folder = Path(tempfile.mkdtemp(prefix="hlo_lint_"))
        try:
            verdict = self._judged(text, [hunt_inputs(module, seed) for seed in SEEDS], folder)
            if verdict.outcome == SAME and self._rules and (finding := broken_rule(folder)):
                return JudgeVerdict(FOUND, verdict.passes, finding)
            return verdict
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @abstractmethod
    def _judged(self, text: str, inputs: Sequence[Arrays], folder: Path) -> JudgeVerdict:
        """The verdict on a module that is fair; the dumps are written into the folder."""

    def _by_steps(self, inputs: Sequence[Arrays], folder: Path) -> JudgeVerdict:
        """The verdict on what the dumps compute."""
        passes = frozenset(passes_in(folder))
        steps = Steps(self._reference, dumped_steps(folder))
        change = steps.first_change(inputs)
        if isinstance(change, BugFinding) and steps.first_change(inputs) != change:
            return JudgeVerdict("the judge is of two minds", passes)
        if isinstance(change, BugFinding):
            return JudgeVerdict(FOUND, passes, change)
        if change is None and len(steps.programs) < 2 and steps.skipped:
            return JudgeVerdict(f"not run: {steps.skipped[0][-60:]}", passes)
        return JudgeVerdict(change or SAME, passes)

    def _compiled_otherwise(self, text: str, inputs: Sequence[Arrays]) -> bool:
        """True if a text compiles that did not compile with every pass."""
        try:
            self._reference.run(text, inputs[0], flags=JUDGE)
        except NotRun:
            return False
        return True

    def _failed(
        self, text: str, inputs: Sequence[Arrays], ending: Ending, folder: Path
    ) -> JudgeVerdict:
        """The verdict on a module that did not compile, or did not run."""
        passes = frozenset(passes_in(folder))
        if ending.status == "refused":
            return JudgeVerdict(f"refused: {ending.message[:60]}")
        if ending.status == "error":
            if _unsupported.search(ending.message):
                return JudgeVerdict(f"unsupported: {ending.message[:60]}", passes)
            is_check = ending.message.startswith("INTERNAL")
            if not is_check and not self._compiled_otherwise(text, inputs):
                return JudgeVerdict(f"refused: {ending.message[:60]}", passes)
        kinds = {"died": "crash", "timeout": "hang"}
        kind = kinds.get(ending.status, ending.status)
        if "more memory" in ending.message:
            kind = "memory"
        named = _failed_after.search(ending.message)
        by = named[1] if named else last_pass(folder)
        return JudgeVerdict(FOUND, passes, BugFinding(kind, by, cause_of(ending)))


class CpuJudge(Judge):
    """XLA:CPU of one release: what it compiles runs, too."""

    def __init__(
        self,
        python: Path | str | None = None,
        *,
        passes: Sequence[str] = (),
        rules: bool = True,
    ) -> None:
        """`python` is an interpreter with the jaxlib to judge; None for this one."""
        super().__init__(passes=passes, rules=rules)
        self._xla = self._stack.enter_context(
            Child(
                python,
                limits=ChildLimits.by_default(SECONDS, MEMORY),
                setup=load_runtime,
                environment={"JAX_ENABLE_X64": "1", "OPENBLAS_NUM_THREADS": "1"},
            )
        )

    def _judged(self, text: str, inputs: Sequence[Arrays], folder: Path) -> JudgeVerdict:
        dumped = {**DUMPED, "xla_dump_to": str(folder)}
        if self._only:
            dumped[ONLY_PASSES] = self._only
        compiled = self._run(text, inputs, dumped, plain=True)
        if self._only and last_pass(folder) not in self._only.split(","):
            return self._by_steps(inputs, folder)  # no other pass lowers what is left
        if isinstance(compiled, Ending):
            return self._failed(text, inputs, compiled, folder)
        plain = self._run(text, inputs, JUDGE)
        passes = frozenset(passes_in(folder))
        if isinstance(plain, Ending):
            return JudgeVerdict(f"no judge: {plain.message[:60]}", passes)
        if any(map(_differ, plain, compiled)):
            return self._divergence(text, inputs, plain, compiled, folder, passes)
        return JudgeVerdict(SAME, passes)

    def _compiled_otherwise(self, text: str, inputs: Sequence[Arrays]) -> bool:
        plain = self._run(text, inputs, JUDGE)
        return not (isinstance(plain, Ending) and plain.status == "error")

    def _run(
        self, text: str, inputs: Sequence[Arrays], flags: Mapping[str, Any], *, plain: bool = False
    ) -> list[Arrays] | Ending:
        """The results for each set of inputs, or the end of the compilation."""
        results = []
        try:
            for arrays in inputs:
                types, blocks = pack_arrays(arrays)
                answer = self._xla.call(
                    run_text, encode(text), *blocks, types=types, flags=dict(flags), plain=plain
                )
                results.append(unpack_arrays(*answer))
        except ChildDied as death:
            status = "timeout" if death.is_late else "died"
            return Ending(status, death.last_words or death.reason, death.log)
        except ChildError as error:
            return Ending("error", f"{error}".partition("\n\nSuspected")[0])
        return results

    def _divergence(
        self,
        text: str,
        inputs: Sequence[Arrays],
        plain: list[Arrays],
        compiled: list[Arrays],
        folder: Path,
        passes: frozenset[str],
    ) -> JudgeVerdict:
        again = self._run(text, inputs, JUDGE)
        if isinstance(again, Ending) or any(map(_differ, plain, again)):
            return JudgeVerdict(
                FOUND, passes, BugFinding("unsteady", CODE, "two runs give two results")
            )
        steps = Steps(self._reference, dumped_steps(folder))
        change = steps.first_change(inputs)
        if isinstance(change, str):
            return JudgeVerdict(change, passes)
        if change is not None:
            return JudgeVerdict(FOUND, passes, change)
        number = next(
            n for n, (a, b) in enumerate(zip(plain, compiled, strict=True)) if _differ(a, b)
        )
        difference = _differ(plain[number], compiled[number])
        first = steps.first(inputs[number])
        if first is None:
            return JudgeVerdict("the input does not run alone", passes)
        is_whole = steps.is_exact and _differ(first, plain[number]) is None
        if not is_whole or difference is None:
            return JudgeVerdict("rounding alone", passes)
        return JudgeVerdict(FOUND, passes, BugFinding("values", CODE, f"{difference}"))


class ChipJudge(Judge):
    """XLA's compiler for a GPU or a TPU that is not there: only its steps run."""

    def __init__(
        self,
        python: Path | None,
        chip: Chip,
        *,
        passes: Sequence[str] = (),
        rules: bool = True,
    ) -> None:
        """`python` is an interpreter with the compiler for the chip; None for this one."""
        super().__init__(passes=passes, rules=rules)
        platform = "tpu" if chip.is_tpu else "cuda"
        self._compiler = self._stack.enter_context(
            XlaCompiler(python, timeout=CHIP_SECONDS, platform=platform)
        )
        self._chip = chip

    def _judged(self, text: str, inputs: Sequence[Arrays], folder: Path) -> JudgeVerdict:
        flags = f"--xla_dump_large_constants {DUMPING}{folder}"
        if self._only:
            flags = f"--{ONLY_PASSES}={self._only} {flags}"
        ending = self._compiler.compile(text, self._chip.description, flags)
        is_partial = self._only and last_pass(folder) not in self._only.split(",")
        if ending.status != "ok" and not is_partial:
            return self._failed(text, inputs, ending, folder)
        return self._by_steps(inputs, folder)


@dataclass
class Steps:
    """The dumps of a compilation, run one by one by XLA:CPU without its passes."""

    reference: XlaCpu
    dumps: Sequence[PassDump]
    skipped: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.programs = list(self._programs())

    def _programs(self) -> Iterator[tuple[str, Program]]:
        nodes = Nodes(self.reference.limits.deadline)
        first = last = None
        for dump in self.dumps:
            try:
                program = Lowering(dump.module, nodes, frozenset()).program()
            except (DumpError, NotLowered, OSError, ValueError) as error:
                self.skipped.append(f"{dump.path.name}: {error}")
                continue
            first = first or program
            if program.cuts or (reason := incomparable(first, program)):
                reason = program.cuts[0].what if program.cuts else reason
                self.skipped.append(f"{dump.path.name}: {reason}")
            elif last is not program.graph:
                last = program.graph
                yield (dump.name.after if dump.name else "", program)

    @property
    def is_exact(self) -> bool:
        """True if no step computes with floats."""
        return not any(
            any(shape.dtype in FLOATS or shape.dtype in PART_OF_COMPLEX for shape in node.shapes)
            for _, program in self.programs
            for node in all_nodes(program)
        )

    def first(self, inputs: Arrays) -> Arrays | None:
        """The results of the input in its own types."""
        return self._values(self.programs[0][1], inputs, {}) if self.programs else None

    def first_change(self, inputs: Sequence[Arrays]) -> BugFinding | str | None:
        """The first step that computes something else, or the reason why that is not known."""
        for arrays in inputs:
            results: list[tuple[str, Arrays]] = []
            ends = [*self.programs[:1], *self.programs[1:][-1:]]
            for name, program in ends:
                if (values := self._values(program, arrays, WIDE)) is not None:
                    results.append((name, values))
            if len(results) < 2 or _wide_difference(results[0][1], results[1][1]) is None:
                continue
            results = [
                (name, values)
                for name, program in self.programs
                if (values := self._values(program, arrays, WIDE)) is not None
            ]
            for (_, before), (name, after) in pairwise(results):
                difference = _wide_difference(before, after)
                if difference is None:
                    continue
                if _is_sign_or_special(difference):
                    return "signs of zeros, or NaNs, of floats"
                return BugFinding("values", name, f"{difference}")
        return None

    def _values(self, program: Program, inputs: Arrays, types: Mapping[str, str]) -> Arrays | None:
        if program.endless:
            return None
        try:
            arguments = in_types(inputs, program, types)
            text = emit_graph(program.graph, types)
            return self.reference.run(text, arguments, flags=JUDGE)
        except NotRun as error:
            self.skipped.append(str(error))
            return None


def _differ(ours: Arrays, theirs: Arrays) -> LargestDifference | None:
    return result_difference(ours, theirs, OWN_BOUND)


def _wide_difference(ours: Arrays, theirs: Arrays) -> LargestDifference | None:
    return result_difference(ours, theirs, WIDE_BOUND)


def _is_sign_or_special(difference: LargestDifference) -> bool:
    """True for infinities of two signs, and where one side is a NaN and the other is none."""
    from math import isfinite

    both = difference.before, difference.after
    return any(isinstance(one, float) and not isfinite(one) for one in both)


def hunt_inputs(module: Module, seed: int) -> Arrays:
    """Values for the parameters: integers are small, at the ends of their types, or any bits."""
    import numpy as np

    arrays: Arrays = []
    for number, parameter in enumerate(module.entry.parameters if module.entry else ()):
        shape = parameter.shape
        assert isinstance(shape, ArrayShape)
        plain = value(shape, (seed, number), edges=True)
        if is_integer(shape.dtype):
            random = np.random.default_rng((seed, number))
            target = numpy_dtype(shape.dtype)
            any_bits = random.integers(0, 1 << 62, shape.dims).astype(target)
            small = random.integers(-2, 10, shape.dims).astype(target)
            kind = random.integers(0, 3, shape.dims)
            plain = np.where(kind == 0, plain, np.where(kind == 1, any_bits, small)).astype(target)
        arrays.append(np.asarray(plain))
    return arrays


def dumped_steps(folder: Path) -> list[PassDump]:
    """The dumps of the module, the input first."""
    pipelines = main_pipelines(open_dump(folder))
    if not pipelines:
        return []
    dumps = in_order(max(pipelines, key=lambda pipeline: len(pipeline.dumps)))
    first = [one for one in dumps if one.name and one.name.rest.startswith(FIRST)]
    return first + [one for one in dumps if one.name and one.name.step is not None]


def passes_in(folder: Path) -> Iterator[str]:
    """The passes that changed something."""
    for pipeline in main_pipelines(open_dump(folder)):
        for dump in pipeline.dumps:
            name = dump.name
            if name is None or name.step is None or not name.before:
                continue  # an artefact, or written from inside a pass
            if name.after and name.after != "pipeline-start":
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
