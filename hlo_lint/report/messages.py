"""Messages of XLA, and the rules, pages and commands that they lead to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hlo_lint.rules.base import Rule
from hlo_lint.text.patterns import late

SHORTEST = 8
"""Characters of a part of a message that says which one it is."""

COMMANDS = {
    "RESOURCE_EXHAUSTED|[Oo]ut of memory": (
        "the device has too little memory",
        "hlo-lint check --select huge-temporary,copied-donation,copied-loop-state DUMP",
    ),
    "may be stuck|is stuck|[Rr]endezvous.*(?:timed out|[Tt]erminat)": (
        "processes or devices wait for each other in a collective",
        "hlo-lint ranks DUMPS",
    ),
    r"(?<![\w-])[Nn]a[Nn](?![\w-])": (
        "the program makes a NaN",
        "hlo-lint run --first-nan DUMP",
    ),
    "CACHE MISS": (
        "jax.jit traces a function again",
        "hlo-lint diff A B, the modules before optimizations of two of its compiles",
    ),
    "TMA descriptor": (
        "the driver refuses a tensor descriptor",
        "hlo-lint check --select tma DUMP",
    ),
    "CUDA_ERROR_ILLEGAL_ADDRESS|illegal memory access|CUDA_ERROR_MISALIGNED": (
        "a kernel reads or writes where it must not",
        "hlo-lint check --select memory,autotuning DUMP",
    ),
    r"hlo_verifier\.cc|Verification failed": (
        "XLA's verifier refuses the module",
        "hlo-lint check --select verifier DUMP",
    ),
    "RET_CHECK failure|Check failed:|SIGSEGV|SIGABRT": (
        "a pass met what it cannot take",
        "hlo-lint check DUMP",
    ),
}
"""The meaning of messages that belong to no rule, and the command that says more, by a pattern: the
first that occurs."""


class XlaMessage(NamedTuple):
    """Part of a message of XLA."""

    file: str
    """The source file that it names; "" if it names none."""
    text: str

    def is_in(self, log: str) -> bool:
        """True if a log has it."""
        parts = [re.escape(part.strip()) for part in self.text.split("…")]
        return re.search(".{0,400}?".join(parts), log) is not None

    def has(self, part: str) -> bool:
        """True if it has a part that somebody typed."""
        return len(part) >= SHORTEST and part.lower() in self.text.lower()


_split_message = late(r"(?:(\w+\.cc): )?(.*)").fullmatch
_split_failure = late(r".*?\((\w+\.cc)\) (.*)|\w+: (.*)").fullmatch
_source_files = late(r"\b(\w+\.cc)\b").findall


def messages_of(rule: Rule) -> Iterator[XlaMessage]:
    """The messages of a rule, and those of the pass whose demand it checks."""
    for written in rule.messages:
        file, text = _split_message(written).groups("")  # type: ignore[union-attr]
        yield XlaMessage(file, text)
    if rule.precondition is not None:
        match = _split_failure(rule.precondition.failure)
        assert match is not None
        file, text, bare = match.groups("")
        for part in (text or bare).split(", or "):
            yield XlaMessage(file, part)


def rules_for(log: str, rules: Sequence[Rule]) -> list[Rule]:
    """The rules that a log, or a part of a message, leads to.

    If it has none of their messages: those with a message of a source file that it names.
    """
    log = " ".join(log.split())
    messages = [(rule, message) for rule in rules for message in messages_of(rule)]
    hits = [rule for rule, message in messages if message.is_in(log) or message.has(log)]
    if not hits:
        files = set(_source_files(log))
        hits = [rule for rule, message in messages if message.file in files]
    return list(dict.fromkeys(hits))


def command_for(log: str) -> tuple[str, str] | None:
    """The meaning of a log that leads to no rule, and the command that says more."""
    answers = (answer for pattern, answer in COMMANDS.items() if re.search(pattern, log))
    return next(answers, None)
