"""The cost of commands beside the compile and beside XLA's parser: `make bench`, RESULTS.md.

Twelve programs are compiled with every pass dumped, for this CPU, an H200 and a v5e. Seconds are of
CPU: those of the compile alone, which writes nothing, and those of a command's whole process and
its children, the least of three runs where one takes less than a second; MB are the peak of the
largest process. The cache is empty but in `check, cached`. XLA's parser, and `lint` and `check`
beside it, run in processes that have read a dump before.

Each figure is kept as soon as it is there, so that a run that was stopped goes on; the figures of
another commit are not taken. The page is written after each table.
"""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import traceback
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from benchmarks import big_dump, programs, server
from benchmarks.measure import ROOT, Cost, cost_of, seconds_of, write_made_text

PAGE = Path(__file__).parent / "RESULTS.md"
PROFILE = "## Profile\n"
"""The heading of what people wrote about the figures; it stays at the end of the page."""
CACHED = "check, cached"
DUMP, RANKS = "DUMP", "RANKS"
"""Stand for the dump, and for a folder of eight, in a command."""
ROUNDS = 3
MANY_SECONDS = 1
"""Seconds from which on a command is not repeated."""
MAX_COMPILE_SECONDS = 480
"""Seconds on the clock after which a compile is stopped."""
SMALL = ROOT / "fixtures/roundtrip/opcodes_elementwise_binary.hlo"
"""A file of about a kilobyte."""
LARGE_DUMP, LARGE_TEXT = 400, 100
"""Megabytes of the dump and of the single text that are made up."""
LARGEST_DUMPS = 3
"""Of each target so many are measured beside XLA's parser."""
PROTOS = ("language", "molecules", "sampled", "solved")
"""Programs that are compiled for this CPU with protos in place of texts, too."""


class Target(NamedTuple):
    """A backend, and what a command may cost there."""

    release: str
    """Of jax, whose environment is under `.venv-releases`; empty for this one."""
    bounds: Mapping[str, float]
    """Of the compile's seconds, by command."""


TARGETS = {
    "cpu": Target("", {"check": 0.25, "validate": 2.0}),
    "h200": Target("0.11.2", {"check": 0.03, "validate": 0.5}),
    "v5e": Target("0.10.2-tpu", {"check": 0.08, "validate": 1.0}),
}
COMMANDS = {
    "check": ("check", "--no-cache", "--jobs", "1", DUMP),
    CACHED: ("check", "--jobs", "1", DUMP),
    "fix": ("fix", "--diff", DUMP),
    "passes": ("passes", DUMP),
    "diff": ("diff", "0", "1", "--in", DUMP),
    "blame": ("check", "--blame", "--no-cache", "--jobs", "1", DUMP),
    "report": ("report", "-o", "-", DUMP),
    "ranks": ("ranks", RANKS),
    "validate": ("validate", DUMP),
}
PEAKS: Final = {"check": 400, "validate": 1500}
"""MB that a command may take, whatever the dump."""
IN_PROCESS: Final = 0.15
"""The most that `lint` may cost of the compile, where nothing is started anew."""


class Figures:
    """Measurements so far, by name, in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.held: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}

    def of(self, name: str, measure: Callable[[], Any]) -> Any:
        """The figure of a name, measured where it is not there; a text says why there is none."""
        if name not in self.held:
            try:
                self.held[name] = measure()
            except subprocess.SubprocessError as error:
                print(f"{name}: {error}", file=sys.stderr)
                return "failed"
            fresh = self.path.with_suffix(".new")
            fresh.write_text(json.dumps(self.held), "utf-8")
            fresh.replace(self.path)
            print(f"{name}: {self.held[name]}", flush=True)
        return self.held[name]


class Page:
    """The page so far: its tables, and the bounds that they answer."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        """None where it is not written: of a part of the programs."""
        self.bounds: list[str] = []
        self.tables: list[str] = []

    def bound(
        self, what: str, measured: float, bound: float, unit: str = "", *, is_whole: bool = True
    ) -> None:
        """Add a figure that may be at most its bound; one of a part does not show that it is."""
        is_met = is_whole and measured <= bound
        self._bound(what, f"at most {bound}{unit}", f"{round(measured, 2):.3g}{unit}", is_met)

    def least(self, what: str, measured: float, bound: float) -> None:
        """Add a ratio that must be at least its bound."""
        self._bound(what, f"at least {bound}", f"{measured:.3g}", measured >= bound)

    def _bound(self, what: str, bound: str, measured: str, is_met: bool) -> None:
        self.bounds.append(f"| {what} | {bound} | {measured if is_met else f'**{measured}**'} |")

    def table(self, title: str, text: str, header: Sequence[str], rows: Sequence[str]) -> None:
        """Add a table, and write the page."""
        rule = "|---" * len(header) + "|"
        lines = [f"## {title}", "", *([text, ""] if text else [])]
        self.tables += [*lines, f"| {' | '.join(header)} |", rule, *rows, ""]
        if self.path is not None:
            _, heading, profile = self.path.read_text("utf-8").partition(PROFILE)
            self.path.write_text(f"{self.text()}\n{heading}{profile}", "utf-8")

    def text(self) -> str:
        about = (__doc__ or "").split("\n\n")[1].replace("\n", " ")
        lines = [
            "# Results",
            "",
            f"`make bench`, Python {platform.python_version()}, {os.cpu_count()} processors of "
            f"{platform.machine()}. {about}",
            "",
            "## Bounds",
            "",
            "What misses its bound is bold.",
            "",
            "| what | bound | measured |",
            "|---|---|---|",
            *self.bounds,
            "",
            *self.tables,
        ]
        return "\n".join(lines)


class Bench:
    """The measurements of some targets and programs, and where their dumps and texts lie."""

    def __init__(
        self, build: Path, parser: Path, page: Page, targets: Sequence[str], names: Sequence[str]
    ) -> None:
        build.mkdir(parents=True, exist_ok=True)
        last_commit = ["git", "log", "-1", "--format=%h", "--", "hlo_lint"]
        done = subprocess.run(last_commit, cwd=ROOT, capture_output=True, text=True)
        self.build = build
        self.parser = parser
        """The Python whose jaxlib is compared with."""
        self.page = page
        self.targets = targets
        self.names = names
        self.compiles = Figures(build / "compiles.json")
        self.figures = Figures(build / f"figures-{done.stdout.strip()}.json")

    # ---- dumps and texts; what is there is not made again

    def program(self, target: str, name: str, file_type: str = "text") -> Path:
        """The dump of a program."""
        return self.build / target / (name if file_type == "text" else f"{name}.{file_type}")

    def compile_seconds(self, target: str, name: str, file_type: str = "text") -> Any:
        """The seconds of a compile, whose dump is there then."""
        folder, release = self.program(target, name, file_type), TARGETS[target].release
        python = ROOT / f".venv-releases/hlo_lint/jax-{release}/bin/python"

        def measure() -> Any:
            shutil.rmtree(folder, ignore_errors=True)
            command = [python if release else sys.executable, "-m", "benchmarks.programs", "dump"]
            return json.loads(run([*command, target, name, folder, file_type]))

        if not folder.exists():
            self.compiles.held.pop(f"{target} {name} {file_type}", None)
        return self.compiles.of(f"{target} {name} {file_type}", measure)

    def single_texts(self) -> list[Path]:
        folder = self.build / "texts"
        folder.mkdir(exist_ok=True)
        for name in (*programs.BEFORE, *programs.AFTER):
            path = folder / f"{name}.txt"
            if not path.exists():
                run([sys.executable, "-m", "benchmarks.programs", "text", name, path])
        made = folder / f"made-{LARGE_TEXT}.txt"
        if not made.exists():
            write_made_text(made, LARGE_TEXT)
        return sorted(folder.glob("*.txt"), key=lambda path: path.stat().st_size)

    def largest_dumps(self) -> list[Path]:
        """The largest of each target."""
        return [
            dump
            for target in self.targets
            for dump in sorted(
                filter(Path.is_dir, (self.program(target, name) for name in self.names)),
                key=megabytes,
                reverse=True,
            )[:LARGEST_DUMPS]
        ]

    def made_dump(self) -> Path:
        made = self.build / f"made-{LARGE_DUMP}"
        if not made.exists():
            fresh = made.with_suffix(".new")
            shutil.rmtree(fresh, ignore_errors=True)
            big_dump.write(fresh, LARGE_DUMP / 1000, big_dump.DUMPS, 0)
            fresh.rename(made)
        return made

    # ---- figures

    def name_of(self, place: Path) -> str:
        return place.relative_to(self.build).as_posix()

    def cost(self, dump: Path, command: str) -> Cost | str:
        held = self.figures.of(f"{self.name_of(dump)} {command}", lambda: cost(command, dump))
        return held if isinstance(held, str) else Cost(*held)

    # ---- tables

    def commands(self, target: str) -> None:
        """Each command on each program of a target, beside the compile, and `lint`."""
        seconds = {name: self.compile_seconds(target, name) for name in self.names}
        seconds = {name: took for name, took in seconds.items() if not isinstance(took, str)}
        rows = {name: [f"{took:.2f} s"] for name, took in seconds.items()}
        total = [f"{sum(seconds.values()):.2f} s"]
        for command in COMMANDS:
            costs = {name: self.cost(self.program(target, name), command) for name in seconds}
            for name, held in costs.items():
                rows[name].append(shown(held))
            done = {name: held for name, held in costs.items() if isinstance(held, Cost)}
            sums = Cost(
                sum(each.seconds for each in done.values()),
                max((each.peak for each in done.values()), default=0.0),
            )
            share = sums.seconds / sum(seconds[name] for name in done) if done else math.inf
            missing = "" if len(done) == len(self.names) else f", {len(done)} programs"
            total.append(f"{shown(sums)}: {share:.2f}{missing}")
            if command in TARGETS[target].bounds:
                what = f"`{command}`, {target}{missing}"
                limit, is_whole = TARGETS[target].bounds[command], not missing
                self.page.bound(f"{what}: of the compiles", share, limit, is_whole=is_whole)
                self.page.bound(
                    f"{what}: peak", sums.peak, PEAKS[command], " MB", is_whole=is_whole
                )
        lint = 0.0
        for name in seconds:
            place = self.program(target, name)
            key = f"{self.name_of(place)} lint"
            held = self.figures.of(key, partial(seconds_of, sys.executable, "lint", place))
            rows[name].append(f"{held:.2f} s")
            lint += held
        share = lint / sum(seconds.values())
        total.append(f"{lint:.2f} s: {share:.2f}")
        what = f"`lint` in a process that has checked before, {target}: of the compiles"
        self.page.bound(what, share, IN_PROCESS)
        rows["**all: of the compiles**"] = total
        release = TARGETS[target].release or version("jax")
        self.page.table(
            f"Commands beside the compile: {target}, jax {release.removesuffix('-tpu')}",
            "",
            ["program", "compile", *COMMANDS, "`lint`"],
            [f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()],
        )

    def protos(self) -> None:
        """A dump in protos beside the same in texts."""
        rows, sums = [], [0.0, 0.0]
        for name in PROTOS:
            for file_type in ("text", "proto"):
                self.compile_seconds("cpu", name, file_type)
            costs = [
                self.cost(self.program("cpu", name, each), "check") for each in ("text", "proto")
            ]
            rows.append(f"| {name} | {' | '.join(map(shown, costs))} |")
            done = [held.seconds for held in costs if isinstance(held, Cost)]
            if len(done) == len(costs):
                sums = [total + held for total, held in zip(sums, done, strict=True)]
        share = sums[1] / sums[0]
        rows.append(
            f"| **all: of the texts' time** | {sums[0]:.2f} s | {sums[1]:.2f} s: {share:.2f} |"
        )
        self.page.bound("`check` of protos: of their texts' time", share, 3)
        self.page.table("Protos", "`check` without a cache.", ["cpu", "text", "protos"], rows)

    def large(self) -> None:
        """The memory of `check` on the largest dumps."""
        dumps = [*self.largest_dumps(), self.made_dump()]
        costs = [self.cost(dump, "check") for dump in dumps]
        peak = max(held.peak for held in costs if isinstance(held, Cost))
        rows = [
            f"| {self.name_of(dump)} | {megabytes(dump):.0f} | {shown(held)} |"
            for dump, held in zip(dumps, costs, strict=True)
        ]
        self.page.bound("`check`, largest dumps: peak", peak, PEAKS["check"], " MB")
        self.page.table("Large dumps", "", ["dump", "MB", "`check`"], rows)

    def beside_parser(self, title: str, places: Sequence[Path], is_each: bool) -> None:
        """`check` beside XLA's parser, on directories or on single texts."""
        rows, pairs = [], []

        def pair(place: Path) -> list[float]:
            return [seconds_of(self.parser, kind, place) for kind in ("parser", "check")]

        for place in places:
            held = self.figures.of(f"{self.name_of(place)} parser and check", partial(pair, place))
            row = f"| {self.name_of(place)} | {megabytes(place):.1f} |"
            if isinstance(held, str):
                rows.append(f"{row} {held} | | |")
                continue
            pairs.append(held)
            rows.append(f"{row} {held[0]:.2f} | {held[1]:.2f} | {held[0] / held[1]:.2f} |")
        if is_each:
            gain = median(xla / ours for xla, ours in pairs)
            rows.append(f"| **median** | | | | {gain:.2f} |")
            self.page.least("XLA's parser over `check`, single files, median", gain, 1)
        else:
            xla, ours = (sum(column) for column in zip(*pairs, strict=True))
            gain = xla / ours
            rows.append(f"| **all** | | {xla:.2f} | {ours:.2f} | {gain:.2f} |")
            self.page.least("XLA's parser over `check`, directories", gain, 3)
        release = run([self.parser, "-c", "import jaxlib; print(jaxlib.__version__)"]).strip()
        self.page.table(
            f"{title} beside XLA's parser",
            f"The parser of jaxlib {release}, which reads every text to its end, and `check`, "
            "without the starts of both.",
            ["", "MB", "XLA's parser, s", "`check`, s", "ratio"],
            rows,
        )

    def start_up(self) -> None:
        """The cost of a process before it does anything, Python's own start taken off."""
        commands = {
            "python -c pass": ["-c", "pass"],
            "import hlo_lint": ["-c", "import hlo_lint"],
            "hlo-lint check": ["-m", "hlo_lint", "check", "--isolated", "--no-cache", str(SMALL)],
        }

        def measure() -> list[float]:
            turns = []
            for _ in range(15):
                costs = [cost_of([sys.executable, *words]) for words in commands.values()]
                turns.append([each.seconds for each in costs if isinstance(each, Cost)])
            return [1000 * median(column) for column in zip(*turns, strict=True)]

        took = self.figures.of("start-up", measure)
        own, imported, checked = took
        self.page.bound("`import hlo_lint`, over Python's own start", imported - own, 30, " ms")
        self.page.bound("`hlo-lint check`, over Python's own start", checked - own, 75, " ms")
        text = f"`check` of {SMALL.stat().st_size} bytes; medians of 15 processes."
        rows = [f"| `{name}` | {each:.0f} |" for name, each in zip(commands, took, strict=True)]
        self.page.table("Start-up", text, ["process", "CPU, ms"], rows)

    def server(self) -> None:
        """The times that an editor waits."""
        times = self.figures.of("server", server.of_made_text)
        first, *_ = times.values()
        what = f"language server, first answer on {server.MEGABYTES} MB"
        self.page.bound(what, first, 2, " s")
        text = f"On a text of {server.MEGABYTES} MB whose lines are all different, on the clock."
        _, _, *rows = server.table({"": times})
        self.page.table("Language server", text, ["what", "time"], rows)


def cost(command: str, dump: Path) -> Cost | str:
    """The least of some runs of a command on a dump."""
    with tempfile.TemporaryDirectory() as scratch:
        ranks = Path(scratch, "ranks")
        ranks.mkdir()
        for number in range(8):
            (ranks / f"rank{number}").symlink_to(dump)
        places = {DUMP: str(dump), RANKS: str(ranks)}
        words = [sys.executable, "-m", "hlo_lint"]
        words += [places.get(word, word) for word in COMMANDS[command]]
        costs: list[Cost] = []
        is_cached = command == CACHED
        if is_cached:
            cost_of(words, HLO_LINT_CACHE_DIR=f"{scratch}/0")
        while len(costs) < ROUNDS and (not costs or costs[0].seconds < MANY_SECONDS):
            cache = f"{scratch}/{0 if is_cached else len(costs)}"
            held = cost_of(words, HLO_LINT_CACHE_DIR=cache)
            if isinstance(held, str):
                return held
            costs.append(held)
    return Cost(min(cost.seconds for cost in costs), max(cost.peak for cost in costs))


def run(command: Sequence[str | Path]) -> str:
    """The output of a command.

    Raises:
        SubprocessError: it failed, or took too long.
    """
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=MAX_COMPILE_SECONDS,
    )
    return done.stdout


def shown(held: Cost | str) -> str:
    return held if isinstance(held, str) else f"{held.seconds:.2f} s, {held.peak:.0f} MB"


def megabytes(place: Path) -> float:
    files = place.rglob("*") if place.is_dir() else [place]
    return sum(path.stat().st_size for path in files if path.is_file()) / 1e6


def main() -> None:
    parser = ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("build", type=Path, help="where dumps, texts and figures are, or will be")
    parser.add_argument(
        "--parser", type=Path, required=True, help="a Python with jaxlib 0.11.2 or newer"
    )
    parser.add_argument("--target", action="append", choices=TARGETS, default=[])
    parser.add_argument("--program", action="append", choices=programs.PROGRAMS, default=[])
    given = parser.parse_args()
    targets, names = given.target or [*TARGETS], given.program or [*programs.PROGRAMS]
    page = Page(None if given.target or given.program else PAGE)
    bench = Bench(given.build.resolve(), given.parser.absolute(), page, targets, names)
    tables: list[Callable[[], None]] = [
        bench.start_up,
        bench.server,
        *(partial(bench.commands, target) for target in targets),
        *([bench.protos] if "cpu" in targets else []),
        bench.large,
        lambda: bench.beside_parser("Directories", bench.largest_dumps(), False),
        lambda: bench.beside_parser("Single files", bench.single_texts(), True),
    ]
    failed = 0
    for each in tables:
        try:
            each()
        except Exception:  # the other tables are worth having
            traceback.print_exc()
            failed += 1
    if page.path is None:
        print(page.text())
    if failed:
        sys.exit(f"{failed} tables are missing; what was measured is kept: run it again")


if __name__ == "__main__":
    main()
