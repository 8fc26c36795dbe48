"""Costs of all hostile inputs: `make hostile` writes benchmarks/HOSTILE.md."""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.hostile.cost import MAX_SECONDS, MICROSECONDS, measure
from tests.hostile.inputs import INPUTS, STRICT

PAGE = Path(__file__).parents[2] / "benchmarks" / "HOSTILE.md"

HEAD = f"""# Hostile inputs

`make hostile` writes this page. Each input grows along one axis; it is checked by
`hlo-lint check --strict`, or by the command after its name, in a process of its own that is killed
after {MAX_SECONDS} s of CPU time. An input is within bounds if it takes at most 5 s and 256 MB, start-up
included, or {MICROSECONDS} µs for each of its bytes: then time is linear in the bytes, which
`tests/hostile/test_growth.py` asserts on counts of calls.

| input | N | MB | s of CPU | MB held | it ends with | within bounds |
|---|---|---|---|---|---|---|
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names; all inputs by default")
    parser.add_argument("--output", type=Path, default=PAGE)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    chosen = [
        hostile
        for hostile in INPUTS
        if not options.names or any(name in hostile.name for name in options.names)
    ]
    rows, beyond = [], 0
    with ThreadPoolExecutor(options.processes) as pool:
        for hostile, cost in pool.map(measure, chosen):
            is_within = cost.is_within_bounds
            beyond += not is_within
            command = "" if hostile.arguments == STRICT else f" (`{' '.join(hostile.arguments)}`)"
            rows.append(
                f"| {hostile.name}{command} | {hostile.size:,} | {cost.bytes / 1e6:.2f} "
                f"| {cost.seconds:.1f} | {cost.megabytes:.0f} | {cost.says.replace('|', chr(92) + '|')} "
                f"| {'yes' if is_within else 'NO'} |"
            )
            print(rows[-1], flush=True)
    end = f"\n{len(rows)} inputs, {len(rows) - beyond} of them within bounds.\n"
    if not options.names:
        options.output.write_text(HEAD + "\n".join(rows) + "\n" + end, "utf-8")
    print(end)


if __name__ == "__main__":
    main()
