"""The cost of each command beside the compile that wrote the dump: `python -m benchmarks.beside`.

Twelve programs are compiled with every pass dumped: for this CPU, an H200 and a v5e. Both sides are
seconds of CPU: those of the compile alone, which writes nothing, and those of a command's whole
process and its children, of which the least of three counts; memory is the peak of the largest.
"""

# jax has types for a part of what is called here.
# mypy: disable-error-code="no-untyped-call,no-any-return"

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
PAGE = Path(__file__).parent / "BESIDE.md"
DUMP, RANKS = "DUMP", "RANKS"
"""Stand for the dump, and for a folder of eight, in a command."""
TRIALS = 3
MANY_SECONDS = 5
"""A compile of so many is not repeated."""
MAX_SECONDS = 900


class Target(NamedTuple):
    """A backend, the arguments of `get_topology_desc` for it, and what a command may cost."""

    python: str
    """The interpreter under `.venv-releases`; empty for this one."""
    bounds: Mapping[str, float]
    """Of the compile's seconds, by command."""


TARGETS = {
    "cpu": Target("", {"check": 0.25, "validate": 2.0}),
    "h200": Target("jax-0.11.2", {"check": 0.03, "validate": 0.5}),
    "v5e": Target("jax-0.10.2-tpu", {"check": 0.08, "validate": 1.0}),
}
COMMANDS = {
    "check": ("check", "--no-cache", "--jobs", "1", DUMP),
    "check, cached": ("check", "--jobs", "1", DUMP),
    "fix": ("fix", "--diff", DUMP),
    "passes": ("passes", DUMP),
    "diff": ("diff", "0", "1", "--in", DUMP),
    "blame": ("blame", DUMP),
    "report": ("report", "-o", "-", DUMP),
    "validate": ("validate", DUMP),
    "ranks": ("ranks", RANKS),
}
PROGRAMS = (
    *("language", "experts", "vision", "speech", "serving", "graphs", "molecules"),
    *("recurrent", "spectral", "solved", "sampled", "pooled"),
)


# ---- programs


def programs() -> dict[str, Any]:
    """The programs by name."""
    import jax
    import jax.numpy as jnp
    from jax import lax, random

    from benchmarks.models import (
        Program,
        experts,
        floats,
        graphs,
        integers,
        language,
        molecules,
        serving,
        speech,
        vision,
    )

    def recurrent(weights: Any, x: Any) -> Any:
        def loss(weights: Any) -> Any:
            def cell(state: Any, row: Any) -> Any:
                state = jnp.tanh(state @ weights + row)
                return state, state.sum()

            return lax.scan(cell, jnp.zeros(x.shape[1:]), x)[1].sum()

        return jax.grad(loss)(weights)

    def spectral(field: Any) -> Any:
        waves = jnp.fft.fft2(field)
        wavenumbers = jnp.fft.fftfreq(field.shape[0])
        smooth = jnp.exp(-(wavenumbers[:, None] ** 2 + wavenumbers**2))
        return jnp.fft.ifft2(waves * smooth).real

    def solved(matrix: Any, right: Any) -> Any:
        square = matrix @ matrix.T + jnp.eye(matrix.shape[0])
        q, r = jnp.linalg.qr(matrix)
        return jnp.linalg.solve(square, right), q @ r, jnp.linalg.cholesky(square)

    def sampled(key: Any, logits: Any) -> Any:
        tokens = random.categorical(key, logits)
        order = jnp.argsort(logits, -1)
        kept = random.bernoulli(key, 0.9, logits.shape)
        best = lax.top_k(jnp.where(kept, logits, 0.0), 4)
        return tokens, order, best, random.permutation(key, logits.shape[0])

    def pooled(rows: Any, segments: Any, values: Any, table: Any) -> Any:
        gathered = table[rows] * values[:, None]
        return jax.ops.segment_sum(gathered, segments, 64), table.at[rows].add(gathered)

    return {
        "language": language(2, 128, 1000),
        "experts": experts(2, 64, 4),
        "vision": vision(2, 32),
        "speech": speech(1, 64, 8),
        "serving": serving(2, 64, 1000),
        "graphs": graphs(2, 32),
        "molecules": molecules(2, 256),
        "recurrent": Program(recurrent, (floats(64, 64), floats(16, 8, 64))),
        "spectral": Program(spectral, (floats(64, 64),)),
        "solved": Program(solved, (floats(32, 32), floats(32, 4))),
        "sampled": Program(sampled, (jax.eval_shape(lambda: random.PRNGKey(0)), floats(8, 512))),
        "pooled": Program(pooled, (integers(256), integers(256), floats(256), floats(512, 32))),
    }


def devices_of(target: str) -> Sequence[Any]:
    """The devices of a target, which need not be there."""
    import jax

    if target == "cpu":
        return jax.devices()
    from jax.experimental import topologies

    from hlo_lint.apps.jax.capture.targets import target_of

    os.environ |= {"JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1", "TPU_SKIP_MDS_QUERY": "1"}
    return topologies.get_topology_desc(**target_of(target).topology()).devices


def spent() -> float:
    """Seconds of CPU of this process and of the children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def compile_one(target: str, name: str, folder: Path) -> None:
    """Compile a program without dumps, and print the seconds; then with all dumps."""
    import jax

    from benchmarks.models import Program, floats, placed

    devices = devices_of(target)

    def compiled(program: Any, options: Mapping[str, Any]) -> float:
        jax.clear_caches()
        lowered = jax.jit(program.function).lower(*placed(program, devices))
        begun = spent()
        lowered.compile(dict(options))
        return spent() - begun

    compiled(Program(lambda x: x + 1, (floats(4),)), {})  # what a process does once
    program = programs()[name]
    seconds = compiled(program, {})
    if seconds < MANY_SECONDS:
        seconds = min(seconds, *(compiled(program, {}) for _ in range(TRIALS - 1)))
    dumping = {"xla_dump_to": str(folder), "xla_dump_hlo_pass_re": ".*"}
    compiled(program, {**dumping, "xla_dump_hlo_as_text": True})
    print(json.dumps(seconds))


def dumps(target: str, folder: Path) -> dict[str, float]:
    """The seconds of each program's compile; what the folder has is not compiled again."""
    python = TARGETS[target].python
    path = ROOT / ".venv-releases/hlo_lint" / python / "bin/python" if python else sys.executable
    names = PROGRAMS
    for name in names:
        made, times = folder / target / name, folder / target / f"{name}.json"
        if not times.exists():
            shutil.rmtree(made, ignore_errors=True)
            command = [path, "-m", "benchmarks.beside", "--compile", target, name, made]
            environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
            done = subprocess.run(
                command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True
            )
            times.write_text(done.stdout, "utf-8")
    return {name: json.loads((folder / target / f"{name}.json").read_text()) for name in names}


# ---- commands


class Cost(NamedTuple):
    """Seconds of CPU, and the peak in MB."""

    seconds: float
    peak: float


def cost_of(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Cost:
    """The cost of a command and its children, measured by a process that only starts it."""
    measured = [sys.executable, "-m", "benchmarks.beside", "--cost", *command]
    variables = {**os.environ, **(environment or {})}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)  # pip writes it: to compile takes 0.3 s a run
    done = subprocess.run(measured, cwd=ROOT, env=variables, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return Cost(*json.loads(done.stdout))


def cost_of_child(command: Sequence[str]) -> None:
    """Run a command, and print its cost."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )
    _, errors = process.communicate(timeout=MAX_SECONDS)
    if process.returncode not in (0, 1):
        sys.exit(f"{command}: {process.returncode}: {errors.decode()}")
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps([usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3]))


def cost(name: str, dump: Path, trials: int) -> Cost:
    """The least of some runs of a command on a dump."""
    with tempfile.TemporaryDirectory() as scratch:
        ranks = Path(scratch, "ranks")
        ranks.mkdir()
        for number in range(8):
            (ranks / f"rank{number}").symlink_to(dump)
        places = {DUMP: str(dump), RANKS: str(ranks)}
        command = [sys.executable, "-m", "hlo_lint"]
        command += [places.get(word, word) for word in COMMANDS[name]]
        environment = {"HLO_LINT_CACHE_DIR": f"{scratch}/cache"}
        cost_of(command, environment)  # compiles Python's modules, and fills the cache
        costs = [cost_of(command, environment) for _ in range(trials)]
    return Cost(min(cost.seconds for cost in costs), max(cost.peak for cost in costs))


def table(target: str, folder: Path, commands: Sequence[str], trials: int) -> list[str]:
    """The rows of a target: each program, and the sum."""
    seconds = dumps(target, folder)
    costs = {
        (program, name): cost(name, folder / target / program, trials)
        for program in PROGRAMS
        for name in commands
    }
    lines = [
        f"| {target} | compile | {' | '.join(commands)} |",
        f"|---|---|{'---|' * len(commands)}",
    ]
    for program in PROGRAMS:
        cells = [costs[program, name] for name in commands]
        shown = " | ".join(f"{c.seconds:.2f} s, {c.peak:.0f} MB" for c in cells)
        lines.append(f"| {program} | {seconds[program]:.2f} s | {shown} |")
    whole = sum(seconds.values())
    sums = []
    for name in commands:
        spent_here = sum(costs[program, name].seconds for program in PROGRAMS)
        peak = max(costs[program, name].peak for program in PROGRAMS)
        bound = TARGETS[target].bounds.get(name)
        limit = "" if bound is None else f" (at most {bound})"
        sums.append(f"{spent_here:.2f} s, {peak:.0f} MB: {spent_here / whole:.2f}{limit}")
    return [*lines, f"| **all, of the compile** | {whole:.2f} s | {' | '.join(sums)} |", ""]


def main() -> None:
    match sys.argv[1:]:
        case ["--compile", target, name, made]:
            compile_one(target, name, Path(made))
            return
        case ["--cost", *command]:
            cost_of_child(command)
            return
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the dumps are, or will be")
    parser.add_argument("--target", action="append", choices=TARGETS, default=[])
    parser.add_argument("--command", action="append", choices=COMMANDS, default=[])
    parser.add_argument("--trials", type=int, default=TRIALS)
    given = parser.parse_args()
    folder = given.folder.resolve()
    lines = [__doc__.partition("\n\n")[2].strip(), ""]
    for target in given.target or TARGETS:
        lines += table(target, folder, given.command or [*COMMANDS], given.trials)
    text = "\n".join(["# What each command costs beside the compile", "", *lines])
    print(text)
    PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
