"""Fuzzing by bytes: `make fuzz`, or `python -m tests.fuzz [--seconds N] [TARGET…]`.

With atheris the targets are driven by the branches that they reach; each runs in a process of its
own for its share of the time. What breaks a promise is left in the folder `--found`, named for the
target, and the exit status is 1. `--replay FILE…` calls the target again with what was found.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MAX_LENGTH = 8192
TIMEOUT = 60
"""Seconds after which one input is one that hangs."""
MEMORY = 2048
"""MB."""
DICTIONARY = (
    "HloModule m", "ENTRY", "ROOT", "parameter(0)", "f32[8]{0}", "f32[2,3]{1,0}", "bf16[4]{0:T(8)}",
    "(f32[8], s32[])", "calls=%f", "to_apply={", "metadata={op_name=", "backend_config={",
    "sharding={devices=[2]<=[2]}", "replica_groups={{0,1}}", "[2,1]<=[2]", "mesh['x'=2] {'x'}",
    "dimensions={0}", "is_scheduled=true", "// hlo-lint: allow", "/*", "*/", "fusion(", "reshape(",
    "while(", "condition=%c, body=%b", "custom-call(", "async-start(", "constant({1,2})",
    "entry_computation_layout={(f32[8]{0})->f32[8]{0}}", "input_output_alias={ {}: (0, {}) }",
)  # fmt: skip


def fuzz(name: str, corpus: Path, found: Path, seconds: int, seed: int) -> None:
    """Drive one target; does not return."""
    import atheris

    # Not left: rules and readers are imported when they are first needed.
    atheris.instrument_imports(include=["hlo_lint"]).__enter__()
    from tests.fuzz.targets import TARGETS

    for known in sorted(corpus.iterdir())[:3]:  # imports take longer than any input may
        TARGETS[name](known.read_bytes())
    words = corpus.parent / "words"
    words.write_text("".join(f'"{w}"\n'.replace("\\", "\\\\") for w in DICTIONARY), "utf-8")
    atheris.Setup(
        [
            name,
            str(corpus),
            f"-artifact_prefix={found}/{name}-",
            f"-max_total_time={seconds}",
            f"-max_len={MAX_LENGTH}",
            f"-timeout={TIMEOUT}",
            f"-rss_limit_mb={MEMORY}",
            f"-dict={words}",
            f"-seed={seed}",
            "-print_final_stats=1",
            "-verbosity=0",
        ],
        TARGETS[name],
    )
    atheris.Fuzz()


def replay(files: list[str]) -> None:
    """Call the targets with what was found."""
    from tests.fuzz.targets import TARGETS

    for file in files:
        name = Path(file).name.partition("-")[0]
        print(f"{name}: {file}", flush=True)
        TARGETS[name](Path(file).read_bytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--seconds", type=int, default=60, help="for all targets together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--found", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--corpus", type=Path, help="where inputs that reach new branches are kept")
    parser.add_argument("--replay", nargs="+", metavar="FILE")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.replay:
        replay(options.replay)
        return
    options.found.mkdir(parents=True, exist_ok=True)
    if options.one:  # hlo_lint is not imported yet: what is imported from now on is instrumented
        fuzz(
            options.one, options.corpus / options.one, options.found, options.seconds, options.seed
        )
    from tests.fuzz.corpus import seeds
    from tests.fuzz.targets import TARGETS

    scratch = tempfile.TemporaryDirectory(prefix="hlo-lint-fuzz")
    root = options.corpus or Path(scratch.name)
    names = options.targets or list(TARGETS)
    share = max(1, options.seconds // len(names))
    failed = False
    total, begun = 0, time.monotonic()
    for name in names:
        folder = root / name
        folder.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(seeds(name)):
            (folder / f"seed{number:04d}").write_bytes(seed[:MAX_LENGTH])
        command = [sys.executable, "-m", "tests.fuzz", "--one", name, f"--seconds={share}"]
        command += [f"--seed={options.seed}", f"--found={options.found}", f"--corpus={root}"]
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False
        )
        counted = re.search(r"number_of_executed_units: *(\d+)", done.stderr)
        runs = int(counted[1]) if counted else 0
        total += runs
        speed = re.search(r"average_exec_per_sec: *(\d+)", done.stderr)
        ended = "" if not done.returncode else f", FAILED ({done.returncode})"
        print(f"{name}: {runs} executions, {speed[1] if speed else 0} a second{ended}", flush=True)
        if done.returncode:
            failed = True
            lines = [line for line in done.stderr.splitlines() if "INFO:" not in line]
            print(done.stdout[-3000:], *lines[-60:], sep="\n", flush=True)
    print(f"{total} executions in {time.monotonic() - begun:.0f} s", flush=True)
    sys.stdout.flush()
    os._exit(1 if failed else 0)


if __name__ == "__main__":
    main()
