"""Find the rules and commands that explain a message of XLA."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hlo_lint.rules.base import Rule
from hlo_lint.text.patterns import late

SHORTEST = 8
"""The least characters of a part of a message that identify the message."""

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
        "a pass got a module that it does not support",
        "hlo-lint check DUMP",
    ),
}
"""The meaning of messages without a rule, and a command to run, by pattern; the first match
counts."""


class XlaMessage(NamedTuple):
    """A part of a message of XLA."""

    file: str
    """The source file that it names, or ""."""
    text: str

    def is_in(self, log: str) -> bool:
        """True if a log contains the message."""
        parts = [re.escape(part.strip()) for part in self.text.split("…")]
        return re.search(".{0,400}?".join(parts), log) is not None

    def has(self, part: str) -> bool:
        """True if the message contains a part that a user typed."""
        return len(part) >= SHORTEST and part.lower() in self.text.lower()


_split_message = late(r"(?:(\w+\.cc): )?(.*)").fullmatch
_split_failure = late(r".*?\((\w+\.cc)\) (.*)|\w+: (.*)").fullmatch
_source_files = late(r"\b(\w+\.cc)\b").findall


def messages_of(rule: Rule) -> Iterator[XlaMessage]:
    """The messages of a rule, and of the pass whose demand it checks."""
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
    """The rules for the messages in a log, or for a part of a message.

    Without such a message, the rules with messages from source files that the log names.
    """
    log = " ".join(log.split())
    messages = [(rule, message) for rule in rules for message in messages_of(rule)]
    hits = [rule for rule, message in messages if message.is_in(log) or message.has(log)]
    if not hits:
        files = set(_source_files(log))
        hits = [rule for rule, message in messages if message.file in files]
    return list(dict.fromkeys(hits))


def command_for(log: str) -> tuple[str, str] | None:
    """The meaning of a log without messages of rules, and a command to run."""
    answers = (answer for pattern, answer in COMMANDS.items() if re.search(pattern, log))
    return next(answers, None)
