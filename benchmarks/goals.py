"""The goals of speed and memory, each beside XLA's own parser, in pairs, in one process.

    python -m benchmarks.goals [DUMP…]     prints a table; `make bench` puts it into RESULTS.md

Every ratio is XLA's CPU time over ours for the same bytes, taken in turns; a figure is the median
of rounds, with the least and the greatest round after it. XLA's side is `hlo_module_from_text`
alone, each module freed before the next; ours holds every module. A graph is rows, the index of
names and operands; “with users” adds who reads each value. Neither collector runs.
"""

from __future__ import annotations

import gc
import json
import lzma
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks import big_dump
from benchmarks.measure import ROUNDS, Rounds, cost_of, hlo_texts
from hlo_lint.dumps.directory import open_dump
from hlo_lint.dumps.pipeline import Pipeline
from hlo_lint.hlo.attributes.cursor import AttributeSyntaxError
from hlo_lint.hlo.attributes.reading import read_attribute
from hlo_lint.hlo.ir import Module
from hlo_lint.hlo.parser.module import Memo, parse_file
from hlo_lint.hlo.records import type_of
from hlo_lint.hlo.shape import ShapeSyntaxError, parse_shape

SMALL = Path(__file__).parent.parent / "fixtures/roundtrip/opcodes_elementwise_binary.hlo"
"""A file of about a kilobyte."""
SMALLEST_FILE = 100_000
SMALLEST_TEXT = 2_000
LARGEST_TEXT = 60_000
READINGS = 25
"""A short text is read so fast that only the best of many readings says anything."""
SMALLEST_DUMP = 1_000_000
SMALLEST_FOR_TWO = 50_000_000
FEWEST_FILES = 30
SIZES_IN_MB = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0)


class Goal(NamedTuple):
    """A row of the table."""

    name: str
    what: str
    bound: str
    measured: str


def seconds(work: Callable[..., object], *given: object) -> float:
    """CPU time of this process for some work; what it gives is dropped within it."""
    begun = time.process_time()
    work(*given)
    return time.process_time() - begun


def by_xla(data: bytes) -> bool:
    """True if XLA reads a text; the module is freed."""
    from jaxlib import _hlo  # type: ignore[attr-defined]  # private, and without stubs

    try:
        _hlo.hlo_module_from_text(data.decode("utf-8", "surrogateescape"))
    except (RuntimeError, ValueError, UnicodeEncodeError):
        return False
    return True


def graph(module: Module, users: bool) -> None:
    """Make what is made on demand."""
    for computation in module.computations:
        assert computation.index is not None
        if users:
            assert computation.users is not None


def alone(data: bytes, users: bool) -> None:
    for module in parse_file(data).modules:
        graph(module, users)


def together(files: Sequence[Path], users: bool, structure: bool = False) -> list[object]:
    """Every module of a directory, read with one memo, as `open_dump` does."""
    memo = Memo()
    held: list[object] = []
    rows: set[int] = set()
    for path in files:
        file = parse_file(path.read_bytes(), path, memo)
        held.append(file)
        for module in file.modules:
            graph(module, users)
            if structure:
                _structured(module, rows)
    return held


def _structured(module: Module, seen: set[int]) -> None:
    """Types and attributes of all rows as values; what dumps share has them once."""
    for computation in module.computations:
        if id(computation) in seen:
            continue
        seen.add(id(computation))
        for instruction in computation.instructions:
            row = instruction.row
            if id(row) in seen:
                continue
            seen.add(id(row))
            with suppress(ShapeSyntaxError):
                parse_shape(type_of(row))
            for name, text in instruction.attributes.items():
                with suppress(AttributeSyntaxError):
                    read_attribute(name, text)


def each_by_xla(files: Sequence[Path]) -> None:
    for path in files:
        if not by_xla(path.read_bytes()):
            raise SystemExit(f"{path}: this jaxlib refuses it: compare with a newer one")


# ---- the goals


def single_files(folders: Sequence[Path]) -> Iterator[Goal]:
    """G1: cold, one file at a time."""
    texts: dict[bytes, Path] = {}
    for folder in folders:
        for path in hlo_texts(folder):
            if path.stat().st_size >= SMALLEST_FILE:
                texts.setdefault(path.read_bytes(), path)
    read = [data for data in texts if by_xla(data)]
    if not read:
        return
    with_users: list[list[float]] = [[] for _ in read]
    on_demand: list[list[float]] = [[] for _ in read]
    for _ in range(ROUNDS):
        for at, data in enumerate(read):
            xla = seconds(by_xla, data)
            ours, lazy = (seconds(alone, data, users) for users in (True, False))
            with_users[at].append(xla / ours)
            on_demand[at].append(xla / lazy)
        gc.collect()
    for name, bound, ratios in (
        ("G1 one file, with users", "median ≥ 2.3, none < 1.0", with_users),
        ("G1b one file, users on demand", "median ≥ 2.8", on_demand),
    ):
        medians = Rounds(tuple(median(file[turn] for file in ratios) for turn in range(ROUNDS)))
        files = sorted(median(file) for file in ratios)
        fifth = files[len(files) // 20]
        yield Goal(
            name,
            f"{len(read)} distinct texts of 0.1 to {max(map(len, read)) / 1e6:.1f} MB",
            bound,
            f"median file {medians}; 5th percentile {fifth:.2f}, least {files[0]:.2f}",
        )


def texts_of_people(corpora: Path) -> Iterator[Goal]:
    """G14: texts that people wrote for XLA's tests, each in a share of the time of XLA's parser."""
    with lzma.open(corpora / "xla_tests.jsonl.xz", "rt", encoding="utf-8") as lines:
        tests = [json.loads(line) for line in lines]
    for corpus in ("files", "all"):
        texts = {
            test["text"].encode()
            for test in tests
            if test["corpus"] == corpus and SMALLEST_TEXT < len(test["text"]) < LARGEST_TEXT
        }
        ratios = []
        for data in sorted(filter(by_xla, texts)):
            if seconds(by_xla, data) > 0.1:
                continue  # a literal of a hundred million elements
            turns = [(seconds(by_xla, data), seconds(alone, data, False)) for _ in range(READINGS)]
            xla, ours = map(min, zip(*turns, strict=True))
            ratios.append(xla / ours)
        ratios.sort()
        fifth, middle = ratios[len(ratios) // 20], median(ratios)
        slower = sum(ratio < 1 for ratio in ratios)
        yield Goal(
            f"G14 texts of XLA's tests, `{corpus}`",
            f"{len(ratios)} texts over {SMALLEST_TEXT / 1000:.0f} kB",
            "median ≥ 1.5, none < 1.0",
            f"median {middle:.2f}; 5th percentile {fifth:.2f}, least {ratios[0]:.2f}; "
            f"{slower} below 1.0",
        )


def directories(folders: Sequence[Path]) -> Iterator[Goal]:
    """G2: the passes of one module after another."""
    modules = [
        files
        for folder in folders
        for pipeline in open_dump(folder)
        if len(files := _texts(pipeline)) >= FEWEST_FILES
        and sum(path.stat().st_size for path in files) >= SMALLEST_DUMP
    ]
    if not modules:
        return
    size = sum(path.stat().st_size for files in modules for path in files) / 1e6
    what = f"{len(modules)} modules, {sum(map(len, modules))} texts, {size:.0f} MB"
    kinds: dict[str, tuple[str, Callable[[Sequence[Path]], object]]] = {
        "G2 directory, with users": ("≥ 8, worst ≥ 5", lambda files: together(files, True)),
        "G2b directory, users on demand": ("≥ 10", lambda files: together(files, False)),
        "G2c directory, every value structured": (
            "≥ 5",
            lambda files: together(files, True, structure=True),
        ),
    }
    totals: dict[str, list[float]] = {name: [] for name in kinds}
    worst: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(ROUNDS):
        xla = [seconds(each_by_xla, files) for files in modules]
        for name, (_, work) in kinds.items():
            ours = []
            for files in modules:
                _forget_values()
                ours.append(seconds(work, files))
                gc.collect()
            totals[name].append(sum(xla) / sum(ours))
            worst[name].append(min(a / b for a, b in zip(xla, ours, strict=True)))
    for name, (bound, _) in kinds.items():
        measured = f"{Rounds(tuple(totals[name]))}; worst module {median(worst[name]):.2f}"
        yield Goal(name, what, bound, measured)


def _texts(pipeline: Pipeline) -> list[Path]:
    return [dump.path for dump in pipeline.dumps if dump.name is not None]


def _forget_values() -> None:
    """Values that were read before would be found again, though the memo is new."""
    read_attribute.cache_clear()
    parse_shape.cache_clear()


def big_directory(folder: Path, rounds: int = ROUNDS) -> Iterator[Goal]:
    """G3: a gigabyte."""
    files = hlo_texts(folder)
    size = sum(path.stat().st_size for path in files) / 1e9
    ratios: dict[bool, list[float]] = {True: [], False: []}
    speeds: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(rounds):
        xla = seconds(each_by_xla, files)
        for users in (True, False):
            ours = seconds(together, files, users)
            gc.collect()
            ratios[users].append(xla / ours)
            speeds[users].append(ours / size)
    what = f"made up: {len(files)} texts, {size:.2f} GB"
    for name, bound, users in (
        ("G3 big directory, with users", "≥ 9", True),
        ("G3 big directory, users on demand", "≥ 10", False),
    ):
        took = f"{median(speeds[users]):.1f} s a GB"
        yield Goal(name, what, bound, f"{Rounds(tuple(ratios[users]))}, {took}")


def exponent() -> Iterator[Goal]:
    """G8: how time grows with size."""
    with tempfile.TemporaryDirectory() as folder:
        texts = []
        for megabytes in SIZES_IN_MB:
            place = Path(folder, str(megabytes))
            big_dump.write(place, 2 * megabytes / 1000, 2, 0)
            texts.append(hlo_texts(place)[-1].read_bytes())
        for name, users in (("with users", True), ("users on demand", False)):
            slopes = []
            for _ in range(ROUNDS):
                points = []
                for data in texts:
                    again = max(1, round(1e6 / len(data)))
                    took = min(seconds(alone, data, users) for _ in range(again))
                    points.append((math.log(len(data)), math.log(took)))
                    gc.collect()
                slopes.append(slope(points))
            yield Goal(
                f"G8 exponent of time over size, {name}",
                f"made up, {SIZES_IN_MB[0]} to {len(texts[-1]) / 1e6:.0f} MB",
                "≤ 1.08",
                str(Rounds(tuple(slopes))),
            )


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Of the line of least squares."""
    x, y = (sum(column) / len(points) for column in zip(*points, strict=True))
    return float(sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points))


def start_up() -> Iterator[Goal]:
    """G11: the CPU time of whole processes, Python's own taken off."""
    command = Path(sys.executable).with_name("hlo-lint")
    program = [str(command)] if command.exists() else [sys.executable, "-m", "hlo_lint"]
    kinds = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "import hlo_lint": [sys.executable, "-c", "import hlo_lint"],
        "hlo-lint check": [*program, "check", "--isolated", str(SMALL)],
    }
    took: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(4 * ROUNDS):
        for name, arguments in kinds.items():
            cost = cost_of(arguments)
            if cost is not None:
                took[name].append(cost.seconds * 1000)
    own, *others = (median(values) for values in took.values())
    names = list(kinds)[1:]
    measured = ", ".join(
        f"`{name}` {value - own:.0f} ms" for name, value in zip(names, others, strict=True)
    )
    bound = "import ≤ 30 ms, check ≤ 75 ms"
    text = f"a file of {SMALL.stat().st_size} bytes, 20 runs"
    yield Goal("G11 start-up over Python's own, CPU", text, bound, f"{measured}; Python {own:.0f}")


def rules(folders: Sequence[Path]) -> Iterator[Goal]:
    """G12, and `check` as a whole beside XLA's parser."""
    import hlo_lint
    from hlo_lint.rules.registry import all_rules

    all_rules()  # imports them
    for folder in folders:
        files = hlo_texts(folder)
        size = sum(path.stat().st_size for path in files)
        if size < SMALLEST_DUMP:
            continue
        shares, whole = [], []
        for _ in range(ROUNDS):
            xla = seconds(each_by_xla, files)
            read = seconds(_read_all, folder)
            check = seconds(hlo_lint.lint, folder)
            gc.collect()
            shares.append((check - read) / read)
            whole.append(xla / check)
        what = f"{folder.name}: {len(files)} texts, {size / 1e6:.1f} MB"
        yield Goal("G12 all rules over reading", what, "≤ 0.5", str(Rounds(tuple(shares))))
        yield Goal(
            "check with all rules against XLA's parse", what, "≥ 3", str(Rounds(tuple(whole)))
        )


def workers(folders: Sequence[Path]) -> Iterator[Goal]:
    """G13: whole processes, by the clock; for this there have to be two cores, and modules."""
    for folder in folders:
        size = sum(path.stat().st_size for path in hlo_texts(folder))
        if size < SMALLEST_FOR_TWO or len(open_dump(folder).pipelines) < 2:
            continue
        ratios = []
        for _ in range(ROUNDS + 2):
            took = []
            for jobs in ("1", "2"):
                command = [sys.executable, "-m", "hlo_lint", "check", "--isolated", "-j", jobs]
                begun = time.perf_counter()
                subprocess.run([*command, str(folder)], capture_output=True, check=False)
                took.append(time.perf_counter() - begun)
            ratios.append(took[0] / took[1])
        what = f"{folder.name}: {size / 1e6:.0f} MB"
        yield Goal("G13 two workers over one, wall", what, "≥ 1.6", str(Rounds(tuple(ratios))))


def _read_all(folder: Path) -> list[object]:
    return [dump.file for pipeline in open_dump(folder) for dump in pipeline.dumps]


def table(goals: Sequence[Goal]) -> list[str]:
    lines = ["| goal | on | bound | measured |", "|---|---|---|---|"]
    return lines + [f"| {' | '.join(goal)} |" for goal in goals]


def measure(folders: Sequence[Path], big: Path | None, corpora: Path | None) -> list[Goal]:
    """All goals on these folders; of a big directory and of texts of people where there are any."""
    gc.disable()
    goals = [*single_files(folders), *directories(folders)]
    if big is not None:
        goals += big_directory(big)
    if corpora is not None:
        goals += texts_of_people(corpora)
    return [*goals, *exponent(), *start_up(), *rules(folders), *workers(folders)]
