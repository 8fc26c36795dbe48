"""Make the catalogue of XLA's messages, and ask it for a sample.

    python -m benchmarks.messages xla_messages.tsv.xz --library xla_cuda_plugin.so --library …
    python -m benchmarks.messages xla_messages.tsv.xz --sample 300 --seed 20261128

The table has a line for each check and each error in XLA's sources: file, line, kind, condition,
text. The catalogue keeps the files with their passes, the kinds and hashes of the fixed words. The
passes are read out of the libraries of releases (`pass_files.py`).
"""

from __future__ import annotations

import argparse
import lzma
import random
import re
import sys
import textwrap
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from benchmarks.pass_files import PassesOfFile, passes_by_file
from hlo_lint.dumps.messages import (
    CATALOGUE,
    GAP,
    KINDS,
    below_root,
    component_of,
    find_sources,
    listed_passes,
    word_hashes,
)
from hlo_lint.dumps.pass_lists import passes_and_pipelines
from hlo_lint.report.messages import meaning_and_sources, origin

MOST_CALLERS = 6
"""The number of passes up to which those that call a file are named."""
_COMPARISONS = {"EQ": "==", "NE": "!=", "GE": ">=", "GT": ">", "LE": "<=", "LT": "<"}
_VALUE = re.compile(r"…|%[-+ #0-9.*]*(?:ll|z)?[a-zA-Z]|\$\d|\{\}")
_CHECK_PAIR = re.compile(r"(?:Q|D)?CHECK_(EQ|NE|GE|GT|LE|LT)")


class Row(NamedTuple):
    """A line of the table."""

    file: str
    line: str
    kind: str
    condition: str
    text: str

    @property
    def short_kind(self) -> str:
        """The letter of `KINDS`."""
        name = self.kind.removeprefix("absl::").removesuffix("Error").removesuffix("StrCat")
        if "RET_CHECK" in name or name == "Internal":
            return "I"
        if "CHECK" in name:
            return "C"
        if name.startswith("LOG"):
            return "L"
        if name in {"InvalidArgument", "FailedPrecondition", "OutOfRange", "NotFound"}:
            return "P"
        return {"Unimplemented": "U", "ResourceExhausted": "R", "emit": "M", "emitOp": "M"}.get(
            name, "K"
        )

    @property
    def logged(self) -> str:
        """The condition as XLA logs it, and the text, with `…` for each value."""
        condition = self.condition.partition(" << ")[0].strip()
        if condition.startswith("(") and condition.endswith(")"):
            condition = condition[1:-1]
        if (pair := _CHECK_PAIR.fullmatch(self.kind)) and condition.count(",") == 1:
            left, _, right = condition.partition(",")
            condition = f"{left} {_COMPARISONS[pair[1]]}{right}"
        return " … ".join(part for part in (condition, self.text) if part.strip())


def rows(path: Path) -> Iterator[Row]:
    """The lines of the table, sorted by file."""
    with lzma.open(path, "rt", encoding="utf-8") as stream:
        next(stream)
        yield from sorted(Row(*line.rstrip("\n").split("\t")) for line in stream)


def condensed(table: list[Row], libraries: Sequence[Path]) -> bytes:
    """The catalogue: a line for each file with the kinds of its messages, then their hashes."""
    passes = read_passes(libraries)
    lines = []
    hashes = array("H")
    for file, group in groupby(table, key=lambda row: row.file):
        kept: dict[tuple[int, ...], str] = {}
        for row in group:
            words: list[int] = []
            for part in _VALUE.split(row.logged):
                if segment := word_hashes(part):
                    words += [*segment, GAP]
            kept.setdefault(tuple(words[:-1]), row.short_kind)
        kept.pop((), None)
        lines.append(" ".join((file, "".join(kept.values()), *passes_in(file, passes.get(file)))))
        for message in kept:
            hashes.extend((*message, 0))
    # Files without a message in the table may still be named by a log.
    known = {row.file for row in table}
    lines += [
        " ".join((file, "", *passes_in(file, entry)))
        for file, entry in sorted(passes.items())
        if entry.own and file not in known and component_of(file) is not None
    ]
    if sys.byteorder == "big":
        hashes.byteswap()
    assert all(kind in KINDS for line in lines for kind in line.split(" ")[1])
    return lzma.compress("\n".join(lines).encode() + b"\n\n" + hashes.tobytes(), preset=9)


def read_passes(libraries: Sequence[Path]) -> dict[str, PassesOfFile]:
    """The passes of each file below the root of XLA, from the libraries of releases."""
    merged: dict[str, PassesOfFile] = {}
    for library in libraries:
        for file, (own, callers) in passes_by_file(library).items():
            entry = merged.setdefault(below_root(file), PassesOfFile(set(), set()))
            entry.own.update(own)
            entry.callers.update(callers)
    return merged


def passes_in(file: str, read: PassesOfFile | None) -> list[str]:
    """The passes of a file, then those that call it with a `+`, or their number.

    A file without any has the pass that is named as the file is.
    """
    own = {*listed_passes(file), *(read.own if read else ())}
    callers = sorted(read.callers - own) if read else []
    if not own and not callers:
        stem = file.rpartition("/")[2].partition(".")[0].replace("_", "-")
        named = (name for name in passes_and_pipelines() if name.replace("_", "-").lower() == stem)
        # A pipeline may have the name of its pass, with a capital.
        own.update(sorted(named, key=str.swapcase)[:1])
    shown = callers if len(callers) <= MOST_CALLERS else [str(len(callers))]
    return [*sorted(own), *(f"+{name}" for name in shown if not own)]


def quoted(row: Row, chance: random.Random) -> str:
    """A message as people quote it: values filled in, prefixed, wrapped, cut, or only its place."""
    values = ["7", "%fusion.3", "f32[8,128]{1,0}", "jit_train_step", "[1,8,4096]"]
    text = _VALUE.sub(lambda _: chance.choice(values), row.logged).strip()
    file = f"{row.file.rpartition('/')[2]}:{row.line}"
    stamp = f"1128 10:00:00.{chance.randrange(10**6):06} {chance.randrange(99999)} {file}]"
    if row.kind.startswith(("CHECK", "DCHECK", "QCHECK")):
        text = f"F{stamp} Check failed: {text}"
    elif row.short_kind == "L" or not row.text:
        text = f"{chance.choice('WE')}{stamp} {text}"
    else:
        if "RET_CHECK" in row.kind:
            text = f"RET_CHECK failure ({row.file}:{row.line}) {text}"
        status = {"P": "INVALID_ARGUMENT", "U": "UNIMPLEMENTED", "R": "RESOURCE_EXHAUSTED"}
        text = f"{status.get(row.short_kind, 'INTERNAL')}: {text}"
        if chance.random() < 0.2:
            text = f"<Status {text!r}>\\n\\t=== Source location trace: === "
        text = chance.choice(_BEFORE_ERRORS) + text
    if chance.random() < 0.1:
        return file
    if chance.random() < 0.2:
        text = textwrap.fill(text, 72, subsequent_indent=chance.choice(["", "    "]))
    if chance.random() < 0.2:
        text = text[: chance.choice([80, 200])] + chance.choice(["", "...", "…"])
    ranks = ["[rank3]: ", "[1,3]<stderr>: ", "3: ", "(train_loop pid=41, ip=10.0.0.7) "]
    before = chance.choice(ranks) if chance.random() < 0.2 else ""
    return "\n".join(before + line for line in text.split("\n"))


_BEFORE_ERRORS = (
    "jaxlib.xla_extension.XlaRuntimeError: ",
    "jax.errors.JaxRuntimeError: ",
    "",
    'Traceback (most recent call last):\n  File "train.py", line 7, in <module>\n'
    "jaxlib._jax.XlaRuntimeError: ",
    "RuntimeError: Bad StatusOr access: ",
)


def sample(table: list[Row], count: int, seed: int) -> None:
    """Print the answers to messages drawn at random, and how many name the right file."""
    chance = random.Random(seed)
    outcomes: Counter[str] = Counter()
    for row in chance.sample(table, count):
        asked = quoted(row, chance)
        meaning, sources = meaning_and_sources(asked)
        right = {source.component for source in find_sources(f"{row.file}:{row.line}")}
        named = {source.component for source in sources}
        if not sources:
            outcome = "by its meaning" if meaning else "unknown"
        elif named == right:
            outcome = "right"
        else:
            outcome = "among several" if right <= named else "WRONG"
        told = origin(sources)
        where = next((word for word in _PLACES if f"\n  {word}" in told), "no pass, no phase")
        outcomes.update([outcome, where])
        print(f"{outcome}: {row.file}:{row.line}\n{asked}", f"  means: {meaning}", told, sep="\n")
    print(dict(outcomes))


_PLACES = ("pass: several", "pass", "outside the passes")


def main() -> None:
    """Write the catalogue, or print a sample of answers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--library", type=Path, action="append", default=[])
    parser.add_argument("--sample", type=int)
    parser.add_argument("--seed", type=int, default=20261128)
    args = parser.parse_args()
    table = list(rows(args.table))
    if args.sample:
        sample(table, args.sample, args.seed)
        return
    CATALOGUE.write_bytes(condensed(table, args.library))
    print(f"{CATALOGUE}: {len(table)} messages, {CATALOGUE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
