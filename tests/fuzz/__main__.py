"""Fuzzing by bytes: `make fuzz`, or `python -m tests.fuzz [--seconds N] [--jobs N] [TARGET…]`.

With atheris the targets are driven by the branches that they reach, each in processes of its own
for its share of the time. An input that breaks a promise stops nothing: the smallest for each place
that breaks is left in the folder `--found`, named for the target, and the exit status is 1.
`--replay FILE…` calls the targets again with what was found. With `--cases N` the properties of
generated modules are tested at the same time, N cases of each, and `--output FILE` writes the table
that is benchmarks/FUZZ.md.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import io
import os
import platform
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

MAX_LENGTH = 2048
MAX_SECONDS = 5.0
"""CPU time after which an input that ends is reported all the same."""
TIMEOUT = 60
"""Seconds after which one input is one that hangs."""
MEMORY = 2048
"""MB."""
MAX_CACHED = 20_000
"""Entries of a cache of the program after which it is emptied: a process of the program itself ends
long before it has read a million texts."""
DICTIONARY = (
    "HloModule m", "ENTRY", "ROOT", "parameter(0)", "f32[8]{0}", "f32[2,3]{1,0}", "bf16[4]{0:T(8)}",
    "(f32[8], s32[])", "calls=%f", "to_apply={", "metadata={op_name=", "backend_config={",
    "sharding={devices=[2]<=[2]}", "replica_groups={{0,1}}", "[2,1]<=[2]", "mesh['x'=2] {'x'}",
    "dimensions={0}", "is_scheduled=true", "// hlo-lint: allow", "/*", "*/", "fusion(", "reshape(",
    "while(", "condition=%c, body=%b", "custom-call(", "async-start(", "constant({1,2})",
    "entry_computation_layout={(f32[8]{0})->f32[8]{0}}", "input_output_alias={ {}: (0, {}) }",
)  # fmt: skip
SHARES = {
    "parse": 10, "memo": 6, "lint": 28, "lint_before": 6, "report": 4, "fix": 12,
    "values": 10, "match": 2, "payload": 4, "artefact": 6, "kernel_text": 3,
    "comment": 2, "settings": 1, "baseline": 1, "editor": 5, "message": 6,
    "directory": 8, "file_name": 1,
}  # fmt: skip
"""Of the time, by what a target guards."""
CHEAP = ("baseline",)
"""Targets that come last, and end after a share of the executions of all others: in the same time
they would make more than all of them."""
MIN_RUNS = 1000
"""Executions of these targets all the same."""
MAX_SHARE = 0.04
"""Executions of one of them, by those of all others."""


@dataclass(frozen=True)
class Task:
    """A process: the time that it drives a target."""

    target: str
    seconds: int
    seed: int
    runs: int = -1
    """Executions after which it ends; -1 if it ends by its time alone."""


def tasks(names: list[str], seconds: int, jobs: int, seed: int) -> list[list[Task]]:
    """The tasks of each job, one after the other: every job takes `seconds`."""
    whole = sum(SHARES[name] for name in names)
    lists: list[list[Task]] = [[]]
    left = seconds
    for name in sorted(names, key=CHEAP.__contains__):
        share = max(1, SHARES[name] * seconds * jobs // whole)
        while share:
            if not left:
                lists.append([])
                left = seconds
            part = min(share, left)
            seed += 1
            lists[-1].append(Task(name, part, seed))
            share, left = share - part, left - part
    return lists


class Watched:
    """A target that notes what breaks a promise and goes on."""

    def __init__(self, name: str, target: Callable[[bytes], None], found: Path) -> None:
        self.name, self.target, self.found = name, target, found
        self.count = 0

    def __call__(self, data: bytes) -> None:
        self.count += 1
        if not self.count % 5000:
            _empty_large_caches()
        begun = time.process_time()
        try:
            self.target(data)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001, RUF100
            self._note(data, _place(error), "".join(traceback.format_exception(error)))
            return
        seconds = time.process_time() - begun
        if seconds > MAX_SECONDS:
            self._note(data, "slow", f"{seconds:.1f} s of CPU\n")

    def _note(self, data: bytes, place: str, text: str) -> None:
        """Keep the smallest input of each place, and what is said there."""
        path = self.found / f"{self.name}-{place}"
        if not path.exists() or len(data) < path.stat().st_size:
            path.write_bytes(data)
            path.with_name(f"{path.name}.txt").write_text(text, "utf-8", "replace")


def _place(error: BaseException) -> str:
    """A name for the place that breaks; a crash that comes as a finding says its own."""
    said = re.search(r"^at (\w+)\.py:(\d+)", str(error), re.M)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "/hlo_lint/" in frame.filename or frame.filename.endswith("targets.py")
    ]
    last = frames[-1] if frames else None
    at = said.groups() if said else (Path(last.filename).stem, last.lineno) if last else ("", 0)
    return f"{type(error).__name__}-{at[0]}_{at[1]}"


def _empty_large_caches() -> None:
    for cached in _caches():
        if cached.cache_info().currsize > MAX_CACHED:
            cached.cache_clear()


@functools.cache
def _caches() -> list[Any]:
    return [
        each
        for each in gc.get_objects()
        if isinstance(each, functools._lru_cache_wrapper) and "hlo_lint" in (each.__module__ or "")
    ]


def drive(task: Task, corpus: Path, found: Path) -> None:
    """Drive one target; does not return."""
    import atheris

    from tests.fuzz.targets import TARGETS

    words = corpus / "words"
    atheris.Setup(
        [
            task.target,
            str(corpus / task.target),
            f"-artifact_prefix={found}/{task.target}-",
            f"-max_total_time={task.seconds}",
            f"-runs={task.runs}",
            f"-max_len={MAX_LENGTH}",
            f"-timeout={TIMEOUT}",
            f"-report_slow_units={TIMEOUT}",  # by the clock; `Watched` reports by CPU time
            f"-rss_limit_mb={MEMORY}",
            f"-dict={words}",
            f"-seed={task.seed}",
            "-print_final_stats=1",
            "-verbosity=0",
        ],
        Watched(task.target, TARGETS[task.target], found),
    )
    atheris.Fuzz()


def _forked(task: Task, corpus: Path, found: Path, log: Path) -> int:
    """The number of a process that drives a target, and writes what libFuzzer says."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    try:
        written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(written, 1)
        os.dup2(written, 2)
        drive(task, corpus, found)
    except BaseException:  # noqa: BLE001, RUF100
        traceback.print_exc()
    finally:
        os._exit(70)


def prepare(names: list[str], corpus: Path) -> None:
    """Import and instrument what the targets use, and write what they begin with."""
    from atheris.import_hook import HookManager

    with contextlib.redirect_stderr(io.StringIO()):  # atheris says each module
        # Not left: rules and readers are imported when they are first needed. Branches alone are
        # traced: with its comparisons too, a process finds fewer of them in the same time.
        # What chooses the rules does the same for every input.
        constant = {"hlo_lint.rules.registry", "hlo_lint.rules.entry"}
        HookManager({"hlo_lint"}, constant, True, trace_dataflow=False).__enter__()
        from tests.fuzz.corpus import seeds
        from tests.fuzz.targets import TARGETS

        lines = (f'"{w}"\n'.replace("\\", "\\\\") for w in DICTIONARY)
        corpus.mkdir(parents=True, exist_ok=True)
        (corpus / "words").write_text("".join(lines), "utf-8")
        for name in names:
            folder = corpus / name
            folder.mkdir(exist_ok=True)
            for number, seed in enumerate(seeds(name)):
                (folder / f"seed{number:04d}").write_bytes(seed[:MAX_LENGTH])
                # Imports take longer than any input may. A server has threads, which no fork keeps.
                if number < 20 and name != "message":
                    TARGETS[name](seed[:MAX_LENGTH])
    gc.collect()
    gc.freeze()  # a collection of all that is imported takes as long as many executions


def run(
    lists: list[list[Task]], corpus: Path, found: Path, ended: dict[int, int]
) -> Iterator[dict[str, Any]]:
    """Run the tasks of each job; yields what libFuzzer counted of each.

    The status of any other process that ends meanwhile goes into `ended`.
    """
    running: dict[int, tuple[Task, list[Task], Path]] = {}
    has_others = any(task.target not in CHEAP for waiting in lists for task in waiting)
    total = 0

    def start(waiting: list[Task]) -> None:
        if waiting:
            task = waiting[0]
            if has_others and task.target in CHEAP:
                task = replace(task, runs=max(MIN_RUNS, int(total * MAX_SHARE)))
            log = corpus / f"log{task.seed}"
            running[_forked(task, corpus, found, log)] = (task, waiting[1:], log)

    for waiting in lists:
        start(waiting)
    while running:
        child, status, usage = os.wait4(-1, 0)
        if child not in running:  # a process that tests properties
            ended[child] = status
            continue
        task, waiting, log = running.pop(child)
        said = log.read_text("utf-8", "replace")
        counted = {key: int(n) for key, n in re.findall(r"stat::(\w+): *(\d+)", said)}
        total += counted.get("number_of_executed_units", 0)
        code = os.waitstatus_to_exitcode(status)
        if code:
            lines = [line for line in said.splitlines() if "INFO:" not in line]
            (found / f"{task.target}-exit{task.seed}.txt").write_text("\n".join(lines[-80:]))
        used = usage.ru_utime + usage.ru_stime
        yield {"target": task.target, "seconds": used, "status": code, **counted}
        start(waiting)


def property_processes(cases: int, jobs: int) -> dict[int, Path]:
    """Processes that test the properties of generated modules, and what they write."""
    folder = Path(tempfile.mkdtemp(prefix="hlo-lint-properties"))
    command = [sys.executable, "-m", "pytest", "-q", "--timeout=0", "-p", "no:cacheprovider"]
    command += ["--hypothesis-show-statistics", "tests/fuzz/test_properties.py"]
    environment = {**os.environ, "HLO_LINT_CASES": str(-(-cases // jobs))}
    logs = {}
    for number in range(jobs if cases else 0):
        log = folder / str(number)
        actions = [(os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT, 0o600)]
        child = os.posix_spawn(sys.executable, command, environment, file_actions=actions)
        logs[child] = log
    return logs


def counted_properties(logs: dict[int, Path], ended: dict[int, int]) -> dict[str, tuple[int, int]]:
    """The cases of each property that held and that did not, when all processes have ended."""
    counts: dict[str, tuple[int, int]] = {}
    for child, log in logs.items():
        status = ended[child] if child in ended else os.waitpid(child, 0)[1]
        said = log.read_text("utf-8", "replace")
        for part in re.split(r"^tests/\S*::(?=\w+:$)", said, flags=re.M)[1:]:
            name = part.partition(":")[0]
            held, failed = counts.get(name, (0, 0))
            for passing, failing in re.findall(r"(\d+) passing\b[^,]*, (\d+) failing", part):
                held, failed = held + int(passing), failed + int(failing)
            counts[name] = held, failed
        if status:
            print(said[-3000:], flush=True)
            counts[f"a process ended with {os.waitstatus_to_exitcode(status)}"] = 0, 1
    return counts


HEAD = """# Fuzzing

Written by `python -m tests.fuzz --seconds {seconds} --jobs {jobs} --cases {cases} --output FILE`
on {cores} cores, with Python {python} and atheris {atheris}, in {took} s. Each target is a promise
that is kept for all bytes (`tests/fuzz/targets.py`); atheris looks for bytes, {length} of them at
most, that reach new branches of hlo_lint. An input counts as found if it breaks the promise, ends
in an error of Python, takes more than {slow} s of CPU, or does not end. All that earlier runs found
is mended, and is in `fixtures/broken/fuzz_*`.

| target | promise | executions | % of all | s of CPU | a second of CPU | longest, s | found |
|---|---|---|---|---|---|---|---|
"""


def table(options: argparse.Namespace, ran: list[dict[str, Any]], took: float) -> Iterator[str]:
    """The lines of the page."""
    import atheris

    from tests.fuzz.targets import TARGETS

    yield HEAD.format(
        **vars(options),
        cores=os.cpu_count(),
        python=platform.python_version(),
        atheris=getattr(atheris, "__version__", "") or version("atheris"),
        took=round(took),
        length=MAX_LENGTH,
        slow=f"{MAX_SECONDS:.0f}",
    )
    total = sum(one.get("number_of_executed_units", 0) for one in ran)
    for name in dict.fromkeys(one["target"] for one in ran):
        of = [one for one in ran if one["target"] == name]
        count = sum(one.get("number_of_executed_units", 0) for one in of)
        longest = max(one.get("slowest_unit_time_sec", 0) for one in of)
        found = [path for path in options.found.glob(f"{name}-*") if path.suffix != ".txt"]
        promise = str(TARGETS[name].__doc__).splitlines()[0]
        used = sum(one["seconds"] for one in of)
        yield (
            f"| {name} | {promise} | {count:,} | {100 * count / total:.1f} | {used:,.0f} "
            f"| {count / used:,.0f} | {longest} | {len(found)} |\n"
        )
    seconds = sum(one["seconds"] for one in ran)
    ended = sum(bool(one["status"]) for one in ran)
    yield (
        f"\n{total:,} executions in {seconds:,.0f} s of CPU, {total / seconds:,.0f} a second; "
        f"{ended} of {len(ran)} processes ended with an error.\n"
    )


def property_table(counts: dict[str, tuple[int, int]]) -> Iterator[str]:
    """The lines about generated modules."""
    yield "\n| property of generated modules | cases | not held |\n|---|---|---|\n"
    for name, (held, failed) in counts.items():
        words = name.removeprefix("test_").replace("_", " ")
        yield f"| {words} | {held:,} | {failed} |\n"
    yield f"\n{sum(held for held, _ in counts.values()):,} cases of hypothesis.\n"


def replay(files: list[str]) -> None:
    """Call the targets with what was found."""
    from tests.fuzz.targets import TARGETS

    for file in files:
        name = Path(file).name.removeprefix("fuzz_").partition("-")[0]
        print(f"{name}: {file}", flush=True)
        TARGETS[name](Path(file).read_bytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--seconds", type=int, default=60, help="for all targets together")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--found", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--corpus", type=Path, help="where inputs that reach new branches are kept")
    parser.add_argument("--cases", type=int, default=0, help="of each property")
    parser.add_argument("--case-jobs", type=int, default=4, help="processes that test properties")
    parser.add_argument("--output", type=Path, help="a file that gets the table of what was run")
    parser.add_argument("--replay", nargs="+", metavar="FILE")
    options = parser.parse_args()
    if options.replay:
        replay(options.replay)
        return
    options.found.mkdir(parents=True, exist_ok=True)
    scratch = tempfile.TemporaryDirectory(prefix="hlo-lint-fuzz")
    corpus = options.corpus or Path(scratch.name)
    names = options.targets or _names()
    begun = time.monotonic()
    logs = property_processes(options.cases, options.case_jobs)
    prepare(names, corpus)
    lists = tasks(names, options.seconds, options.jobs, options.seed)
    ended: dict[int, int] = {}
    ran = list(run(lists, corpus, options.found, ended))
    took = time.monotonic() - begun
    counts = counted_properties(logs, ended)
    page = "".join((*table(options, ran, took), *(property_table(counts) if counts else ())))
    print(page[page.index("| target") :])
    if options.output:
        options.output.write_text(page, "utf-8")
    found = sorted(options.found.iterdir())
    for path in found:
        print(f"found: {path}")
    sys.stdout.flush()
    scratch.cleanup()
    os._exit(bool(found) or any(failed for _, failed in counts.values()))


def _names() -> list[str]:
    from tests.fuzz.targets import TARGETS

    return list(TARGETS)


if __name__ == "__main__":
    main()
