"""The verdict on a single kernel: compiled alone, run, compared with the judge.

The judge is XLA:CPU without its passes, on a text that is lowered to plain operations. A kernel is
wrong if it is beyond the rounding of its own types on every input that shows the difference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from hlo_lint.engine.isolation.cut import NOT_ALONE, KernelCut
from hlo_lint.engine.values.bounds import fallback_bound
from hlo_lint.engine.values.compare import LargestDifference, array_difference, result_difference
from hlo_lint.engine.values.inputs import EDGES, value
from hlo_lint.engine.values.lowering.cuts import WITH_SCRATCH
from hlo_lint.engine.values.lowering.emit import NATIVE, WIDE, emit_graph
from hlo_lint.engine.values.lowering.graph import Nodes, NotLowered
from hlo_lint.engine.values.lowering.lower import Lowering
from hlo_lint.engine.values.programs import CONSTANT_ROUNDINGS, MAX_INPUT_BYTES, Runs, in_types
from hlo_lint.hlo.dtypes import is_float
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.parser.literals import AnyArray
from hlo_lint.hlo.shape import arrays
from hlo_lint.xla.compiler import Ending
from hlo_lint.xla.cpu import JUDGE, NotRun

if TYPE_CHECKING:
    from hlo_lint.engine.values.lowering.program import Program
    from hlo_lint.xla.cpu import XlaCpu

SEEDS: Final = (0, 1, 2)
"""The sets of inputs: of both signs, positive, and negative."""
LARGE: Final = 1 << 20
"""Kernels with more bytes of inputs get the first two sets."""
_of_loop = re.compile(r'"dynamic_slice_config":\{[^}]*"loop_index"').search
"""The configuration of a slice whose offset XLA:GPU computes from the loop around it."""
is_unregistered = re.compile(
    r"No (?:FFI handler registered|registered implementation)|Failed to lookup host symbol|"
    r"Failed to parse (?:Triton|Mosaic GPU) module"
).search
"""Custom calls of jax and of its users: their processes register them, and a text does not keep the
bytes of their kernels."""


class AloneStatus(Enum):
    """The outcome of a kernel, as reports spell it."""

    RIGHT = "right"
    WRONG = "wrong"
    REFUSED = "refused"
    DIED = "died"
    COMPILES = "compiled"
    NOT_ASKED = "not asked"


@dataclass(frozen=True)
class KernelVerdict:
    """The verdict on a kernel."""

    cut: KernelCut
    status: AloneStatus
    message: str = ""
    """XLA's words, or the reason why the kernel was not compiled or not run."""
    difference: LargestDifference | None = None
    seed: int = 0

    @property
    def is_bad(self) -> bool:
        """True if XLA does not compile the kernel, or computes something else."""
        return self.status in (AloneStatus.WRONG, AloneStatus.REFUSED, AloneStatus.DIED)


class KernelCompiler(Protocol):
    """A compiler of kernels of a release for a chip; several threads may call it."""

    runs: bool
    """True if the chip is here."""

    def compile(self, cut: KernelCut) -> Ending:
        """Compile a kernel as the release does at the end of its passes."""

    def run(self, cut: KernelCut, inputs: Sequence[AnyArray]) -> list[AnyArray]:
        """The results of the compiled kernel, the leaves of its root in order.

        Raises:
            NotRun: it does not run.
        """


def judge_kernel(cut: KernelCut, compiler: KernelCompiler, judge: XlaCpu) -> KernelVerdict:
    """The verdict on a kernel."""
    if compiler.runs and (reason := reason_not_alone(cut)):
        return KernelVerdict(cut, AloneStatus.NOT_ASKED, reason)
    ending = compiler.compile(cut)
    if ending.status in ("unknown", "refused", "timeout") or is_unregistered(ending.message):
        return KernelVerdict(cut, AloneStatus.NOT_ASKED, ending.message)
    if ending.status != "ok":
        status = AloneStatus.REFUSED if ending.status == "error" else AloneStatus.DIED
        return KernelVerdict(cut, status, ending.message)
    if not compiler.runs:
        return KernelVerdict(cut, AloneStatus.COMPILES)
    try:
        return _compared(cut, compiler, judge)
    except (NotLowered, NotRun) as error:
        return KernelVerdict(cut, AloneStatus.COMPILES, f"not run: {error}")


def reason_not_alone(cut: KernelCut) -> str:
    """The reason why the results of a kernel alone decide nothing; empty if they decide."""
    rows = [row for _, row in cut.draft.places()]
    if needs := {row.opcode for row in rows} & NOT_ALONE:
        return f"{min(needs)} does not run alone"
    if cut.instruction.opcode == "while":
        # Rounding grows from iteration to iteration: a recurrent network on an H100 is not wrong.
        has_floats = any(is_float(leaf.dtype) for leaf in arrays(cut.instruction.shape))
        return "a loop of floats is judged by its kernels" if has_floats else ""
    if any(_of_loop(row.attributes_text) for row in rows):
        # XLA:GPU copies such a slice, with an offset that it counts from the iteration.
        return "its offset is that of an iteration of a loop"
    return ""


def _compared(cut: KernelCut, compiler: KernelCompiler, judge: XlaCpu) -> KernelVerdict:
    program = Lowering(cut.module, Nodes()).program()
    if program.cuts:
        raise NotRun(f"{program.cuts[0].what} has no meaning in HLO")
    if program.endless:
        raise NotRun(program.endless[0][1])
    runs, seeds = Runs(judge), list(SEEDS)
    if not any(is_float(shape.dtype) for node in program.nodes for shape in node.shapes):
        seeds.append(EDGES)  # the sum of an infinity and a NaN is the licence of an emitter
    for seed in seeds:
        drawn = runs.inputs(program.inputs, seed)
        if sum(array.nbytes for array in drawn) > LARGE and seed not in SEEDS[:2]:
            break
        results = compiler.run(cut, _all_inputs(cut.module, program, drawn, seed))
        difference = _beyond_bound(program, drawn, results, judge, cut.instruction)
        if difference is not None:
            return KernelVerdict(cut, AloneStatus.WRONG, "", difference, seed)
    return KernelVerdict(cut, AloneStatus.RIGHT)


def _all_inputs(
    module: Module, program: Program, drawn: Sequence[AnyArray], seed: int
) -> list[AnyArray]:
    """A value for each parameter of the module, those that nothing reads too."""
    by_leaf = {given.leaf: array for given, array in zip(program.inputs, drawn, strict=True)}
    assert module.entry is not None
    leaves = [leaf for row in module.entry.parameters for leaf in arrays(row.shape)]
    if sum(leaf.byte_size or 0 for leaf in leaves) > MAX_INPUT_BYTES:
        raise NotRun(f"its inputs are more than {MAX_INPUT_BYTES >> 20} MB")
    return [
        value(leaf, (seed, number)) if (own := by_leaf.get(number)) is None else own
        for number, leaf in enumerate(leaves)
    ]


def _beyond_bound(
    program: Program,
    inputs: Sequence[AnyArray],
    results: list[AnyArray],
    judge: XlaCpu,
    kernel: Instruction,
) -> LargestDifference | None:
    """The largest difference of results beyond rounding; None if they keep the bound."""
    from numpy import errstate, isfinite, where

    def truth(types: Mapping[str, str]) -> list[AnyArray]:
        text = emit_graph(program.graph, types)
        return judge.run(text, in_types(inputs, program, types), flags=JUDGE)

    native, bound = truth(NATIVE), fallback_bound(program, program)
    if kernel.opcode == "custom-call":
        is_bytes = len(results) > 1 and results[-1].dtype.kind in "iu"
        if is_bytes and kernel.custom_call_target.startswith(WITH_SCRATCH):
            native, results = native[:-1], results[:-1]  # a workspace, which nothing reads
        # A library may solve a singular system as it likes: cuBLAS gives inf for NaN.
        pairs = zip(native, results, strict=True)
        results = [
            where(isfinite(own), other, own) if own.dtype.kind in "fc" else other
            for own, other in pairs
        ]
    difference = result_difference(native, results, bound)
    if difference is None:
        return None
    number = difference.output
    try:
        wide = truth(WIDE)[number]
    except NotRun:
        return difference
    with errstate(over="ignore"):  # a number too large for the type becomes infinite
        exact = wide.astype(results[number].dtype)
    again = array_difference(exact, results[number], bound, number)
    own = array_difference(exact, native[number])
    if again is None or (own and CONSTANT_ROUNDINGS * own.error >= again.error):
        return None
    return difference
