"""The cost of rules on single files, beside XLA's parser, and how it grows with size, by rule.

    python -m benchmarks.rules FILE_OR_FOLDER…     prints both tables; `make bench FILES=…`

Of a folder some of the large texts are taken whose contents differ; `benchmarks.models` makes one.
XLA's parser, ours and `hlo_lint.lint` take turns, each in a process of its own; all modules are
loaded and a text of three lines is read before, and times are CPU time of the thread that reads.
Whole processes are the commands that a user starts. Growth is measured on texts that
`benchmarks.big_dump` makes, in which names and most lines are unique.
"""

from __future__ import annotations

import gc
import hashlib
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
from benchmarks.goals import by_xla, each_by_xla, slope
from benchmarks.measure import ROUNDS, Rounds, cost_of, hlo_texts

FILES = 16
SMALLEST_FILE = 300_000
SIZES_IN_MB = (1.0, 5.0, 25.0, 100.0, 240.0)
LEAST_SECONDS = 0.02
"""Rules that take less at the greatest size have no exponent: it would be that of the clock."""
_TRIVIAL = "HloModule m\n\nENTRY e {\n  ROOT p = f32[] parameter(0)\n}\n"
_XLA_ALONE = """
import sys
from jaxlib import _hlo
_hlo.hlo_module_from_text(open(sys.argv[1]).read())
"""


def chosen(places: Iterable[Path]) -> list[Path]:
    """The files, and of each folder some of its large texts, from the largest to the smallest."""
    files: list[Path] = []
    for place in places:
        if place.is_file():
            files.append(place)
            continue
        distinct: dict[bytes, Path] = {}
        texts = [path for path in hlo_texts(place) if path.stat().st_size >= SMALLEST_FILE]
        for path in sorted(texts, key=lambda path: -path.stat().st_size):
            distinct.setdefault(hashlib.blake2b(path.read_bytes()).digest(), path)
        files += list(distinct.values())[:: -(-len(distinct) // FILES) or 1]
    return files


def measure(kind: str, path: Path) -> dict[str, float]:
    """Seconds in which XLA or we parse a file, or `lint` checks it, in this process.

    For `lint` also the bytes that it adds to the peak of this process, over those of the file.
    """
    if kind == "xla":
        by_xla(
            _TRIVIAL.encode()
        )  # the first text of a process costs over a second on some machines
        return {kind: _thread_seconds(each_by_xla, [path])}
    import hlo_lint
    from hlo_lint.rules.registry import all_rules

    all_rules()  # imports them
    gc.disable()
    hlo_lint.lint(hlo_lint.parse(_TRIVIAL))
    if kind == "parse":
        return {kind: _thread_seconds(hlo_lint.parse_all, path.read_bytes())}
    Path("/proc/self/clear_refs").write_text("5")  # the peak from here on: `man 5 proc`
    before = peak_bytes()
    seconds = _thread_seconds(hlo_lint.lint, path)
    return {kind: seconds, "peak": (peak_bytes() - before) / path.stat().st_size}


def _thread_seconds(work: Callable[..., object], *given: object) -> float:
    """CPU time of this thread alone: jaxlib's other threads may still be starting."""
    begun = time.thread_time()
    work(*given)
    return time.thread_time() - begun


def by_rule(path: Path) -> dict[str, float]:
    """Seconds of each rule on one file; what all rules of the verifier share is in the first."""
    import hlo_lint
    from hlo_lint.engine.runner import Checker, Task
    from hlo_lint.engine.views import Run
    from hlo_lint.rules.checks import Check
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
    Timed(Task(rules)).check_dump(dump)
    spent["check as a whole"] = time.process_time() - begun
    spent["parse"] = _thread_seconds(hlo_lint.parse_all, path.read_bytes())
    return dict(spent)


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


def whole_process(*arguments: str) -> float:
    """CPU seconds of a Python process, start-up and all threads included."""
    cost = cost_of([sys.executable, *arguments])
    return math.inf if cost is None else cost.seconds


def one_round(path: Path) -> dict[str, float]:
    """The figures of one file, each from a process of its own."""
    return {
        **in_process("xla", path),
        **in_process("parse", path),
        **in_process("check", path),
        "whole xla": whole_process("-c", _XLA_ALONE, str(path)),
        "whole check": whole_process(
            *("-m", "hlo_lint", "check", "--isolated", "--no-cache", "--jobs", "1", str(path))
        ),
    }


def single_files(paths: Sequence[Path]) -> Iterator[str]:
    """One row a file, and the medians."""
    titles = (
        *("MB", "XLA's parse, s", "our parse, s", "`check`, s", "rules / parse", "XLA / `check`"),
        *("XLA's process, s", "`hlo-lint check`, s", "XLA / `hlo-lint check`"),
        "peak of `check` / size",
    )
    yield f"| file | {' | '.join(titles)} |"
    yield f"|---{'|---' * len(titles)}|"
    totals: list[tuple[float, ...]] = []
    for path in paths:
        rounds = [one_round(path) for _ in range(ROUNDS)]
        shares = Rounds(tuple((each["check"] - each["parse"]) / each["parse"] for each in rounds))
        gains = Rounds(tuple(each["xla"] / each["check"] for each in rounds))
        whole = Rounds(tuple(each["whole xla"] / each["whole check"] for each in rounds))
        middle = {kind: median(each[kind] for each in rounds) for kind in rounds[0]}
        totals.append((*(median(ratio.values) for ratio in (shares, gains, whole)), middle["peak"]))
        yield (
            f"| {path.name} | {path.stat().st_size / 1e6:.2f} | {middle['xla']:.3f} "
            f"| {middle['parse']:.3f} | {middle['check']:.3f} | {shares} | {gains} "
            f"| {middle['whole xla']:.2f} | {middle['whole check']:.2f} | {whole} "
            f"| {middle['peak']:.1f} |"
        )
    share, gain, process, peak = (median(column) for column in zip(*totals, strict=True))
    yield (
        f"| median of {len(paths)} files | | | | | {share:.2f} | {gain:.2f} | | | {process:.2f} "
        f"| {peak:.1f} |"
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
            f"CPU seconds, medians of {ROUNDS} processes a file [least-greatest]; rules: `check` "
            "less our parse. Processes count start-up and all threads.",
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
        case ["--xla" | "--parse" | "--check" as kind, path]:
            print(json.dumps(measure(kind.removeprefix("--"), Path(path))))
        case ["--rules", path]:
            print(json.dumps(by_rule(Path(path))))
        case places:
            print("\n".join(report(chosen(map(Path, places)))))


if __name__ == "__main__":
    main()
