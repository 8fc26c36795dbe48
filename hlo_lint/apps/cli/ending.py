"""The page about a program that died: its last line, the reason, the next command."""

from __future__ import annotations

import re
import shlex
import signal
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.crash import CrashSite, find_crash_site
from hlo_lint.dumps.directory import open_dump
from hlo_lint.text.errors import DumpError
from hlo_lint.text.patterns import late
from hlo_lint.text.phrases import counted, listed
from hlo_lint.text.source import decode, shown

SHOWN = 3
"""Number of passes, and of custom calls, that the page names."""
MAX_LOG_BYTES = 4 << 20
"""Bytes at the end of a log that are read."""


class ProgramEnd(NamedTuple):
    """The exit status of a program, and the reason for its end."""

    code: int
    """Of `Popen.returncode`: the negative number of a signal, or the exit status."""
    hung_for: float | None = None
    """Seconds without a line or a dump, after which the program was killed."""
    out_of_memory: bool = False
    """True if the kernel killed a process of this control group meanwhile, for lack of memory."""

    def __str__(self) -> str:
        if self.hung_for is not None:
            return f"the program hung: {self.hung_for:g} s without a line or a dump; it was killed"
        if self.code == -getattr(signal, "SIGKILL", 9) or self.code == 137:
            cause = "by the kernel, out of memory" if self.out_of_memory else "from outside"
            hint = "" if self.out_of_memory else " (`dmesg` tells whether memory ran out)"
            return f"the program was killed {cause}: SIGKILL{hint}"
        if self.code in (-signal.SIGINT, 128 + signal.SIGINT):
            return "the program was interrupted"
        if self.code < 0:
            return f"the program died of {_signal_name(-self.code)}"
        by_signal = _signal_name(self.code - 128) if self.code > 128 else ""
        return f"the program exited with {self.code}" + (f" ({by_signal})" if by_signal else "")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}" if number < 65 else ""


class PythonPlace(NamedTuple):
    """A line of the program."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


_find_stacks = late(
    # An error may end with the traceback of another, as that of a callback does.
    r"^(?:[^\n]*Traceback \(most recent call last\)|(?:Current )?[Tt]hread 0x\w+ [^\n]*"
    r"\(most recent call first\)):\n(?P<frames>(?:[ \t]+[^\n]*\n|\n(?=[ \t]))*)"
    r"(?=(?P<error>[^\n]*))",
    re.M,
).finditer
_find_frames = late(r'^\s*File "([^"\n]+)", line (\d+),? in ([^\n"/]+)', re.M).findall
_find_fatal = late(r"^(?:F\d{4} \S+\s+\d+ (\S+\.cc:\d+)\] |(LLVM ERROR): )(.+)$", re.M).findall
_find_problems = late(r"^[WE]\d{4} \S+\s+\d+ (\S+\.cc:\d+)\] (.+)$", re.M).findall
_find_advice = late(r"hlo-lint (\w+ --[^;]*?) DUMP\b(?! CALL)").search
_find_targets = late(r'custom_call_target="([^"\n]*)"').findall
_is_from_xla = late(
    r"(?:Jax|Xla)RuntimeError|\.cc:\d+: |\b(?:INTERNAL|UNKNOWN|[A-Z]{2,}_[A-Z]{2,}|UNIMPLEMENTED): "
).search
_is_of_operation = late(r"\S*JaxStackTraceBeforeTransformation\b").match
_is_library = late(r"site-packages|dist-packages|/lib/python3|^<frozen").search


def python_place(log: str) -> PythonPlace | None:
    """The innermost line of the program in the last stack that has a line of it.

    The stack of the operation that JAX could not transform says more than that of the call.
    """
    stacks = reversed(list(_find_stacks(log)))
    for stack in sorted(stacks, key=lambda stack: _is_of_operation(stack["error"]) is None):
        frames = [
            PythonPlace(file, int(line), function)
            for file, line, function in _find_frames(stack["frames"])
            if _is_library(file) is None
        ]
        if frames:
            return frames[-1] if "Traceback (" in stack[0] else frames[0]
    return None


def failure_message(log: str) -> str:
    """The message that a program died of: a failed check, else an exception; "" if neither."""
    if fatal := _find_fatal(log):
        source, llvm, text = fatal[-1]
        return f"{source or llvm}: {text}"
    stacks = (stack for stack in _find_stacks(log) if "Traceback (" in stack[0])
    errors = [error for stack in stacks if (error := str(stack["error"]).strip())]
    return errors[-1] if errors else ""


def last_message(log: str) -> str:
    """The message that a program died of, else its last warning."""
    problems = [] if (failure := failure_message(log)) else _find_problems(log)
    return ": ".join(problems[-1]) if problems else failure


def read_end(path: Path) -> str:
    """The end of a log; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - MAX_LOG_BYTES))
            return decode(file.read())
    except OSError:
        return ""


def page(ending: ProgramEnd, folder: Path, log: Path) -> Iterator[str]:
    """The lines of the page: where the program died, why, and what to run next."""
    for number, line in enumerate(_page(ending, folder, log)):
        yield shown(line if number else f"hlo-lint: {line}")


def _page(ending: ProgramEnd, folder: Path, log: Path) -> Iterator[str]:
    text = read_end(log)
    # The ranks that a launcher started, by the time of their last line.
    paths = sorted(folder.glob("rank*.log"), key=lambda path: path.stat().st_mtime_ns)
    logs = {path.stem: read_end(path) for path in paths}
    # The log of the launcher mixes the lines of all ranks.
    died_first = next(
        (rank for rank, end in logs.items() if _find_fatal(end) or any(_find_stacks(end))), None
    )
    if died_first is not None and ending.hung_for is None:
        text, log, folder = logs[died_first], folder / f"{died_first}.log", folder / died_first
    compilations = [compilation for compilation in _by_time(folder) if not compilation.is_helper]
    message = last_message(text)
    next_commands = []
    yield f"{ending}"
    if died_first is not None and ending.hung_for is None:
        yield f"first: {died_first}, its log is {log}"
    if not compilations:
        yield "where: before XLA compiled anything"
    elif compilations[-1].crashed:
        site = find_crash_site(compilations[-1])
        yield f"where: {_in_compile(compilations[-1], site)}"
        yield f"  its input: {site.dump.path}"
        if not site.pass_name:
            flags = "XLA_FLAGS=--xla_dump_hlo_pass_re=.+"
            next_commands.append(f"{flags} hlo-lint exec …, which names the pass")
        next_commands.append(_command("check", folder))
    else:
        yield from _after_compiles(compilations, ending, message)
        if ending.code < 0 or _is_from_xla(message):  # not in Python
            next_commands.append(_command(_advised(message), folder))
    if message:
        yield f"message: {message}"
        yield from (f"  {line}" for line in explained(message))
        if compilations:
            yield from _mentioned(message, compilations[-1])
        next_commands.insert(0, f"hlo-lint explain - < {shlex.quote(str(log))}")
    yield from _python_places(text, logs)
    if all_ranks := folder_of_ranks(folder):
        next_commands.insert(0, _command("ranks", all_ranks))
    elif ending.hung_for is not None or "rendezvous" in message.lower():
        several = "with several processes, each under `hlo-lint exec`: hlo-lint ranks"
        next_commands.insert(0, f"{several} {shlex.quote(str(folder))}")
    elif compilations and not message:
        next_commands.append(_command("report", folder))
    for command in next_commands[:2]:
        yield f"next: {command}"


def _python_places(log: str, logs: Mapping[str, str]) -> Iterator[str]:
    """The line of the program where it was, or the line of each rank."""
    if not logs:
        if (place := python_place(log)) is not None:
            yield f"Python: {place}"
        return
    ranks: dict[PythonPlace, list[str]] = defaultdict(list)
    for rank, end in logs.items():
        if (place := python_place(end)) is not None:
            ranks[place].append(rank)
    for place, names in islice(ranks.items(), SHOWN):
        yield f"Python: {place} ({listed(sorted(names), SHOWN)})"


def folder_of_ranks(folder: Path) -> Path | None:
    """The folder that has the folder of this rank and of others, or those of all ranks."""
    return next(
        (
            place
            for place in (folder, folder.parent)
            if len(list(place.glob("rank*/"))) > 1 and (place == folder or "rank" in folder.name)
        ),
        None,
    )


def _command(name: str, folder: Path) -> str:
    return f"hlo-lint {name} {shlex.quote(str(folder))}"


def _by_time(folder: Path) -> list[Compilation]:
    """The compilations of a folder, by the time of their last file."""
    try:
        compilations = [
            compilation
            for compilation in open_dump(folder)
            if compilation.dumps[0].name is not None
        ]
    except DumpError:
        return []

    def written(compilation: Compilation) -> int:
        return max(path.stat().st_mtime_ns for path in compilation.files)

    return sorted(compilations, key=written)


def _in_compile(compilation: Compilation, site: CrashSite) -> str:
    if not site.suspects:
        return f"it compiled {compilation.title}; the pass is unknown: {site.why}"
    names = listed((name for _, name in site.suspects), SHOWN)
    pipelines = " and ".join(dict.fromkeys(pipeline for pipeline, _ in site.suspects[:SHOWN]))
    which = "the pass" if site.is_complete and len(site.suspects) == 1 else "one of"
    later = "" if site.is_complete else ", or a later pass"
    title = f"{compilation.title} ({compilation.compiler})"
    return f"it compiled {title}: {which} {names} of {pipelines}{later}"


def _after_compiles(
    compilations: list[Compilation], ending: ProgramEnd, message: str
) -> Iterator[str]:
    """The finished modules, and the custom calls of the last module."""
    last = compilations[-1]
    verb = "hung" if ending.hung_for is not None else "died"
    if _is_from_xla(message):
        where = f"it {verb} in an emitter or running a module"
    elif message and ending.code >= 0:
        where = f"it {verb} in Python"
    elif 0 < ending.code < 128:
        where = "the program ended by itself"
    else:
        where = f"it {verb} in an emitter, a module that ran, or other native code"
    yield (
        f"where: the HLO passes of {counted(len(compilations), 'module')} ended, those of "
        f"{last.title} last; after them {where}"
    )
    if unfinished := [compilation.title for compilation in compilations if compilation.crashed]:
        yield f"  did not compile before: {listed(unfinished, SHOWN)}"
    if last.final is not None:
        # The text is searched: to parse a final module may take seconds.
        calls = dict.fromkeys(_find_targets(last.final.file.text))
        if calls:
            yield f"  its custom calls: {listed(calls, SHOWN)}"


def _mentioned(message: str, compilation: Compilation) -> Iterator[str]:
    """The instructions that a message names, or the kernels that may say it."""
    from hlo_lint.engine.mentions import mentions_in
    from hlo_lint.report.messages import kernels_behind

    with suppress(DumpError):
        for mention in islice(mentions_in(message, [compilation], kernels_behind(message)), SHOWN):
            place = mention.source or f"{mention.path}:{mention.line}"
            yield f"  %{', in '.join([mention.instruction.name, *mention.callers])}: {place}"


def _advised(message: str) -> str:
    """The command, with its options, that the meaning of a message advises for a dump.

    Each kernel alone without such, or for a plain `check`, which has run.
    """
    from hlo_lint.report.messages import meaning_of

    meaning = meaning_of(message)
    advice = _find_advice(meaning.next) if meaning else None
    return advice[1] if advice else "validate --kernels"


def explained(message: str) -> Iterator[str]:
    """The meaning of a message, as far as it is known."""
    from hlo_lint.report.messages import meaning_and_sources, origin, rules_for
    from hlo_lint.rules.registry import rule_entries

    rules = rules_for(message, rule_entries())
    if rules:
        for rule in rules[:SHOWN]:
            yield f"{rule.name}: {rule.load().summary()}"
        return
    meaning, sources = meaning_and_sources(message)
    if meaning:
        yield meaning.means
    if sources:
        yield from origin(sources).splitlines()
