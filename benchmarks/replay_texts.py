"""Modules that a commit's tests add or change, read from its diff.

A test in C++ holds HLO in raw strings, with placeholders that the test fills. A diff shows a hunk
around each change: a text that the hunk cuts off is not used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from pathlib import PurePosixPath
from typing import Any, Final

from hlo_lint.hlo.parser.module import parse_file

MAX_TEXTS: Final = 4
"""Texts of one commit that are replayed."""

_REDUCERS: Final = {
    "add": "add",
    "sum": "add",
    "max": "maximum",
    "min": "minimum",
    "mul": "multiply",
}
_FP8: Final = {
    "<F8E4M3>": "f8e4m3fn",
    "<F8E5M2>": "f8e5m2",
    "<F8E4M3_AMAX>": "448.",
    "<F8E5M2_AMAX>": "57344.",
}
"""Placeholders of XLA's tests of fp8, which their fixtures fill for each vendor."""
_file = re.compile(r"^diff --git a/(\S+) b/(\S+)$", re.M)
_hunk = re.compile(r"^@@ [^\n]* @@.*$", re.M)
_instruction = re.compile(
    r"^\s*(?:/\*.*?\*/\s*)?(?:ROOT )?%?[\w.\-]+ = .*\b[a-z][a-z\d\-]*\(", re.M
)
_raw_string = re.compile(r'R"(\w*)\((.*?)\)\1"', re.S)
_test = re.compile(r"^\s*(?:TEST|TEST_F|TEST_P|TYPED_TEST|XLA_TEST_F)\((.*?)\)", re.M | re.S)
_flag = re.compile(r"set_(xla_\w+)\(\s*(true|false|-?\d+|\"[^\"\n]*\"|(?:\w+::)+[A-Z]\w*)\s*\)")
_class = re.compile(r"\b[A-Z][a-z]\w+")
_partitions = re.compile(
    r"(?:num_partitions|num_devices|kNumPartitions|kNumDevices)\s*(?:=|\*/)\s*(\d+)"
    r"|PartitionComputation\(\s*\w+,\s*(\d+)"
)
_replicas = re.compile(r"(?:replica_count|num_replicas|kNumReplicas)\s*(?:=|\*/)\s*(\d+)()")
_computation = re.compile(r"\s*(?:ENTRY\b.*|%?[\w.\-]+(?: \(.*\) -> .*)?) \{\s*$")
_string = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_pair = re.compile(r'\{\s*"([^"]*)",\s*"([^"]*)"\s*\}')
_named = re.compile(r"\b(\w+)\s*(?:\[\])?\s*(?:=|\()\s*$")


@dataclass(frozen=True)
class ReplayText:
    """A module of a test, and how the test compiles it."""

    file: str
    """The path of the test in XLA's tree."""
    test: str
    """Its name, `Suite.Name`; empty where the hunk does not show it."""
    text: str
    flags: Mapping[str, str] = field(default_factory=dict)
    """Debug options that the test sets, without `--`."""
    is_new: bool = False
    """True if the change adds the text."""
    classes: tuple[str, ...] = ()
    """Classes that the test uses: the passes that it runs are among them."""


@dataclass(frozen=True)
class Change:
    """The files of a diff, each with the text of its hunks after the change."""

    files: Mapping[str, Sequence[str]]
    """For each path its hunks; each line begins with `+` where it was added, else with a blank."""

    @classmethod
    def of(cls, change: str) -> Change:
        """Read a message with its diff."""
        starts = [*_file.finditer(change)]
        ends = [match.start() for match in starts[1:]] + [len(change)]
        return cls(
            {
                match[2]: [*_after(change[match.end() : end])]
                for match, end in zip(starts, ends, strict=True)
            }
        )

    @property
    def sources(self) -> list[str]:
        """The paths of C++ sources that are not tests."""
        return [path for path in self.files if re.search(r"(?<!_test)\.(?:cc|h)$", path)]

    @property
    def tests(self) -> list[str]:
        """The paths of tests in C++ and of files of HLO."""
        return [path for path in self.files if re.search(r"_test\.cc$|\.hlo$", path)]


def _after(diff: str) -> Iterator[str]:
    """The hunks of one file as they are after the change."""
    marks = [*_hunk.finditer(diff)]
    ends = [mark.start() for mark in marks[1:]] + [len(diff)]
    for mark, end in zip(marks, ends, strict=True):
        lines = diff[mark.end() : end].splitlines()
        # The head of a hunk names the test in which it starts.
        head = mark[0].rpartition("@@ ")[2] if "@@ TEST" in mark[0] else ""
        lines.insert(0, f" {head}")
        yield "\n".join(line for line in lines if line[:1] in ("+", " ", ""))


def texts_of(change: Change) -> list[ReplayText]:
    """The modules that the tests of a change add, or that stand in a test that it changes."""
    texts: dict[str, ReplayText] = {}
    for path in change.tests:
        for hunk in change.files[path]:
            found = _of_file(path, hunk) if path.endswith(".hlo") else _of_test(path, hunk)
            for text in found:
                if not any(module.problems for module in parse_file(text.text).modules):
                    texts.setdefault(text.text, text)
    return sorted(texts.values(), key=lambda text: not text.is_new)[:MAX_TEXTS]


def _of_file(path: str, hunk: str) -> Iterator[ReplayText]:
    text = _without_marks(hunk)
    if _is_module(text) and text.count("{") == text.count("}"):
        lines = (line for line in text.splitlines() if not line.lstrip().startswith("//"))
        source = _with_header("\n".join(lines), "")
        is_new = all(line.startswith("+") for line in hunk.splitlines())
        yield ReplayText(path, PurePosixPath(path).name, source, {}, is_new)


def _is_module(text: str) -> bool:
    """True for a module; false for a list of what FileCheck expects."""
    return bool(_instruction.search(text)) and not re.search(
        r"^\s*(?://)?\s*CHECK[:\-]", text, re.M
    )


def _of_test(path: str, hunk: str) -> Iterator[ReplayText]:
    """The modules in the changed tests of a hunk."""
    hunk = _closed(hunk)
    starts = [
        match.start() for match in re.finditer(r"^[+ ](?=\s*(?:TYPED_|XLA_)?TEST)", hunk, re.M)
    ]
    for start, end in pairwise([0, *starts, len(hunk)]):
        part = hunk[start:end]
        if not re.search(r"^\+", part, re.M):
            continue
        code = _without_marks(part)
        name = _test.search(code)
        title = ".".join(re.split(r",\s*", name[1].strip())) if name else ""
        flags = {flag: value.strip('"').rpartition("::")[2] for flag, value in _flag.findall(code)}
        classes = tuple(dict.fromkeys(_class.findall(_raw_string.sub("", code))))
        for match in _raw_string.finditer(code):
            body = _complete(match[2])
            if not _is_module(body):
                continue
            for filled in _filled(body, match, code):
                text = _with_header(_with_reducers(filled), code)
                first = part.splitlines()[code.count("\n", 0, match.start(2))]
                yield ReplayText(path, title, text, flags, first.startswith("+"), classes)


def _closed(hunk: str) -> str:
    """A hunk with both ends of the raw strings in which it begins and ends."""
    opened, closed = hunk.find('R"('), hunk.find(')"')
    if closed >= 0 and (opened < 0 or closed < opened) and _instruction.search(hunk[1:closed]):
        first, _, rest = hunk.partition("\n")
        hunk = f'{first}\n R"(\n{rest}'
    if hunk.rfind('R"(') > hunk.rfind(')"'):
        hunk += '\n )"'
    return hunk


def _complete(body: str) -> str:
    """The complete computations of a text that the ends of a hunk cut off; else the text."""
    if body.count("{") == body.count("}") and (body.count("ENTRY") == 1 or "HloModule" in body):
        return body
    lines = body.splitlines()
    start = next((at for at, line in enumerate(lines) if _computation.match(line)), 0)
    if "HloModule" in body:
        start = 0
    ends = [at + 1 for at, line in enumerate(lines) if line.strip() == "}"]
    text = "\n".join(lines[start : ends[-1]]) if ends else ""
    return text if "ENTRY" in text and text.count("{") == text.count("}") else body


def _with_reducers(text: str) -> str:
    """The text with the reducers that the hunk cuts off, where their names say what they are."""
    for call in re.finditer(r"\bto_apply=%?([\w.\-]+)", text):
        name = call[1]
        known = next((word for word in _REDUCERS if word in name.lower()), None)
        dtypes = re.findall(r" = \(?([a-z]\w*)\[", text[: call.start()])
        if known and dtypes and not re.search(rf"^\s*%?{re.escape(name)} (?:\{{|\()", text, re.M):
            ends = f"lhs = {dtypes[-1]}[] parameter(0)\n  rhs = {dtypes[-1]}[] parameter(1)"
            root = f"ROOT result = {dtypes[-1]}[] {_REDUCERS[known]}(lhs, rhs)"
            text = text.replace("ENTRY ", f"{name} {{\n  {ends}\n  {root}\n}}\n\nENTRY ", 1)
    for placeholder, value in _FP8.items():
        text = text.replace(placeholder, value)
    return text


def _without_marks(hunk: str) -> str:
    return "\n".join(line[1:] for line in hunk.splitlines())


def _filled(body: str, match: re.Match[str], code: str) -> Iterator[str]:
    """The text with its placeholders filled as the test fills them; none where it does not say."""
    text = body
    name = _named.search(code[: match.start()])
    spelled = re.escape(name[1]) if name else r"R\"\w*\("
    if pairs := _pair.findall(code):
        for placeholder, value in pairs:
            text = text.replace(placeholder, value)
    if re.search(r"\$\d", text):
        calls = re.finditer(rf"absl::Substitute\(\s*{spelled}\s*,(.*?)\)\s*[;,)]", code, re.S)
        if code[: match.start()].rstrip().endswith("absl::Substitute("):
            calls = re.compile(r"\s*,(.*?)\)\s*[;,)]", re.S).finditer(code, match.end())
        for call in calls:
            fills = [
                _value(word, code)
                for word in re.split(r",(?=(?:[^\"]*\"[^\"]*\")*[^\"]*$)", call[1])
            ]
            for number, value in enumerate(fills):
                if value is not None:
                    text = text.replace(f"${number}", value)
            if not re.search(r"\$\d", text):
                yield text
            text = body
        return
    if re.search(r"%[sd]\b", text) and "StrFormat" in code:
        for call in re.finditer(rf"StrFormat\(\s*{spelled}\s*,(.*?)\)\s*[;,)]", code, re.S):
            values: list[str] = re.findall(r'"[^"]*"|-?\d+', call[1])
            if len(values) >= len(re.findall(r"%[sd]\b", text)):
                parts = re.split(r"%[sd]\b", text)
                given = [value.strip('"') for value in values]
                yield parts[0] + "".join(map("".join, zip(given, parts[1:], strict=False)))
        return
    yield text


def _value(word: str, code: str) -> str | None:
    """The text that an argument stands for: a literal, or a constant that the hunk shows."""
    word = word.strip()
    if literal := _string.fullmatch(word):
        return literal[1]
    constant = re.search(
        rf"\b{re.escape(word)}\b[^;]*?=\s*(?:R\"(\w*)\((.*?)\)\1\"|\"([^\"\n]*)\")", code, re.S
    )
    return (constant[2] or constant[3] or "") if constant else None


def _with_header(text: str, code: str) -> str:
    """The text with a header that says for how many devices the test compiles it."""
    text = text.strip() + "\n"
    if not re.search(r"^\s*HloModule\b", text, re.M):
        text = f"HloModule replayed\n\n{text}"
    given = {
        name: next(
            filter(None, (number for found in pattern.findall(code) for number in found)), ""
        )
        for name, pattern in (("num_partitions", _partitions), ("replica_count", _replicas))
    }
    if not any(given.values()):
        given = _devices_in(text)
    for name, number in given.items():
        if number not in ("", "1") and f"{name}=" not in text:
            text = re.sub(r"(HloModule\s+[\w.\-]+)", rf"\1, {name}={number}", text, count=1)
    return text


def _devices_in(text: str) -> dict[str, str]:
    """The numbers of partitions and replicas that shardings and replica groups speak of."""
    partitions = replicas = 1
    for tiles in re.findall(r"devices=\[[\d,]+\]<=\[([\d,]+)\]", text):
        partitions = max(partitions, prod(map(int, tiles.split(","))))
    for devices in re.findall(r"devices=\[[\d,]+\](\d[\d,]*)", text):
        partitions = max(partitions, *(1 + int(number) for number in devices.split(",") if number))
    for mesh in re.findall(r"\bmesh(?:\[|<\[)([^\]]*)\]", text):
        partitions = max(partitions, prod(map(int, re.findall(r"=(\d+)", mesh))))
    for device in re.findall(r"sharding=\{[^}]*maximal device=(\d+)", text):
        partitions = max(partitions, 1 + int(device))
    for line in text.splitlines():
        groups = re.search(r"replica_groups=\{(\{.*?\})\}", line)
        pairs = re.search(r"source_target_pairs=\{(\{.*?\})\}", line)
        iota = re.search(r"replica_groups=\[[\d,]+\]<=\[([\d,]+)\]", line)
        number = prod(map(int, iota[1].split(","))) if iota else 1
        for match in (groups, pairs):
            number = max(
                [number, *(1 + int(id) for id in re.findall(r"\d+", match[1]))]
                if match
                else [number]
            )
        if "channel_id=" in line:
            partitions = max(partitions, number)
        else:
            replicas = max(replicas, number)
    return {"num_partitions": str(partitions), "replica_count": str(replicas)}


def pass_words(change: Change) -> list[str]:
    """Words that name the pass: the stems of the test files, then of the sources."""
    paths: list[Any] = [*change.tests, *change.sources]
    stems = (PurePosixPath(path).name.partition(".")[0].removesuffix("_test") for path in paths)
    return [*dict.fromkeys(stems)]
