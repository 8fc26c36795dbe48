"""The cost of each command beside the compile that wrote the dump: `python -m benchmarks.beside`.

Programs are compiled with every pass dumped: for this CPU, an H200 and a v5e. Both sides are
seconds of CPU: those of the compile alone, which writes nothing, and those of a command's whole
process and its children, the least of some runs; memory is the peak of the largest. What takes more
than five seconds is run once.
"""

# jax has types for a part of what is called here.
# mypy: disable-error-code="no-untyped-call,no-any-return"

from __future__ import annotations

import json
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.measure import MAX_SECONDS, ROOT, ROUNDS, Cost, cost_of, write_page

PAGE = Path(__file__).parent / "BESIDE.md"
DUMP, RANKS = "DUMP", "RANKS"
"""Stand for the dump, and for a folder of eight, in a command."""
MANY_SECONDS = 5
"""Seconds from which on a compile or a command is not repeated."""


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
        seconds = min([seconds, *(compiled(program, {}) for _ in range(ROUNDS - 1))])
    dumping = {"xla_dump_to": str(folder), "xla_dump_hlo_pass_re": ".*"}
    compiled(program, {**dumping, "xla_dump_hlo_as_text": True})
    print(json.dumps(seconds))


def dumps(target: str, folder: Path, names: Sequence[str]) -> dict[str, float]:
    """The seconds of each program's compile; what the folder has is not compiled again."""
    python = TARGETS[target].python
    path = ROOT / ".venv-releases/hlo_lint" / python / "bin/python" if python else sys.executable
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


def cost(name: str, dump: Path) -> Cost | None:
    """The least of some runs of a command on a dump; None if it is not done in time."""
    with tempfile.TemporaryDirectory() as scratch:
        ranks = Path(scratch, "ranks")
        ranks.mkdir()
        for number in range(8):
            (ranks / f"rank{number}").symlink_to(dump)
        places = {DUMP: str(dump), RANKS: str(ranks)}
        command = [sys.executable, "-m", "hlo_lint"]
        command += [places.get(word, word) for word in COMMANDS[name]]
        cache = f"{scratch}/cache"
        first = cost_of(command, HLO_LINT_CACHE_DIR=cache)  # fills it, and compiles modules
        if first is None or first.seconds > MANY_SECONDS:
            return first
        costs = list(
            filter(None, (cost_of(command, HLO_LINT_CACHE_DIR=cache) for _ in range(ROUNDS)))
        )
    return Cost(min(cost.seconds for cost in costs), max(cost.peak for cost in costs))


def table(
    target: str, folder: Path, commands: Sequence[str], programs: Sequence[str]
) -> Iterator[str]:
    """The rows of a target: each program, and the sum of those that were done."""
    seconds = dumps(target, folder, programs)
    costs = {
        (program, name): cost(name, folder / target / program)
        for program in programs
        for name in commands
    }
    yield f"| {target} | compile | {' | '.join(commands)} |"
    yield f"|---|---|{'---|' * len(commands)}"
    for program in programs:
        cells = " | ".join(_shown(costs[program, name]) for name in commands)
        yield f"| {program} | {seconds[program]:.2f} s | {cells} |"
    sums = []
    for name in commands:
        done = {program: held for program in programs if (held := costs[program, name]) is not None}
        spent_here = Cost(
            sum(held.seconds for held in done.values()),
            max((held.peak for held in done.values()), default=0.0),
        )
        share = spent_here.seconds / sum(map(seconds.__getitem__, done)) if done else math.inf
        bound = TARGETS[target].bounds.get(name)
        limit = "" if bound is None else f" (at most {bound})"
        missing = f", of {len(done)} programs" if len(done) < len(programs) else ""
        sums.append(f"{_shown(spent_here)}: {share:.2f}{limit}{missing}")
    yield f"| **all, of the compile** | {sum(seconds.values()):.2f} s | {' | '.join(sums)} |"
    yield ""


def _shown(cost: Cost | None) -> str:
    return f"over {MAX_SECONDS} s" if cost is None else f"{cost.seconds:.2f} s, {cost.peak:.0f} MB"


def main() -> None:
    match sys.argv[1:]:
        case ["--compile", target, name, made]:
            compile_one(target, name, Path(made))
            return
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the dumps are, or will be")
    parser.add_argument("--target", action="append", choices=TARGETS, default=[])
    parser.add_argument("--command", action="append", choices=COMMANDS, default=[])
    parser.add_argument("--program", action="append", choices=PROGRAMS, default=[])
    given = parser.parse_args()
    folder = given.folder.resolve()
    lines = [__doc__.partition("\n\n")[2].strip(), ""]
    for target in given.target or TARGETS:
        lines += table(target, folder, given.command or [*COMMANDS], given.program or PROGRAMS)
    if not given.command:
        from benchmarks import server

        lines += [
            f"The language server, on a text of {server.MEGABYTES} MB that was made, in seconds on "
            "the clock; its first answer is due within 2 s:",
            "",
            *server.of_made_text(server.MEGABYTES),
            "",
        ]
    write_page(PAGE, ["# What each command costs beside the compile", "", *lines])


if __name__ == "__main__":
    main()
