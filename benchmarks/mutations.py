"""The share of planted errors that is found: `make mutations ARCHIVES=FOLDER`.

Dumps are changed in one place each, from a seed, and checked. What a rule says of the mutant and
not of the dump counts as found; a mutant that XLA's parser refuses has to be found, too. The others
that are missed are looked at, and said why: by what was changed, and of which opcode.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import hlo_lint
from benchmarks.measure import hlo_texts, unpacked
from hlo_lint.rules.findings import Severity
from tests.hlo_mutations import KINDS, MARKS, Mutant, mutant
from tests.oracle.xla import Refusal, oracles

RESULTS = Path(__file__).parent / "MUTATIONS.md"
_MAX_SIZE = 200_000
"""Longer texts are left out, in bytes: they only take longer."""


class Judged(NamedTuple):
    """A mutant, where it comes from, and what was said of it."""

    mutant: Mutant
    path: Path
    rules: tuple[str, ...]
    """The rules that find it; none where it is missed."""


_SMALL = "HloModule m\n\nENTRY e {\n  ROOT p = f32[] parameter(0)\n}\n"


def _findings(path: Path, text: str) -> Counter[tuple[str, str]]:
    """The findings in a text in the place of a dump; the names of the others say what binds."""
    module = path.name.partition(".")[0]
    with tempfile.TemporaryDirectory() as folder:
        for other in path.parent.iterdir():
            if other.name.startswith(module + ".") and other.suffix == ".txt":
                (Path(folder) / other.name).write_text(_SMALL, "utf-8")
        (Path(folder) / path.name).write_text(text, "utf-8", "surrogateescape")
        report = hlo_lint.lint(folder, resolved=True)
    return Counter(
        (finding.rule, finding.message)
        for finding in report.findings
        if finding.severity is not Severity.INFO
    )


def judged(paths: Sequence[Path], count: int, seed: int) -> Iterator[Judged]:
    """So many mutants of dumps, each kind in its turn, and what rules say of them."""
    chance = random.Random(seed)  # no secret
    texts = {path: path.read_text("utf-8", "surrogateescape") for path in paths}
    fitting = {
        kind: [path for path in paths if MARKS.get(kind, "") in texts[path]] for kind in KINDS
    }
    made = attempts = 0
    while made < count and attempts < 50 * count:
        kind = KINDS[attempts % len(KINDS)]
        attempts += 1
        if not fitting[kind]:
            continue
        path = chance.choice(fitting[kind])
        text = texts[path]
        found = mutant(kind, text, chance)
        if found is None:
            continue
        made += 1
        said = _findings(path, found.text) - _findings(path, text)
        yield Judged(found, path, tuple(sorted({rule for rule, _ in said})))


def dumps(folders: Sequence[Path]) -> list[Path]:
    """The texts to be changed, each content once."""
    contents: dict[bytes, Path] = {}
    for folder in folders:
        for path in hlo_texts(folder):
            if path.stat().st_size <= _MAX_SIZE:
                contents.setdefault(path.read_bytes(), path)
    return sorted(contents.values())


def reason(each: Mutant) -> str:
    """The reason that a mutant has no finding; empty where nobody has looked."""
    for kinds, opcodes, why in REASONS:
        if each.kind in kinds.split(", ") and (not opcodes or each.opcode in opcodes.split()):
            return why
    return ""


REASONS: tuple[tuple[str, str, str], ...] = (
    (
        "a layout",
        "bitcast broadcast copy dot reduce reshape transpose iota constant convolution gather rng "
        "dynamic-reshape",
        "may give any layout: the result is another program, and most often a slower one",
    ),
    ("a layout", "", "before layout-assignment layouts bind nothing"),
    (
        "a called computation",
        "",
        "the other computation takes and gives the same: a program that computes something else",
    ),
    (
        "an element type",
        "dot convolution",
        "the printed type counts: XLA computes in it, even if it is narrower",
    ),
    (
        "an element type, a dimension, a range, an operand dropped, an operand of another type, "
        "an index of an aliasing",
        "custom-call",
        "what a custom call takes and gives is between it and its target",
    ),
    (
        "an element type, an operand of another type",
        "bitcast",
        "a bitcast takes as many bytes for anything",
    ),
    (
        "an operand of another type",
        "",
        "what is read instead has the same sizes in another type or layout, which the opcode takes",
    ),
)
"""Kinds, opcodes (all where none is named), and why a mutant that is missed is a program."""


def _read_by_xla(found: Sequence[Judged]) -> list[bool]:
    """True if XLA takes a mutant: what it refuses, it took before the change."""
    mutants = _refused([each.mutant.text for each in found])
    dumps = _refused([each.path.read_text("utf-8", "surrogateescape") for each in found])
    return [not refused or was for refused, was in zip(mutants, dumps, strict=True)]


def _refused(texts: Sequence[str]) -> list[bool]:
    oracle = oracles()[-1]
    answers = []
    for begin in range(0, len(texts), 50):
        answers += oracle.read(texts[begin : begin + 50])
    return [isinstance(answer, Refusal) for answer in answers]


def _page(found: Sequence[Judged], read: Sequence[bool], seed: int) -> str:
    lines = [
        "# Mutations of real dumps",
        "",
        f"{len(found)} texts, each changed in one place from the seed {seed}. XLA is the parser of "
        f"jaxlib {oracles()[-1].version}: most of what it reads it would not compile.",
        "",
        "| changed | mutants | found | XLA reads | found of these | XLA refuses | found of these |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind in (*KINDS, ""):
        rows = [
            (each, ok)
            for each, ok in zip(found, read, strict=True)
            if kind in ("", each.mutant.kind)
        ]
        taken = [each for each, ok in rows if ok]
        refused = [each for each, ok in rows if not ok]
        counts = [len(rows), sum(bool(each.rules) for each, _ in rows)]
        for part in (taken, refused):
            counts += [len(part), sum(bool(each.rules) for each in part)]
        lines.append(f"| {kind or '**all**'} | {' | '.join(map(str, counts))} |")
    lines += ["", "## What is missed", "", "| changed | of | mutants | why |", "|---|---|---|---|"]
    missed = Counter(
        (each.mutant.kind, each.mutant.opcode, reason(each.mutant))
        for each in found
        if not each.rules
    )
    for (kind, opcode, why), number in sorted(missed.items()):
        lines.append(f"| {kind} | {opcode} | {number} | {why or 'not explained'} |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--show", action="store_true", help="print what is missed")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for folder in given.folders:
            unpacked(folder, Path(scratch))
        folders = [*given.folders, Path(scratch)]
        text = _run(dumps(folders), given.count, given.seed, show=given.show)
    print(text)
    RESULTS.write_text(text, "utf-8")


def _run(paths: Sequence[Path], count: int, seed: int, *, show: bool) -> str:
    """Judges mutants, and prints those that nobody can explain."""
    found = list(judged(paths, count, seed))
    read = _read_by_xla(found)
    if show:
        for each, taken in zip(found, read, strict=True):
            if not each.rules and (not taken or not reason(each.mutant)):
                refused = "" if taken else " (XLA refuses it)"
                print(f"\n{each.mutant.kind}: {each.path}{refused}")
                print(f"- {each.mutant.before[:600]}\n+ {each.mutant.after[:600]}")
    return _page(found, read, seed)


if __name__ == "__main__":
    main()
