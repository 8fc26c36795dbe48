"""The cost of rules on single files, beside XLA's parser, and how it grows with size, by rule.

    python -m benchmarks.rules FILE_OR_FOLDER…     prints both tables; `make bench FILES=…`

Of a folder the ten largest texts are taken whose contents differ. Each measurement is a process of
its own in which XLA's parser, ours and `hlo_lint.lint` take turns, all modules loaded before; times
are CPU time of the process. Growth is measured on texts that `benchmarks.big_dump` makes, in which
names and most lines are unique.
"""

from __future__ import annotations

import gc
import json
import math
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median

from benchmarks import big_dump
from benchmarks.goals import by_xla, slope
from benchmarks.measure import hlo_texts

ROUNDS = 5
FILES = 10
SMALLEST_FILE = 300_000
SIZES_IN_MB = (1.0, 3.0, 10.0, 25.0, 50.0)
LEAST_SECONDS = 0.02
"""Rules that take less at the greatest size have no exponent: it would be that of the clock."""
_TRIVIAL = "HloModule m\n\nENTRY e {\n  ROOT p = f32[] parameter(0)\n}\n"


def chosen(places: Iterable[Path]) -> list[Path]:
    """The files, and the largest texts of each folder."""
    files: list[Path] = []
    for place in places:
        if place.is_file():
            files.append(place)
            continue
        distinct: dict[bytes, Path] = {}
        texts = [path for path in hlo_texts(place) if path.stat().st_size >= SMALLEST_FILE]
        for path in sorted(texts, key=lambda path: -path.stat().st_size):
            distinct.setdefault(path.read_bytes(), path)
        files += list(distinct.values())[:FILES]
    return files


def measure(path: Path) -> dict[str, float]:
    """Seconds of XLA's parse, our parse and `lint` of one file, in this process."""
    import hlo_lint
    from hlo_lint.rules.registry import all_rules

    all_rules()  # imports them
    by_xla(_TRIVIAL.encode())  # the first text of a process costs over a second on some machines
    gc.disable()
    data = path.read_bytes()
    return {
        "xla": _thread_seconds(by_xla, data),
        "parse": _thread_seconds(hlo_lint.parse_all, data),
        "check": _thread_seconds(hlo_lint.lint, path),
    }


def _thread_seconds(work: Callable[..., object], *given: object) -> float:
    """CPU time of this thread alone: jaxlib's other threads may still be starting."""
    begun = time.thread_time()
    work(*given)
    return time.thread_time() - begun


def by_rule(path: Path) -> dict[str, float]:
    """Seconds of each rule on one file; what all rules of the verifier share is in the first."""
    import hlo_lint
    from hlo_lint.engine.checks import Check
    from hlo_lint.engine.runner import Checker
    from hlo_lint.engine.views import Run
    from hlo_lint.rules.registry import select_rules

    rules = list(select_rules())  # imports them
    gc.disable()
    spent: defaultdict[str, float] = defaultdict(float)

    class Timed(Checker):
        def run_check(self, check: Check, run: Run) -> None:
            begun = time.process_time()
            super().run_check(check, run)
            spent[check.rule.name()] += time.process_time() - begun

    dump = hlo_lint.open_dump(path)
    begun = time.process_time()
    Timed(rules).check_dump(dump)
    spent["check as a whole"] = time.process_time() - begun
    spent["parse"] = _thread_seconds(hlo_lint.parse_all, path.read_bytes())
    return dict(spent)


def memory(path: Path) -> dict[str, float]:
    """Bytes that `lint` of one file adds to the peak of this process, over those of the file."""
    import hlo_lint
    from hlo_lint.rules.registry import all_rules

    all_rules()
    gc.disable()
    Path("/proc/self/clear_refs").write_text("5")  # the peak from here on: `man 5 proc`
    before = peak_bytes()
    hlo_lint.lint(path)
    return {"peak": (peak_bytes() - before) / path.stat().st_size}


def peak_bytes() -> int:
    """The greatest size of this process since its peak was reset."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def in_process(kind: str, path: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.rules", f"--{kind}", str(path)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent.parent
    )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def single_files(paths: Sequence[Path]) -> Iterator[str]:
    """One row a file, and the medians."""
    titles = (
        *("MB", "XLA's parse, s", "our parse, s", "`check`, s", "rules / parse", "XLA / `check`"),
        "peak of `check` / size",
    )
    yield f"| file | {' | '.join(titles)} |"
    yield f"|---{'|---' * len(titles)}|"
    shares, gains, peaks = [], [], []
    for path in paths:
        rounds = [in_process("file", path) for _ in range(ROUNDS)]
        share = median((each["check"] - each["parse"]) / each["parse"] for each in rounds)
        gain = median(each["xla"] / each["check"] for each in rounds)
        shares.append(share)
        gains.append(gain)
        peaks.append(in_process("memory", path)["peak"])
        xla, parse, check = (median(each[kind] for each in rounds) for kind in rounds[0])
        yield (
            f"| {'/'.join(path.parts[-3:])} | {path.stat().st_size / 1e6:.2f} | {xla:.3f} "
            f"| {parse:.3f} | {check:.3f} | {share:.2f} | {gain:.2f} "
            f"| {peaks[-1]:.1f} |"
        )
    yield (
        f"| median of {len(paths)} files | | | | | {median(shares):.2f} | {median(gains):.2f} "
        f"| {median(peaks):.1f} |"
    )


def growth(sizes: Sequence[float] = SIZES_IN_MB) -> Iterator[str]:
    """One row a rule: seconds at each size, and the exponent of time over size."""
    with tempfile.TemporaryDirectory() as folder:
        texts = []
        for megabytes in sizes:
            place = Path(folder, str(megabytes))
            big_dump.write(place, 2 * megabytes / 1000, 2, 0)
            texts.append(hlo_texts(place)[-1].rename(Path(folder, f"{megabytes}.txt")))
        bytes_of = [path.stat().st_size for path in texts]
        tables = [in_process("rules", path) for path in texts]
    yield f"| rule | {' | '.join(f'{size / 1e6:.1f} MB, s' for size in bytes_of)} | exponent |"
    yield f"|---{'|---' * len(sizes)}|---|"
    quick = 0
    for rule in sorted(tables[-1], key=lambda rule: -tables[-1][rule]):
        took = [max(table.get(rule, 0.0), 1e-6) for table in tables]
        if took[-1] < LEAST_SECONDS:
            quick += 1
            continue
        points = [(math.log(x), math.log(y)) for x, y in zip(bytes_of, took, strict=True)]
        row = " | ".join(f"{value:.3f}" for value in took)
        yield f"| {rule} | {row} | {slope(points):.2f} |"
    yield f"| {quick} rules more | {'| ' * len(sizes)}| under {LEAST_SECONDS} s at the last size |"


def report(paths: Sequence[Path]) -> list[str]:
    """Both tables, for RESULTS.md."""
    lines = ["## Rules on single files", ""]
    if paths:
        lines += [
            f"CPU seconds, medians of {ROUNDS} processes a file; rules are `check` less our parse.",
            "",
            *single_files(paths),
            "",
        ]
    return [
        *lines,
        "Growth by rule, on texts that `benchmarks.big_dump` made. All rules of the family "
        "`verifier` share one pass, which is counted where the first of them asks for it.",
        "",
        *growth(),
        "",
    ]


def main() -> None:
    match sys.argv[1:]:
        case ["--file", path]:
            print(json.dumps(measure(Path(path))))
        case ["--memory", path]:
            print(json.dumps(memory(Path(path))))
        case ["--rules", path]:
            print(json.dumps(by_rule(Path(path))))
        case places:
            print("\n".join(report(chosen(map(Path, places)))))


if __name__ == "__main__":
    main()
