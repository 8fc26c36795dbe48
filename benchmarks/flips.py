"""Accuracy of the predicted effect of a flip to cuBLASLt (`kernels/autotuning`): `FLIPS.md`.

    python -m benchmarks.flips SEED COUNT PYTHON...

Each PYTHON has jax, jaxlib and the CUDA plugin of 0.10.0 (who dies) or 0.10.2 (which reshapes are
left), no GPU. The programs are those of `fixtures/programs/flip_programs.py`; one process compiles
them one after the other. What is read to foretell is the dump that stands before the autotuner.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.hlo.shape import ArrayShape
from hlo_lint.kernels.autotuning.cublaslt_fission import (
    OPERANDS,
    RESULT,
    BackendSwitch,
    SwitchOutcome,
    predict,
)

PROGRAMS = Path(__file__).parents[1] / "fixtures" / "programs" / "flip_programs.py"
RESULTS = Path(__file__).parent / "FLIPS.md"

DIES = "ShapeUtil::ReshapeIsBitcast"


@dataclass(frozen=True)
class Run:
    """One program: what compiling it with fission forced came to, and what was foretold."""

    name: str
    about: str
    dtype: str
    outcome: str
    flips: tuple[BackendSwitch, ...]
    is_suspect: bool
    """The rule of thumb: two batch dimensions and a layout that is not descending."""
    left: tuple[str, ...] | None
    """The reshapes outside fusions after the autotuner; None where it refused."""

    @property
    def died(self) -> bool:
        return DIES in self.outcome

    @property
    def refused(self) -> bool:
        """True if no backend took one of the GEMMs, so that nothing could flip."""
        return self.left is None

    @property
    def breaks(self) -> bool:
        return any(flip.outcome is SwitchOutcome.BREAKS for flip in self.flips)

    @property
    def foretold(self) -> tuple[str, ...]:
        """The reshapes that are foretold to stay alone."""
        return tuple(
            sorted(
                _spelled(reshaped.operand, reshaped.result)
                for flip in self.flips
                for reshaped in flip.reshapes
                if reshaped.alone
            )
        )


def compile_all(python: str, seed: int, count: int, folder: Path) -> tuple[str, list[Run]]:
    """The release of that interpreter's jax, and its runs."""
    command = [python, "-c", "from importlib import metadata; print(metadata.version('jax'))"]
    release = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    dump = folder / release
    child = subprocess.run(
        [python, PROGRAMS, str(seed), str(count), dump],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    files: dict[str, Path] = {}
    for path in dump.iterdir():
        found = re.search(r"\.jit_(f\d+_\d+)\..*\.(before_autotuner|after_autotuner)\b", path.name)
        if found:
            files[f"{found[1]} {found[2]}"] = path
    return release, [_run(json.loads(line), files) for line in child.stdout.splitlines()]


def _run(program: dict[str, str], files: dict[str, Path]) -> Run:
    name = program["name"]
    before = files.get(f"{name} before_autotuner")
    after = files.get(f"{name} after_autotuner")
    module = None if before is None else _read(before)  # some stop earlier
    steps = [program[key] for key in ("precision", "before", "after") if program[key]]
    return Run(
        name,
        f"{program['equation']} {program['shapes']} {' '.join(program['dtypes'])} {steps}",
        program["dtypes"][0],
        program["outcome"],
        () if module is None else predict(module),
        module is not None and any(_is_suspect(dot) for dot in _fused_dots(module)),
        None if after is None else _reshapes(_read(after)),
    )


def _read(path: Path) -> Module:
    return parse_file(path.read_bytes(), path).modules[0]


def _fused_dots(module: Module) -> list[Instruction]:
    """The dots of Triton GEMM fusions."""
    bodies = [
        module.computation(fusion.called_computations[0])
        for fusion in module.instructions()
        if fusion.opcode == "fusion" and '"__triton_gemm"' in fusion.attributes_text
    ]
    return [dot for body in bodies if body is not None for dot in body.with_opcode("dot")]


def _is_suspect(dot: Instruction) -> bool:
    batch, shape = dot.attribute("lhs_batch_dims"), dot.shape
    if not isinstance(batch, tuple) or not isinstance(shape, ArrayShape) or shape.layout is None:
        return False
    return len(batch) == 2 and not shape.layout.is_descending


def _reshapes(module: Module) -> tuple[str, ...]:
    return tuple(
        sorted(
            _spelled(reshape.operands[0].shape, reshape.shape)
            for computation in module.nonfusion_computations
            for reshape in computation.with_opcode("reshape")
        )
    )


def _spelled(operand: object, result: object) -> str:
    return f"{operand} -> {result}"


# ---- the page


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole}" + (f" ({100 * part / whole:.1f} %)" if whole else "")


def who_dies(release: str, seed: int, runs: list[Run]) -> list[str]:
    died = [run for run in runs if run.died]
    refused = [run for run in runs if run.refused]
    lines = [
        f"## Who dies: jax {release}, {len(runs)} programs of seed {seed}",
        "",
        f"{len(died)} die of the RET_CHECK, {len(runs) - len(died) - len(refused)} compile, of "
        f"{len(refused)} a GEMM was refused by every backend allowed. `predict` names a fusion in "
        f"{sum(bool(run.flips) for run in runs)} programs: it says of the others that nothing is "
        "left.",
        "",
        "| foretold by | dies, foretold | dies, missed | lives, false alarm | lives, not foretold "
        "| precision | recall |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, says in (
        ("`predict`", [run.breaks for run in runs]),
        ("two batch dimensions and a non-default layout", [run.is_suspect for run in runs]),
    ):
        counted = Counter((run.died, said) for run, said in zip(runs, says, strict=True))
        hit, missed, false = counted[True, True], counted[True, False], counted[False, True]
        lines.append(
            f"| {name} | {hit} | {missed} | {false} | {counted[False, False]} "
            f"| {_share(hit, hit + false)} | {_share(hit, hit + missed)} |"
        )
    lines += [
        "",
        *_refusals(runs),
        "Whose reshape moves bytes in the programs that die, by the type of the dot:",
        "",
    ]
    whose = Counter((_flagged(run) or "nothing foretold", run.dtype) for run in died)
    lines += [f"- {number} {dtype}: {what}" for (what, dtype), number in sorted(whose.items())]
    wrong = [run for run in runs if run.breaks != run.died]
    lines += ["", "Where `predict` is wrong:" if wrong else "`predict` is nowhere wrong.", ""]
    lines += [f"- {run.name}: {run.about}: {run.outcome[:100]}" for run in wrong]
    thumb = [run for run in runs if run.is_suspect != run.died]
    lines += ["Where the rule of thumb is wrong, and why:" if thumb else "", ""]
    lines += [f"- {run.name}: {_why(run)}" for run in thumb]
    return lines


def _refusals(runs: list[Run]) -> list[str]:
    """The reasons of refusals, names and numbers left out, and how many had a flip foretold."""
    refused = [run for run in runs if run.refused]
    reasons = Counter(re.sub(r"[%\d]\S*", "…", run.outcome)[:90] for run in refused)
    named = sum(bool(run.flips) for run in refused)
    lines = [f"- {number} refused: {reason}" for reason, number in sorted(reasons.items())]
    return [f"Of the refused, {named} have a fusion that `predict` names.", "", *lines, ""]


def _flagged(run: Run) -> str:
    """Whose reshapes move bytes; where none does, whose are left."""
    reshapes = [reshaped for flip in run.flips for reshaped in flip.reshapes]
    moving = [reshaped for reshaped in reshapes if not reshaped.is_bitcast]
    named = {reshaped.what for reshaped in moving or reshapes}
    order = [what for what in (*OPERANDS, RESULT) if what in named]
    return " and ".join(what.removesuffix(" of") for what in order)


def _why(run: Run) -> str:
    result = next((r for flip in run.flips for r in flip.reshapes if r.what == RESULT), None)
    if not run.died and result is not None:
        return f"alarm, but {_spelled(result.operand, result.result)} moves nothing"
    moving = next((r for flip in run.flips for r in flip.reshapes if not r.is_bitcast), None)
    if run.died and moving is not None:
        return f"missed: {_spelled(moving.operand, moving.result)} is {moving.what} the dot"
    return f"{run.about}: {run.outcome[:100]}"


def what_is_left(release: str, seed: int, runs: list[Run]) -> list[str]:
    taken = [run for run in runs if run.left is not None]
    exact = [run for run in taken if run.left == run.foretold]
    slow = [run for run in taken if run.left]
    found: Counter[str] = Counter()
    expected: Counter[str] = Counter()
    for run in taken:
        found.update(f"{run.name} {text}" for text in run.left or ())
        expected.update(f"{run.name} {text}" for text in run.foretold)
    lines = [
        f"## What is left: jax {release}, {len(runs)} programs of seed {seed}",
        "",
        f"{len(runs) - len(taken)} were refused. {len(slow)} of the other {len(taken)} keep "
        f"reshapes outside fusions after the autotuner, {found.total()} in all; "
        f"`predict` foretells {expected.total()}, {(found & expected).total()} of them rightly to "
        f"the last digit of both shapes. In {_share(len(exact), len(taken))} programs the lists "
        "are equal.",
        "",
        *_refusals(runs),
    ]
    for run in taken:
        if run.left != run.foretold:
            missed = list((Counter(run.left) - Counter(run.foretold)).elements())
            false = list((Counter(run.foretold) - Counter(run.left)).elements())
            lines.append(f"- {run.name}: {run.about}: missed {missed}, false {false}")
    return lines


def main(arguments: list[str]) -> None:
    if len(arguments) < 3:
        raise SystemExit("usage: python -m benchmarks.flips SEED COUNT PYTHON...")
    seed, count = int(arguments[0]), int(arguments[1])
    lines = [
        "# What a flip to cuBLASLt does, foretold from the dump before the autotuner",
        "",
        f"`python -m benchmarks.flips {seed} {count} PYTHON...`; fission is forced on every Triton "
        "GEMM fusion, no GPU. `predict` was written on seeds 11 to 13.",
        "",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for python in arguments[2:]:
            release, runs = compile_all(python, seed, count, Path(folder))
            page = who_dies if release == "0.10.0" else what_is_left
            lines += [*page(release, seed, runs), ""]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"
    print(text)
    RESULTS.write_text(text, "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
