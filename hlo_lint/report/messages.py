"""The meaning of XLA's messages: the rules that explain one, the commands to run next."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from hlo_lint.dumps.messages import KINDS, Component, MessageSource, failure_in, find_sources
from hlo_lint.rules.entry import RuleEntry
from hlo_lint.text.patterns import late

SHORTEST = 8
"""The least characters of a part of a message that identify the message."""
MOST_DETAILED = 3
"""The number of components up to which each is shown with its commands."""


class Meaning(NamedTuple):
    """The meaning of messages, as `messages.toml` has it."""

    words: re.Pattern[str]
    means: str
    next: str
    """A command to run."""
    calls: str = ""
    """A pattern in the attributes of the calls and fusions that may say it."""
    is_general: bool = False
    """True if it counts only for messages of no known component."""

    def __str__(self) -> str:
        return f"{self.means}: {self.next}"


@cache
def meanings() -> tuple[Meaning, ...]:
    """All meanings; the first that matches counts."""
    data = tomllib.loads((Path(__file__).parent / "messages.toml").read_text("utf-8"))
    return tuple(
        Meaning(**{**entry, "words": re.compile(entry["words"])}) for entry in data["message"]
    )


class XlaMessage(NamedTuple):
    """A part of a message of XLA."""

    file: str
    """The source file that it names, or ""."""
    text: str

    def is_in(self, log: str) -> bool:
        """True if a log contains the message."""
        parts = [part.strip() for part in self.text.split("…")]
        return all(part in log for part in parts) and bool(
            re.search(".{0,400}?".join(map(re.escape, parts)), log)
        )

    def has(self, part: str) -> bool:
        """True if the message contains a part that a user typed."""
        return len(part) >= SHORTEST and part.lower() in self.text.lower()


_split_message = late(r"(?:(\w+\.cc): )?(.*)").fullmatch
# The day in the stamp of a line looks like an error code: `E0101 10:00:00.1 4242 client.cc:7]`.
_without_stamps = late(r"\b[IWEF]\d{4} \d\d:\d\d:[\d.]+").sub
_source_files = late(r"\b(\w+\.cc)\b").findall


def messages_of(rule: RuleEntry) -> Iterator[XlaMessage]:
    """The messages of a rule, and of the pass whose demand it checks."""
    for written in rule.messages:
        file, text = _split_message(written).groups("")  # type: ignore[union-attr]
        yield XlaMessage(file, text)


def rules_for(log: str, rules: Sequence[RuleEntry]) -> list[RuleEntry]:
    """The rules for the messages in a log, or for a part of a message."""
    log = " ".join(log.split())
    return [
        rule
        for rule in rules
        if any(message.is_in(log) or message.has(log) for message in messages_of(rule))
    ]


def rules_for_files(log: str, rules: Sequence[RuleEntry]) -> list[RuleEntry]:
    """The rules with messages from the source files that a log names."""
    files = set(_source_files(log))
    return [rule for rule in rules if any(message.file in files for message in messages_of(rule))]


def meaning_of(log: str, *, general: bool = True) -> Meaning | None:
    """The meaning of a message that is of no rule; without `general`, only a special one."""
    log = " ".join(_without_stamps("", log).split())
    chosen = (meaning for meaning in meanings() if general or not meaning.is_general)
    return next((meaning for meaning in chosen if meaning.words.search(log)), None)


def meaning_and_sources(log: str) -> tuple[Meaning | None, tuple[MessageSource, ...]]:
    """The meaning of a message, and the files it comes from where they say more."""
    sources = find_sources(log)
    meaning = meaning_of(failure_in(log), general=False)
    # Words that say less than the file, or than the message that has them.
    if meaning and not (sources and sources[0].quoted):
        sources = ()
    return meaning if meaning or sources else meaning_of(log), sources


def kernels_behind(log: str) -> str:
    """A pattern in the attributes of the calls and fusions that may say a message, or empty."""
    meaning = meaning_of(failure_in(log), general=False)
    if meaning is not None:
        return meaning.calls
    return next((source.component.calls for source in find_sources(log)), "")


def origin(sources: Sequence[MessageSource]) -> str:
    """The lines that say where a message comes from: component, pass, time, fault, next commands.

    Sources of a single component share their lines; several say that it may be each of them.
    """
    lines = []
    components = list(dict.fromkeys(source.component for source in sources))
    if len(components) > 1:
        lines.append("this may come from each of these:")
    for component in components:
        of = [source for source in sources if source.component == component]
        passes = list(dict.fromkeys(name for source in of for name in source.passes))
        names = ", ".join(dict.fromkeys(map(_file_of, of)))
        how = "" if of[0].quoted else ", by its words"
        lines.append(f"from: {component.name} ({names}{how})")
        lines += [f"  {line}" for line in _when(component, of, passes)]
        if len(components) > MOST_DETAILED:
            continue
        if kinds := {KINDS[source.kind] for source in of if source.kind} - {""}:
            lines += [f"  fault: {kind}" for kind in sorted(kinds)]
        lines += [f"  next: {command}" for command in component.next]
        off = component.off
        if passes and component.optional:
            off = f"--xla_disable_hlo_passes={','.join(passes)}"
        if off:
            lines.append(f"  off: {off}")
    return "\n".join(lines) + "\n"


def _file_of(source: MessageSource) -> str:
    path = source.path.removeprefix("xla/")
    if not source.quoted or "_" in source.quoted or "/" in source.quoted:
        # A bare name may be of another folder in another release.
        return source.quoted or path
    return f"{source.quoted}, if it is {path}" if "/" in path else path


def _when(
    component: Component, sources: Sequence[MessageSource], passes: Sequence[str]
) -> Iterator[str]:
    """The passes of some files of a component, or the phase that they run in."""
    if passes:
        yield f"pass: {', '.join(passes)}"
    elif component.phase:
        yield f"outside the passes: {component.phase}"
    if not passes:
        if callers := list(dict.fromkeys(name for source in sources for name in source.callers)):
            counted = f"{callers[0]}, see the dump" if callers[0].isdigit() else ", ".join(callers)
            yield f"passes that call it: {counted}"
        elif not component.phase:
            yield "pass: several share this code; the last dump names the next pass"
    yield f"runs: {component.when}"
