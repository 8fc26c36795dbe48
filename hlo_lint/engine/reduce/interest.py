"""Tests of interest: does a text still show the problem? The term is `llvm-reduce`'s."""

from __future__ import annotations

import os
import re
import signal
import tempfile
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from subprocess import DEVNULL, Popen, TimeoutExpired
from typing import NamedTuple, Protocol

from hlo_lint.analysis.shape_inference import ShapeInference
from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.names import parse_name
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.pass_lists import Recognition
from hlo_lint.engine.findings import Diagnostic
from hlo_lint.engine.memo import RunMemo
from hlo_lint.engine.runner import Checker, Task
from hlo_lint.hlo.ir import Module
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.rules.base import Rule
from hlo_lint.rules.form.malformed_text import MalformedText
from hlo_lint.text.errors import UsageError, os_errors_as
from hlo_lint.text.source import encode
from hlo_lint.xla.child import Pool
from hlo_lint.xla.compiler import Ending, XlaCompiler
from hlo_lint.xla.parser import XlaParser

_shape = re.compile(r"\(?\b[a-z]\w*\[[^\]]*\](?:\{[^}]*\})?\)?")
_name = re.compile(r"%[\w.\-]+(?:#\d+)*")
_number = re.compile(r"\d+(?:\.\d+)?")


LOOSE = "reduced.hlo"
"""A file name that is not a dump's."""


class InterestVerdict(NamedTuple):
    """The answer of a test."""

    interesting: bool
    anchor: tuple[str, str] | None = None
    """The computation and the instruction at which the problem shows, if that is known."""


class InterestTest(Protocol):
    """A test of interest; it may be called by several threads at once."""

    def __call__(self, text: str) -> InterestVerdict:
        """The verdict on a text."""


def skeleton(message: str) -> str:
    """A message without shapes, names and numbers, which identifies the kind of problem.

    >>> skeleton("%r moves bytes: f32[2,3]{0,1} and f32[6]{0}, of 2 users")
    '% moves bytes: shape and shape, of  users'
    """
    return _number.sub("", _name.sub("%", _shape.sub("shape", message)))


@dataclass(frozen=True)
class FindingTest:
    """A test for an equivalent finding of a rule, at an instruction with the same opcode.

    A text with more shape errors than the input is not interesting: the reduction must not
    introduce a problem of its own.
    """

    rule: Rule
    opcode: str
    """Empty for a finding at a stretch of text."""
    message: str
    """The skeleton of the finding's message."""
    instruction: str | None = None
    """The preferred instruction, if several show the problem."""
    before: str | None = None
    """The pass that comes next."""
    max_errors: int = 0
    """The number of errors in the shapes of the input."""
    file_name: str = LOOSE
    """The name of the file: a dump's name gives its step in a run."""
    release: Recognition | None = None
    """The release recognized from the other dumps; None for a single file."""
    memo: RunMemo = field(default_factory=RunMemo, compare=False, repr=False)

    def findings(self, text: str) -> list[tuple[Module, Diagnostic]]:
        """The findings of the rule in a text, each with its module."""
        path = Path(self.file_name)
        file = parse_file(text, path)
        checker = Checker(Task([self.rule], self.before, memo=self.memo))
        dump = PassDump(path, parse_name(self.file_name), _file=file)
        checker.check_compilation(Compilation([dump], [], lone=True, folder_release=self.release))
        self.memo.keep(file)
        return [(file.modules[0], finding) for finding in checker.result.diagnostics]

    def __call__(self, text: str) -> InterestVerdict:
        """The verdict on a text."""
        matching = [
            finding
            for module, finding in self.findings(text)
            if (skeleton(finding.message), opcode_at(module, finding))
            == (self.message, self.opcode)
        ]
        if not matching or shape_errors(parse_file(text).modules[0]) > self.max_errors:
            return InterestVerdict(False)
        first = min(matching, key=lambda finding: finding.instruction != self.instruction)
        if first.computation is None or first.instruction is None:
            return InterestVerdict(True)
        return InterestVerdict(True, (first.computation, first.instruction))


def opcode_at(module: Module, finding: Diagnostic) -> str:
    """The opcode of the instruction at a finding; empty if it is not at an instruction."""
    computation = module.computation(finding.computation or "")
    instruction = computation.instruction(finding.instruction or "") if computation else None
    return instruction.opcode if instruction else ""


def shape_errors(module: Module) -> int:
    """The number of wrong shapes and of parse problems."""
    inference = ShapeInference(module.computations)
    errors = chain.from_iterable(map(inference.errors, module.computations))
    return sum(1 for _ in errors) + len(module.problems)


@dataclass(frozen=True)
class CommandTest:
    """A command that exits with status 0 for an interesting file, as for `llvm-reduce --test`.

    The file's path replaces `{}` in the command, or is the last argument.
    """

    command: tuple[str, ...]
    timeout: float

    def __call__(self, text: str) -> InterestVerdict:
        """The verdict on a text; a command that times out means not interesting."""
        with tempfile.TemporaryDirectory(prefix="hlo_lint_") as folder:
            path = Path(folder, "module.hlo")
            path.write_bytes(encode(text))
            given = [part.replace("{}", str(path)) for part in self.command]
            if given == list(self.command):
                given.append(str(path))
            with os_errors_as(f"{given[0]} cannot be run", UsageError):
                child = Popen(
                    given, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True
                )
            try:
                return InterestVerdict(child.wait(self.timeout) == 0)
            except TimeoutExpired:
                return InterestVerdict(False)
            finally:
                if child.poll() is None:
                    os.killpg(child.pid, signal.SIGKILL)  # its children, too
                    child.wait()


ONLY_PASSES = "xla_enable_hlo_passes_only"
"""The flag that restricts XLA to the passes of a list."""

_place = re.compile(r"\b([\w./]*?[\w]+\.(?:cc|h)):\d+")
_path = re.compile(r"/[\w./\-]+")


def is_check(ending: Ending) -> bool:
    """True if a check in XLA's code failed and the message gives its line."""
    return ending.crashed and _place.search(ending.message) is not None


def cause_of(ending: Ending) -> str:
    """The cause of an ending: XLA's line of code, or the message without names."""
    place = _place.search(ending.message)
    if place is None:
        # After a name the message repeats the instruction, which is being reduced.
        first = re.split(r"[\n%]", ending.message, maxsplit=1)[0]
        return f"{ending.status}: {skeleton(_path.sub('', first))}"
    stem = place[1].rpartition("/")[2]
    line = place[0].rpartition(":")[2]
    return f"{ending.status}: {stem}:{line}"


class Guard:
    """Accepts texts that XLA's parser reads; without jaxlib, texts without visible errors."""

    def __init__(self, parsers: Pool[XlaParser] | None) -> None:
        self._parsers = parsers

    def __call__(self, text: str) -> bool:
        """True if the text is read."""
        if self._parsers is not None:
            with self._parsers.one() as parser:
                return parser.refusal(text) is None
        return not any(
            module.problems or any(True for _ in MalformedText().check(module))
            for module in parse_file(text).modules
        )


@dataclass(frozen=True)
class CrashTest:
    """A test for a compilation that ends as that of the input does."""

    compiler: XlaCompiler
    target_config: str
    flags: str
    cause: str = ""
    """The cause of the ending to look for; empty if `message` is used."""
    message: str = ""
    """A regular expression for the message."""

    def ending(self, text: str) -> Ending:
        """The end of the compilation of a text."""
        return self.compiler.compile(text, self.target_config, self.flags)

    def __call__(self, text: str) -> InterestVerdict:
        """The verdict on a text."""
        ending = self.ending(text)
        if not ending.crashed:
            return InterestVerdict(False)
        if self.message:
            return InterestVerdict(re.search(self.message, ending.message) is not None)
        return InterestVerdict(cause_of(ending) == self.cause)
