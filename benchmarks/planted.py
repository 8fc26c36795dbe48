"""Errors planted in one step of a healthy run are found, and rewrites are not: `PLANTED.md`.

    python -m benchmarks.planted [--count N] [--corpora FOLDER] [--archives FOLDER] [FOLDER...]

N errors and N rewrites that preserve every value (`benchmarks/plants.py`), as one pass would make
them: what is planted stays in every later dump. Bisection has to name the step of an error, and no
step for a rewrite. Half of them are planted in dumps, half in runs of four steps, which are made of
one text of XLA's tests; there a rewrite comes before each error. An error counts if results differ
on some of 32 sets of inputs, with those passes off that XLA:CPU can do without, and if it does
not depend on numbers that the text leaves out; a rewrite if the graphs differ and both modules ran.
With `--state` outcomes are kept, and a run that was stopped goes on; the page is about all of them,
with `--count 0` about those of earlier runs alone.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import hlo_lint
from benchmarks.corpora import texts_of
from benchmarks.plants import EDITS, REWRITES, Edit
from benchmarks.values import State, Verdict, folders_of, gather, opened, parser_of, xla_cpu
from hlo_lint.dumps.names import parse_name
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.selection import in_order
from hlo_lint.engine.values.bounds import WIDE_BOUND
from hlo_lint.engine.values.comparable import incomparable, left_out
from hlo_lint.engine.values.compare import Bound, result_difference
from hlo_lint.engine.values.inputs import EDGES, value
from hlo_lint.engine.values.lowering.emit import NATIVE, WIDE, emit_graph
from hlo_lint.engine.values.lowering.graph import Nodes, NotLowered
from hlo_lint.engine.values.lowering.lower import Lowering
from hlo_lint.engine.values.lowering.program import Input, Program
from hlo_lint.engine.values.lowering.shards import ProgramShardings
from hlo_lint.engine.values.programs import UNDECIDED, Runs, StepOutcome, in_types
from hlo_lint.engine.values.validate import validate_dumps
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.parser.literals import numpy_dtype
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.text.errors import DumpError
from hlo_lint.xla.cpu import JUDGE, NotRun, XlaCpu

RESULTS = Path(__file__).parent / "PLANTED.md"
ERROR: Final = "error"
REWRITE: Final = "rewrite"
KINDS: Final = {ERROR: EDITS, REWRITE: REWRITES}
MAX_TEXT = 40_000
"""Characters of a step that gets an error: larger ones take minutes to compile."""
SEEDS: Final = 7
"""Sets of inputs that tell an error from an edit that changes no value: half of a symmetric matrix,
say."""
DRAWS: Final = 24
"""Sets of numbers of every size, for errors that ordinary numbers do not show."""
OWN_BOUND: Final = Bound(relative=2.0**-3, of_largest=2.0**-6)
"""The difference of floats in their own types that is more than rounding."""
MAX_TRIES = 60
"""Steps that are tried for each error: not every step holds an instruction for it."""
MAX_STEPS = 16
"""Steps of a run, which are drawn where it has more."""
STEPS = tuple(
    f"module_0000.m.000{number}.pipeline.after_p{number}.before_p{number + 1}.txt"
    for number in range(4)
)
"""The file names of a run that is made of one text."""


@dataclass(frozen=True)
class Planted:
    """One planted edit, and what came of it."""

    kind: str
    where: str
    """The module, the step and the instruction."""
    is_right: bool
    outcome: str
    """The steps that were reported instead, and the notes."""
    is_dump: bool


@dataclass(frozen=True)
class Run:
    """The steps of one compilation, or of one text."""

    title: str
    dumps: Sequence[PassDump]
    text: str = ""
    """The text, whose steps are made when they are asked for; empty for dumps."""

    def steps(self) -> list[PassDump]:
        """The dumps, in the order of the run."""
        return list(self.dumps) or [
            PassDump(Path(name), parse_name(name), _file=parse_file(self.text, Path(name)))
            for name in STEPS
        ]


def planted(
    runs: Sequence[Sequence[Run]], number: int, seed: int, what: str, xla: XlaCpu
) -> Planted | None:
    """Plant an edit in a random step, of each kind in turn; None if no step takes one."""
    choice = random.Random(f"{seed} {what} {number}")
    kinds = list(KINDS[what])
    source, turn = runs[number % len(runs)], number // len(runs)
    for attempt in range(2 * MAX_TRIES):
        # Some kinds are rare: few steps hold a comparison.
        kind = kinds[turn % len(kinds)] if attempt < MAX_TRIES else choice.choice(kinds)
        outcome = _planted(choice.choice(source), what, kind, choice, xla)
        if outcome is not None:
            return outcome
    return None


def _planted(run: Run, what: str, kind: str, choice: random.Random, xla: XlaCpu) -> Planted | None:
    dumps = run.steps()
    start = choice.randrange(max(len(dumps) - MAX_STEPS, 0) + 1)
    dumps = dumps[start : start + MAX_STEPS]
    at = choice.randrange(1, len(dumps))
    if what == ERROR and run.text and at > 1:
        rewrite = choice.choice(list(REWRITES.values()))
        rewritten = edited(dumps[1].module, rewrite, choice, None)
        dumps[1:] = dumps[1:] if rewritten is None else with_text(dumps[1:], rewritten[1])
    planting = edited(dumps[at].module, KINDS[what][kind], choice, xla if what == ERROR else None)
    if planting is None:
        return None
    instruction, text = planting
    dumps[at:] = with_text(dumps[at:], text)
    validation = validate_dumps(run.title, dumps, xla)
    missing = (StepOutcome.NOT_RUN, StepOutcome.NOT_LOWERED)
    if what == REWRITE and validation.steps[at].comparison.outcome in missing:
        return None
    step = dumps[at].path.name
    reported = [change.after.path.name for change in validation.changes]
    is_right = reported == ([step] if what == ERROR else [])
    outcome = f"reported {reported}; {'; '.join(validation.notes)[:200]}"
    if not is_right and what == ERROR:
        seeds = range(SEEDS)
        again = validate_dumps(run.title, dumps, xla, seeds=seeds)
        shows = [change.after.path.name for change in again.changes] == [step]
        outcome += f"; {'found' if shows else 'not found'} with --seeds {len(seeds)}"
    where = f"{run.title} {step.removeprefix(run.title)[:40]} %{instruction.name}"
    return Planted(kind, where, is_right, outcome, not run.text)


def with_text(dumps: Sequence[PassDump], text: str) -> list[PassDump]:
    return [PassDump(dump.path, dump.name, _file=parse_file(text, dump.path)) for dump in dumps]


def edited(
    module: Module,
    edit: Edit,
    choice: random.Random,
    xla: XlaCpu | None,
    layout: ProgramShardings | None = None,
) -> tuple[Instruction, str] | None:
    """A text with one edit, and the instruction that has it; with `xla` one that changes values.

    With `layout` the module has the parts of its arrays.
    """
    instructions = list(_live(module))
    choice.shuffle(instructions)
    for instruction in instructions:
        line = edit(instruction, choice)
        if line is None or line == instruction.text:
            continue
        start, end = module.span(instruction)
        whole = module.file.text
        text = whole[:start] + line + whole[end:]
        programs = _other_programs(module, text, layout)
        if programs and (xla is None or _changes_values(programs, xla)):
            return instruction, text
    return None


def _live(module: Module) -> Iterator[Instruction]:
    """The instructions that the result depends on."""
    for computation in module.computations:
        live, queue = set(), [computation.root] if computation.root else []
        for instruction in queue:
            if instruction in live:
                continue
            live.add(instruction)
            queue += [each.instruction for each in instruction.operands if each.instruction]
        yield from sorted(live, key=lambda each: each.number)


def _other_programs(module: Module, text: str, layout: ProgramShardings | None) -> list[Program]:
    """The programs of a module and of an edit of it; none for an edit that may change no value.

    Nothing reads its computation, or numbers that the text leaves out may make it right:
    `a + constant({...})` is `a` for zeros.
    """
    nodes = Nodes()
    try:
        before, after = (
            Lowering(each, nodes, layout=layout, is_partitioned=layout is not None).program()
            for each in (module, hlo_lint.parse(text))
        )
    except (DumpError, NotLowered):
        return []
    if before.graph is after.graph or incomparable(before, after):
        return []
    if left_out(before) != left_out(after):
        return []
    return [before, after]


def _changes_values(programs: Sequence[Program], xla: XlaCpu) -> bool:
    """True if results differ on some inputs, with those passes off that XLA:CPU can do without."""
    is_undefined = any(decides(*programs) for decides, _ in UNDECIDED)
    has_loop = any(node.opcode == "while" for side in programs for node in side.nodes)
    constants = [
        number
        for side in programs
        for node in side.nodes
        if node.literal is not None and node.literal.size == 1 and node.literal.dtype.kind in "iuf"
        for number in (float(node.literal.reshape(-1)[0]),)
        if abs(number) < 1 << 40
    ]
    try:
        for seed in (*range(SEEDS), EDGES, *range(-DRAWS, 0)):
            if seed == EDGES and is_undefined:
                continue
            parameters = programs[0].inputs
            inputs = (
                [_drawn(each, -seed, constants, has_loop) for each in parameters]
                if seed < 0
                else Runs(xla).inputs(parameters, seed)
            )
            for types in (WIDE, NATIVE) if seed < 0 else (WIDE,):
                sides = [
                    xla.run(
                        emit_graph(side.graph, types), in_types(inputs, side, types), flags=JUDGE
                    )
                    for side in programs
                ]
                # A sum in another order is rounded otherwise, and is none.
                bound = WIDE_BOUND if types else OWN_BOUND
                if result_difference(sides[0], sides[1], bound) is not None:
                    return True
    except NotRun:
        return False
    return False


def _drawn(parameter: Input, seed: int, constants: Sequence[float], has_loop: bool) -> NDArray[Any]:
    """Numbers of every size, and those of the program; this code shares none with `validate`."""
    if parameter.given or (has_loop and parameter.shape.dtype[0] in "su"):
        return value(parameter.shape, (seed % 7, parameter.leaf), limit=parameter.limit)
    choice = np.random.default_rng((seed, parameter.leaf, 5))
    dtype, dims = np.dtype(numpy_dtype(parameter.shape.dtype)), parameter.shape.dims
    if parameter.shape.dtype == "pred":
        return choice.integers(0, 2, dims).astype(bool)
    with np.errstate(all="ignore"):
        sizes = 2.0 ** choice.integers(-3, 62 if dtype.kind in "iu" else 9, dims)
        numbers = choice.standard_normal(dims) * sizes
        near = choice.choice(np.array([0.0, *constants]), dims) + choice.integers(-1, 2, dims)
        mixed = np.where(choice.integers(0, 2, dims) == 0, numbers, near)
        if dtype.kind == "u":
            mixed = abs(mixed)
        if dtype.kind in "iu":
            ends = np.iinfo(dtype)
            mixed = np.clip(mixed, max(float(ends.min), -(2.0**62)), min(float(ends.max), 2.0**62))
        return np.asarray(mixed).astype(dtype)


# ---- the sources, and work for one process


@cache
def _sources(folders: tuple[Path, ...], corpora: Path | None) -> Sequence[Sequence[Run]]:
    """Runs of dumps that compile fast, and runs that are made of one sound text each."""
    runs = (Run(each.title, in_order(each)) for folder in folders for each in opened(folder))
    sources = [
        [
            run
            for run in runs
            if len(run.dumps) > 2 and all(dump.path.stat().st_size < MAX_TEXT for dump in run.dumps)
        ]
    ]
    if corpora is not None:
        sources.append(
            [
                Run(text.id.rpartition("/")[2], (), text.text)
                for texts in texts_of(corpora).values()
                for text in texts
                if len(text.text) < MAX_TEXT
                and text.expect.get("status") == "ok"
                and text.expect.get("verified")
            ]
        )
    return [source for source in sources if source]


def planted_edit(
    folders: tuple[Path, ...], corpora: Path | None, number: int, seed: int, what: str
) -> Verdict:
    """One planted error or rewrite, and what came of it; none where no step takes one."""
    outcome = planted(_sources(folders, corpora), number, seed, what, xla_cpu())
    return {
        "key": f"{what} {seed} {number}",
        "planted": None if outcome is None else asdict(outcome),
    }


def section(edits: Sequence[Planted], what: str) -> Iterator[str]:
    """The part of the page about errors, or about rewrites."""
    count = sum(edit.is_right for edit in edits)
    if what == ERROR:
        yield from ["## Errors", ""]
        yield f"{count} of {len(edits)} were found, at their step and at no other."
    else:
        yield from ["## Rewrites that preserve the values", ""]
        yield f"In {count} of {len(edits)} no step was named."
    verdict = "found" if what == ERROR else "right"
    yield from ["", f"| {what} | in dumps | {verdict} | in texts | {verdict} |"]
    yield "|---|---:|---:|---:|---:|"
    for kind in (*KINDS[what], "**all**"):
        numbers = []
        for is_dump in (True, False):
            group = [
                edit.is_right
                for edit in edits
                if kind in (edit.kind, "**all**") and edit.is_dump is is_dump
            ]
            numbers += [len(group), sum(group)]
        yield f"| {kind} | {' | '.join(map(str, numbers))} |"
    missed = [edit for edit in edits if not edit.is_right]
    if missed:
        yield from ["", "Not found:" if what == ERROR else "Wrong:", ""]
        yield from [f"- {edit.kind} in `{edit.where}`: {edit.outcome}" for edit in missed]
    yield ""


def main() -> None:
    parser = parser_of(RESULTS, __doc__)
    parser.add_argument("--corpora", type=Path, metavar="FOLDER", help="texts of XLA's tests")
    parser.add_argument("--count", type=int, default=500, metavar="N", help="of each of the two")
    parser.add_argument("--seed", type=int, default=0, help="of what is planted, and where")
    options = parser.parse_args()
    state = State(options.state)
    with tempfile.TemporaryDirectory() as scratch, ProcessPoolExecutor(options.jobs) as pool:
        given = tuple(folders_of(options, scratch)), options.corpora
        waiting = [
            pool.submit(planted_edit, *given, number, options.seed, what)
            for number in range(options.count)
            for what in KINDS
            if f"{what} {options.seed} {number}" not in state.verdicts
        ]
        gather(state, waiting)
    lines = [
        "# Planted errors and rewrites",
        "",
        f"`python -m benchmarks.planted --seed {options.seed}`: one edit in one step of a healthy "
        "run, which stays to its end. Errors have to be found at their step by `validate` as it is "
        f"called by default; for a rewrite it may name no step. jaxlib {version('jaxlib')}.",
        "",
    ]
    for what in KINDS:
        outcomes = (
            verdict["planted"]
            for key, verdict in state.verdicts.items()
            if key.startswith(f"{what} {options.seed} ")
        )
        lines += section(
            [Planted(**outcome) for outcome in outcomes if outcome is not None],  # type: ignore[arg-type]
            what,
        )
    text = "\n".join(lines)
    print(text)
    options.output.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
