"""A parser of PTX: functions of basic blocks, whose instructions have spans.

`grammars/ptx.lark` specifies the syntax; parsing ends where the text violates it. Inline assembly
has its own scopes (`{ .reg .pred complete; ... }`); a name declared in such a scope gets its
number: `complete` becomes `complete@3`.

The parser reads only what analyses of memory need. It skips types of registers, parameters and
debug sections.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import ChainMap
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from hlo_lint.text.source import Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_THREADS = 1024
"""The largest number of threads in a block, on all chips so far."""
MAX_DEPTH = 64
"""The largest nesting depth of scopes; compilers nest two."""


@dataclass(frozen=True, slots=True)
class PtxInstruction:
    """An instruction; its operands are text without white space."""

    span: Span
    opcode: str
    operands: tuple[str, ...] = ()
    guard: str = ""
    """The predicate, `%p1` or negated `!%p1`; empty if the instruction always executes."""

    def is_a(self, *heads: str) -> bool:
        """True if the opcode is any of these or a variant of it.

        >>> PtxInstruction(Span(0, 0), "st.shared::cta.v4.b32").is_a("st.shared")
        True
        """
        return any(
            self.opcode == head or self.opcode.startswith((f"{head}.", f"{head}::"))
            for head in heads
        )


@dataclass(frozen=True, slots=True)
class Block:
    """A basic block: its instructions, and the numbers of the blocks that may follow."""

    instructions: tuple[PtxInstruction, ...]
    successors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel (`.entry`) or a device function (`.func`) with a body."""

    name: str
    span: Span
    is_kernel: bool
    threads: tuple[int, int, int]
    """Upper bounds of the block size in x, y and z: `.reqntid`, or the hardware's limit."""
    blocks: tuple[Block, ...]
    shared: Mapping[str, bool]
    """The variables in shared memory, by name; True if its size is set at launch.

    All of the latter start at the same address."""

    def instructions(self) -> Iterator[PtxInstruction]:
        """All instructions, in text order."""
        for block in self.blocks:
            yield from block.instructions


@dataclass(frozen=True, slots=True)
class Ptx:
    """A parsed PTX file."""

    text: str
    functions: tuple[Function, ...] = ()
    is_whole: bool = True
    """False if parsing ended at unreadable text; functions before it are included."""


class _Token(NamedTuple):
    text: str
    start: int
    end: int


_TOKEN = re.compile(
    r"""(?P<space> \s+ | //[^\n]* | /\*.*?(?:\*/|\Z) )
      | (?P<token> "(?:[^"\\\n]|\\.)*"? | [\w.$%]+(?:::[\w.$%]+)* | . )""",
    re.VERBOSE | re.DOTALL,
)
_NAME = re.compile(r"[A-Za-z_$%][\w$]*")
_OPCODE = re.compile(r"[a-z][\w.]*(?:::[\w.]+)*")

# These directives end with their line; all others end with a semicolon or open a body.
_ENDS_WITH_LINE = frozenset(
    """.version .target .address_size .file .loc .reqntid .maxntid .minnctapersm .maxnctapersm
    .maxnreg .noreturn .reqnctapercluster .explicitcluster .maxclusterrank .blocksareclusters
    .abi_preserve .abi_preserve_control""".split()
)
_JUMPS = ("bra", "brx.idx", "ret", "exit", "trap")
_OPENING = frozenset("{[(")
_CLOSING = frozenset("}])")


def read_ptx(text: str) -> Ptx:
    """Parse PTX. Never raises: `Ptx.is_whole` is false if a part is unreadable."""
    reader = _PtxReader(text)
    try:
        reader.read()
    except (_UnreadableError, KeyError):  # or a jump to a label that is nowhere
        return Ptx(text, tuple(reader.functions), is_whole=False)
    return Ptx(text, tuple(reader.functions))


class _UnreadableError(Exception):
    """Text that the grammar does not accept."""


@dataclass(slots=True)
class _Scope:
    """A pair of braces in a function's body, with the names of the scopes around it."""

    number: int
    parent: _Scope | None = None
    depth: int = 1
    registers: ChainMap[str, int] = field(default_factory=ChainMap)
    """The number of the scope of each register; those of the outermost scope are not needed."""
    labels: ChainMap[str, int] = field(default_factory=ChainMap)
    """The number of the instruction after each label."""
    tables: ChainMap[str, list[str]] = field(default_factory=ChainMap)
    """The labels of each `.branchtargets`."""

    def inner(self, number: int) -> _Scope:
        names = self.registers.new_child(), self.labels.new_child(), self.tables.new_child()
        return _Scope(number, self, self.depth + 1, *names)


@dataclass(slots=True)
class _FunctionBody:
    """A function whose body is being parsed."""

    name: str
    span: Span
    is_kernel: bool
    threads: tuple[int, int, int]
    shared: dict[str, bool] = field(default_factory=dict)
    instructions: list[PtxInstruction] = field(default_factory=list)
    scopes: list[_Scope] = field(default_factory=list)
    labelled: set[int] = field(default_factory=set)
    """The numbers of the instructions that follow a label."""


class _PtxReader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [
            _Token(match[0], match.start(), match.end())
            for match in _TOKEN.finditer(text)
            if match.lastgroup == "token"
        ]
        self.at = 0
        self.functions: list[Function] = []
        self.shared: dict[str, bool] = {}
        self.body: _FunctionBody | None = None
        self.scope: _Scope | None = None
        self.scope_numbers = count(1)

    # ---- the text

    def read(self) -> None:
        while word := self._peek(0):
            if word == ";":
                self.at += 1
            elif word.startswith("."):
                self._directive()
            elif self.body is None or self.scope is None:
                raise _UnreadableError
            elif word == "{":
                if self.scope.depth == MAX_DEPTH:
                    raise _UnreadableError
                self.at += 1
                self.scope = self.scope.inner(next(self.scope_numbers))
            elif word == "}":
                self.at += 1
                self.scope = self.scope.parent
                if self.scope is None:
                    self._finish(self.body)
            elif self._peek(1) == ":" and _NAME.fullmatch(word):
                self._label(self.body, self.scope)
            else:
                self._instruction(self.body, self.scope)
        if self.body is not None:
            raise _UnreadableError

    def _peek(self, ahead: int) -> str:
        """The text of a token, counted from the next; empty after the last."""
        position = self.at + ahead
        return self.tokens[position].text if position < len(self.tokens) else ""

    # ---- directives

    def _directive(self) -> None:
        first = self.tokens[self.at]
        if first.text in _ENDS_WITH_LINE:
            line_end = self.text.find("\n", first.start)
            while self._peek(0) and (line_end < 0 or self.tokens[self.at].start < line_end):
                self.at += 1
            return
        if first.text == ".section":
            self._skip_section()
            return
        words: list[str] = []
        depth = 0
        while word := self._peek(0):
            if depth == 0 and (word == ";" or (word == "{" and words[-1:] != ["="])):
                break
            depth += (word in _OPENING) - (word in _CLOSING)
            if depth < 0:
                raise _UnreadableError
            words.append(word)
            self.at += 1
        is_header = ".entry" in words or ".func" in words
        if is_header and word == "{" and self.body is None:
            self._function(words, Span(first.start, self.tokens[self.at - 1].end))
        elif word != ";":
            raise _UnreadableError
        elif ".shared" in words:
            name = words[(words.index("[") if "[" in words else len(words)) - 1]
            held = self.shared if self.body is None else self.body.shared
            held[name] = ".extern" in words
        elif words[0] == ".reg" and self.scope is not None and self.scope.parent is not None:
            self.scope.registers.update(dict.fromkeys(_declared(words), self.scope.number))

    def _skip_section(self) -> None:
        depth = 0
        while self.at < len(self.tokens):
            word = self.tokens[self.at].text
            self.at += 1
            depth += (word == "{") - (word == "}")
            if word == "}" and depth <= 0:
                return

    def _function(self, words: list[str], span: Span) -> None:
        is_kernel = ".entry" in words
        depth = 0
        name = ""
        for word in words[words.index(".entry" if is_kernel else ".func") :]:
            depth += (word == "(") - (word == ")")
            if depth == 0 and _NAME.fullmatch(word):
                name = word
                break
        if not name:
            raise _UnreadableError
        self.body = _FunctionBody(name, span, is_kernel, _threads(words))
        self.at += 1
        self.scope = _Scope(next(self.scope_numbers))

    # ---- statements

    def _label(self, body: _FunctionBody, scope: _Scope) -> None:
        name = self.tokens[self.at].text
        self.at += 2
        if self._peek(0) == ".branchtargets":
            targets: list[str] = []
            while self._peek(1) not in {";", ""}:
                self.at += 1
                targets.append(self._peek(0))
            self.at += 1
            scope.tables[name] = [target for target in targets if target != ","]
            return
        scope.labels[name] = len(body.instructions)
        body.labelled.add(len(body.instructions))

    def _instruction(self, body: _FunctionBody, scope: _Scope) -> None:
        first = self.tokens[self.at]
        guard = ""
        if first.text == "@":
            negated = self._peek(1) == "!"
            self.at += 2 if negated else 1
            guard = ("!" if negated else "") + self._name(self._peek(0), scope)
            self.at += 1
        opcode = self._peek(0)
        if not _OPCODE.fullmatch(opcode):
            raise _UnreadableError
        self.at += 1
        operands: list[str] = []
        words: list[str] = []
        depth = 0
        while (word := self._peek(0)) != ";":
            if word == "," and depth == 0:
                operands.append("".join(words))
                words = []
            else:
                depth += (word in _OPENING) - (word in _CLOSING)
                is_name = _NAME.match(word) is not None
                if not word or depth < 0 or (is_name and words and _NAME.match(words[-1])):
                    raise _UnreadableError  # it has no semicolon
                words.append(self._name(word, scope) if is_name else word)
            self.at += 1
        if depth:
            raise _UnreadableError
        if words:
            operands.append("".join(words))
        span = Span(first.start, self.tokens[self.at - 1].end)
        body.instructions.append(PtxInstruction(span, opcode, tuple(operands), guard))
        body.scopes.append(scope)

    def _name(self, word: str, scope: _Scope) -> str:
        """A register's name, with the number of the inner scope that declares it."""
        number = scope.registers.get(word)
        return word if number is None else f"{word}@{number}"

    # ---- the graph

    def _finish(self, body: _FunctionBody) -> None:
        self.body = self.scope = None
        instructions = body.instructions
        numbered = enumerate(instructions, 1)
        after_jumps = {number for number, instruction in numbered if instruction.is_a(*_JUMPS)}
        starts = sorted({0} | body.labelled | after_jumps)
        if len(starts) > 1 and starts[-1] == len(instructions) and starts[-1] not in body.labelled:
            starts.pop()  # no instruction follows the last jump
        ends = [*starts[1:], len(instructions)]
        blocks = []
        for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
            successors: list[int] = []
            last = instructions[end - 1] if end > start else None
            if last is not None and last.is_a("bra", "brx.idx"):
                targets = self._targets(last, body.scopes[end - 1])
                successors.extend(bisect_right(starts, target) - 1 for target in targets)
            falls = last is None or bool(last.guard) or not last.is_a(*_JUMPS)
            if falls and index + 1 < len(starts):
                successors.append(index + 1)
            blocks.append(Block(tuple(instructions[start:end]), tuple(dict.fromkeys(successors))))
        shared = ChainMap(body.shared, self.shared)
        head = body.name, body.span, body.is_kernel, body.threads
        self.functions.append(Function(*head, tuple(blocks), shared))

    def _targets(self, jump: PtxInstruction, scope: _Scope) -> list[int]:
        """The numbers of the instructions that a branch may jump to."""
        names = list(jump.operands[:1])
        if jump.is_a("brx.idx"):
            names = scope.tables[jump.operands[1] if len(jump.operands) > 1 else ""]
        return [scope.labels[name] for name in names]


def _declared(words: list[str]) -> Iterator[str]:
    """The registers of a `.reg` directive: `%r<3>` declares `%r0`, `%r1` and `%r2`."""
    for word, following, number in zip(words, [*words[1:], ""], [*words[2:], "", ""], strict=False):
        if word.startswith(".") or not _NAME.fullmatch(word):
            continue
        if following == "<":
            yield from (
                f"{word}{index}" for index in range(min(whole_constant(number) or 0, MAX_THREADS))
            )
        else:
            yield word


def _threads(words: list[str]) -> tuple[int, int, int]:
    for directive in (".reqntid", ".maxntid"):
        if directive not in words:
            continue
        dims: list[int] = []
        for word in words[words.index(directive) + 1 :]:
            value = whole_constant(word)
            if value is not None and len(dims) < 3:
                dims.append(min(max(value, 1), MAX_THREADS))
            elif word != ",":
                break
        x, y, z = (*dims, 1, 1, 1)[:3]
        if directive == ".reqntid":
            return x, y, z
        # .maxntid bounds only the product of the launch dimensions.
        most = min(x * y * z, MAX_THREADS)
        return most, most, most
    return MAX_THREADS, MAX_THREADS, MAX_THREADS


_NUMBER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|\d+)[Uu]?")


class Address(NamedTuple):
    """An address such as `[%r1+16]`: a register or symbol and a constant offset."""

    base: str
    offset: int


def whole_constant(text: str) -> int | None:
    """The value of an integer constant; None for any other text.

    >>> whole_constant("0x10"), whole_constant("-4"), whole_constant("%r1")
    (16, -4, None)
    """
    if not _NUMBER.fullmatch(text) or len(text) > 24:
        return None
    digits = text.rstrip("Uu")
    if digits.lstrip("-").startswith(("0x", "0X")):
        return int(digits, 16)
    # As in C, a leading zero means octal.
    return int(digits, 8 if re.fullmatch(r"-?0[0-7]+", digits) else 10)


def address(operand: str) -> Address | None:
    """The address in a bracketed operand, without tensor coordinates.

    >>> address("[%r1+-16]"), address("[%rd1,{%r2,%r3}]"), address("%r1")
    (Address(base='%r1', offset=-16), Address(base='%rd1', offset=0), None)
    """
    if not operand.startswith("["):
        return None
    inside = operand[1:].removesuffix("]").split(",", 1)[0]
    base, sign, displacement = inside.partition("+")
    if not sign:
        base, sign, displacement = inside.partition("-")
    if not sign or not base:
        return Address(inside, 0)
    offset = whole_constant(displacement)
    if offset is None:
        return None
    return Address(base, -offset if sign == "-" else offset)
