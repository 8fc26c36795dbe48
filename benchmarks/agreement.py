"""Every HLO text at hand comes back byte for byte and spells XLA's graph: `AGREEMENT.md`.

    python -m benchmarks.agreement [--state FILE] [--minutes N] [--sample N] [--archives FOLDER]
                                   [FOLDER...]

A folder is one source; of archives (`.tar.xz` files, or folders) each folder is one. Every text
goes through `parse` and `emit`, and once more through `open_dump`, which shares what
repeats; both must give the same rows, the rows must spell the lines, and every shape, attribute and
constant must have a value. Then XLA's parser reads each distinct text in every release at hand
(this interpreter's, and those of HLO_LINT_ORACLES), in child processes, and what it read is held
beside what we read: `tests/oracle/compare.py`.

`fixtures/programs/random_programs.py` makes folders to ask about.

What XLA said is kept in the state file as long as neither our reader nor the comparison changes, so
that a run that was stopped goes on. After so many minutes XLA is asked no more, and the table says
how many texts it was not asked for.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import random
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import hlo_lint
from benchmarks.measure import hlo_texts, unpacked
from hlo_lint.hlo.attributes.cursor import AttributeSyntaxError
from hlo_lint.hlo.attributes.reading import read_attribute
from hlo_lint.hlo.attributes.splitting import split_attributes
from hlo_lint.hlo.ir import Module
from hlo_lint.hlo.parser.literals import LiteralError, read_literal
from hlo_lint.hlo.records import (
    InstructionRecord,
    attributes_of,
    name_of,
    opcode_of,
    operands_of,
    root_mark_of,
    type_of,
)
from hlo_lint.hlo.shape import ShapeSyntaxError, parse_shape
from hlo_lint.text.source import decode, encode
from tests.oracle.compare import disagreements
from tests.oracle.xla import Oracle, Refusal, oracles

HERE = Path(__file__).parent
RESULTS = HERE / "AGREEMENT.md"
JUDGES = ("hlo_lint/hlo", "tests/oracle", "grammars")
"""The facts on which a kept verdict rests."""
BATCH = 10_000_000
"""Characters that one child reads."""
REFUSED = "refused: "
_known_shapes: set[str] = set()
_known_literals: set[tuple[str, str]] = set()
_known_tails: set[str] = set()

EXPLAINED = {
    "cannot parse as an instruction name": "`%x#1`, an element of a tuple, is new in jax 0.11",
    "expects attribute name": "a sharding over a named mesh, `{mesh['x'=2], …}`, is new in 0.11",
    'unexpected attribute "order"': "the order of a comparison is new in 0.11",
    'unexpected attribute "is_stable"': "that a topk is stable is new in 0.11",
    'unexpected attribute "output_to_operand_aliasing"': "XLA prints it of an asynchronous "
    "collective and reads it of none",
    'unexpected attribute "calls"': "the canonical form prints the computation around a collective "
    "that starts, and XLA does not read it",
    "attribute calls already exists": "the canonical form of `fusion-start` says `calls=` twice",
    "died": "the canonical form of `fusion-start` says `calls=` twice, which ends jaxlib 0.11.2",
    "instruction '…' is not defined": "a control predecessor that the printer left out",
}
"""The reason that XLA refuses its own text, by the beginning of its complaint."""

Verdict = list[str]
"""Differences; or one line that begins with REFUSED; nothing where the graphs are equal."""


@dataclass
class Source:
    """A folder of texts, and what came of them."""

    name: str
    texts: dict[str, int] = field(default_factory=dict)
    """Digests of the distinct texts, with the number of files that hold each."""
    bytes: int = 0
    broken: list[str] = field(default_factory=list)
    """Files that did not come back, and why."""
    outcomes: list[str] = field(default_factory=list)
    """Of a folder of random programs, how compiling each of them ended."""

    @property
    def files(self) -> int:
        return sum(self.texts.values())


def digest(text: str) -> str:
    return hashlib.sha256(encode(text)).hexdigest()


# ---- our side


def round_trips(data: bytes, module: Module) -> Iterator[str]:
    """The defect of a file as `parse` gives it back."""
    if encode(hlo_lint.emit(module)) != data:
        yield "its bytes do not come back"
    for part in module.file.modules:
        for problem in part.problems:
            yield f"{problem.start.line}:{problem.start.column}: {problem.message}"
        for computation in part.computations:
            for row, span in zip(computation.rows, computation.spans, strict=True):
                line = computation.text[span.start : span.end]
                if line not in spellings(row):
                    yield f"%{name_of(row)}: its row spells another line: {line[:200]}"
        yield from unreadable(part)


def spellings(row: InstructionRecord) -> tuple[str, str]:
    """The two lines that a row may stand for: with `%`, and without."""
    root = "ROOT " if root_mark_of(row) else ""
    rest = (
        f"{name_of(row)} = {type_of(row)} {opcode_of(row)}({operands_of(row)}){attributes_of(row)}"
    )
    return f"{root}%{rest}", f"{root}{rest}"


def unreadable(module: Module) -> Iterator[str]:
    """Shapes, attributes and constants that have no value."""
    asked = list(module.attributes.items())
    for computation in module.computations:
        for row in computation.rows:
            if type_of(row) not in _known_shapes:
                _known_shapes.add(type_of(row))
                if type_of(row) and (said := complaint(parse_shape, type_of(row))):
                    yield said
            if (
                opcode_of(row) == "constant"
                and (type_of(row), operands_of(row)) not in _known_literals
            ):
                _known_literals.add((type_of(row), operands_of(row)))
                if said := complaint(read_literal, parse_shape(type_of(row)), operands_of(row)):
                    yield said
            if attributes_of(row) and attributes_of(row) not in _known_tails:
                _known_tails.add(attributes_of(row))
                spans = split_attributes(attributes_of(row)).items()
                asked += [(name, attributes_of(row)[start:end]) for name, (start, end) in spans]
    for name, text in asked:
        if said := complaint(read_attribute, name, text):
            yield said


def complaint(read: Callable[..., object], *given: object) -> str:
    """The message of a reader about a text that it cannot read, or nothing."""
    try:
        read(*given)
    except (AttributeSyntaxError, LiteralError, ShapeSyntaxError) as error:
        return f"{error} in {str(given[-1])[:200]}"
    return ""


def same(alone: Module, shared: Module) -> bool:
    """True if a file reads the same by itself and among the files of its folder."""
    return list(map(contents, alone.file.modules)) == list(map(contents, shared.file.modules))


def contents(module: Module) -> tuple[object, ...]:
    """All that was read of a module, to compare."""
    computations = [(each.text, each.name, each.tail, each.rows) for each in module.computations]
    return module.text, module.name, module.header, module.tables, computations


def read_source(name: str, folder: Path, sample: int) -> tuple[Source, dict[str, str]]:
    """Our side of a folder, and its distinct texts by their digests."""
    source = Source(name)
    outcomes = folder / "programs.jsonl"
    if outcomes.is_file():
        lines = outcomes.read_text("utf-8").splitlines()
        source.outcomes = [json.loads(line)["outcome"] for line in lines]
    texts: dict[str, str] = {}
    paths = hlo_texts(folder)
    if sample and len(paths) > sample:
        paths = sorted(random.Random(0).sample(paths, sample))
    for _, group in groupby(paths, lambda path: path.parent):
        dump = hlo_lint.open_dump(list(group))
        for each in (dump for compilation in dump for dump in compilation.dumps):
            data = each.path.read_bytes()
            text = decode(data)
            source.bytes += len(data)
            key = digest(text)
            wrong: list[str] = []
            if key not in texts:
                texts[key] = text
                module = hlo_lint.parse(data)
                wrong += round_trips(data, module)
                if not same(module, each.module):
                    wrong.append("it reads otherwise among the files of its folder")
            if encode(each.module.file.text) != data:
                wrong.append("its bytes do not come back from `open_dump`")
            source.texts[key] = source.texts.get(key, 0) + 1
            if wrong:
                source.broken.append(f"{each.path.relative_to(folder)}: {wrong[0]}")
    assert source.files == len(paths), "open_dump left out a text"
    return source, texts


# ---- XLA's side


class Verdicts:
    """The verdict on each text with each release, kept in a file."""

    def __init__(self, path: Path | None, end: float = math.inf) -> None:
        self.path = path
        self.end = end
        """When to stop asking, as `time.monotonic` has it."""
        self.code = code_digest()
        self.known: dict[tuple[str, str], Verdict] = {}
        if path is not None and path.is_file():
            for line in path.read_text("utf-8").splitlines():
                code, key, release, said = json.loads(line)
                if code == self.code:
                    self.known[key, release] = said

    def add(self, oracle: Oracle, texts: dict[str, str]) -> None:
        """Asks for the texts that have no verdict yet."""
        unknown = [key for key in texts if (key, oracle.version) not in self.known]
        for batch in batches(texts, unknown):
            if time.monotonic() > self.end:
                return
            answers = oracle.read([texts[key] for key in batch])
            lines = []
            for key, answer in zip(batch, answers, strict=True):
                if isinstance(answer, Refusal):
                    said = [REFUSED + answer.message]
                else:
                    said = disagreements(texts[key], answer)
                self.known[key, oracle.version] = said
                lines.append(json.dumps([self.code, key, oracle.version, said]))
            if self.path is not None:
                with self.path.open("a", encoding="utf-8") as file:
                    file.writelines(f"{line}\n" for line in lines)


def batches(texts: dict[str, str], asked: Iterable[str]) -> Iterator[list[str]]:
    """Digests in portions of about BATCH characters."""
    batch: list[str] = []
    size = 0
    for key in asked:
        if batch and size + len(texts[key]) > BATCH:
            yield batch
            batch, size = [], 0
        batch.append(key)
        size += len(texts[key])
    if batch:
        yield batch


def code_digest() -> str:
    """A digest that tells one state of reader and comparison from another."""
    found = hashlib.sha256()
    for judge in JUDGES:
        path = HERE.parent / judge
        files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        for file in files:
            if "__pycache__" not in file.parts:
                found.update(file.read_bytes())
    return found.hexdigest()[:16]


# ---- the report


_names = re.compile(r"%?[A-Za-z_]\w*(?:[.\-#]\w+)*\.\d[\w.\-#]*")


def reason(message: str) -> str:
    """A complaint without its place, so that equal ones can be counted.

    >>> reason("12:7: instruction does not exist: get-tuple-element.39")
    'instruction does not exist: …'
    """
    plain = re.sub(r"^\d+:\d+: ", "", message)
    return re.sub(r"\d+", "N", _names.sub("…", plain))[:160]


def report(sources: list[Source], verdicts: Verdicts, releases: list[str]) -> str:
    lines = [
        "# Agreement with XLA's parser",
        "",
        "`make corpus`: every text is parsed and emitted, by itself and through `open_dump`; what "
        "XLA's parser reads of it is held beside what we read. “Read” counts files, “equal” those "
        "of them whose graphs are equal: names, opcodes, operands, users, roots, called "
        "computations, entry, shapes with layouts, and attributes by meaning.",
        "",
        "| source | texts | distinct | MB | come back | "
        + " | ".join(f"{release} reads | equal" for release in releases)
        + " |",
        "|---|" + "---:|" * (4 + 2 * len(releases)),
    ]
    refusals: dict[str, Counter[str]] = {release: Counter() for release in releases}
    places: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    differences: defaultdict[str, list[str]] = defaultdict(list)
    totals: Counter[str] = Counter()
    unasked: Counter[str] = Counter()
    for source in sources:
        cells = [source.name, *map(str, (source.files, len(source.texts)))]
        cells += [f"{source.bytes / 1e6:.1f}", str(source.files - len(source.broken))]
        totals.update(texts=source.files, distinct=len(source.texts), bytes=source.bytes)
        totals.update(back=source.files - len(source.broken))
        for release in releases:
            read = equal = 0
            for key, files in source.texts.items():
                said = verdicts.known.get((key, release))
                if said is None:
                    unasked[release] += files
                    continue
                if said and said[0].startswith(REFUSED):
                    why = reason(said[0].removeprefix(REFUSED))
                    refusals[release][why] += files
                    if source.name not in places[release, why]:
                        places[release, why].append(source.name)
                    continue
                read += files
                equal += files * (not said)
                if said:
                    differences[release].append(f"{source.name} {key[:12]}: {said[0]}")
            cells += [str(read), str(equal)]
            totals.update({f"{release} read": read, f"{release} equal": equal})
        lines.append(f"| {' | '.join(cells)} |")
    sums = [str(totals["texts"]), str(totals["distinct"]), f"{totals['bytes'] / 1e6:.1f}"]
    sums.append(str(totals["back"]))
    for release in releases:
        sums += [str(totals[f"{release} read"]), str(totals[f"{release} equal"])]
    lines += [f"| **all** | {' | '.join(sums)} |", ""]
    for release, number in sorted(unasked.items()):
        lines += [f"jaxlib {release} has not been asked for {number} files.", ""]
    for release in releases:
        lines += [f"## What jaxlib {release} refuses", ""]
        lines += ["| files | its complaint | in | because |", "|---:|---|---|---|"]
        for why, files in refusals[release].most_common():
            names = places[release, why]
            where = ", ".join(names[-4:]) if len(names) <= 4 else f"{len(names)} sources"
            because = [said for start, said in EXPLAINED.items() if why.startswith(start)]
            lines.append(f"| {files} | `{why[:80]}` | {where} | {''.join(because)} |")
        lines += [""]
    lines += [
        "## Random programs",
        "",
        "`fixtures/programs/random_programs.py --seed 1 --numbers 0:200`, which keeps an even "
        "choice of the passes of a program whose dumps are larger than 2 MB. How compiling them "
        "ended:",
        "",
    ]
    for source in sources:
        if source.outcomes:
            ended = Counter(map(reason, source.outcomes))
            lines.append(f"- {source.name}: {len(source.outcomes)} programs")
            lines += [f"  - {number} `{outcome}`" for outcome, number in ended.most_common()]
    lines += ["", "## Differences", ""]
    found = [f"- jaxlib {release}: {said}" for release in releases for said in differences[release]]
    found += [f"- {source.name}: {said}" for source in sources for said in source.broken]
    return "\n".join([*lines, *(found or ["None."]), ""])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--archives", type=Path, metavar="FOLDER")
    parser.add_argument("--state", type=Path, help="what XLA said, kept from run to run")
    parser.add_argument("--minutes", type=float, default=math.inf, help="how long XLA is asked")
    parser.add_argument("--sample", type=int, default=0, help="so many texts of each source")
    given = parser.parse_args()
    verdicts = Verdicts(given.state, time.monotonic() + 60 * given.minutes)
    judges = sorted(oracles(), key=lambda oracle: oracle.version)
    sources = []
    with tempfile.TemporaryDirectory() as scratch:
        archived: list[Path] = []
        if given.archives:
            folder = unpacked(given.archives, Path(scratch))
            archived = sorted(path for path in folder.iterdir() if path.is_dir())
        for folder in (*archived, *given.folders):
            source, texts = read_source(folder.name, folder, given.sample)
            if not texts:
                continue
            for oracle in judges:
                verdicts.add(oracle, texts)
            sources.append(source)
            print(f"{folder.name}: {source.files} texts", file=sys.stderr, flush=True)
    text = report(sources, verdicts, [oracle.version for oracle in judges])
    print(text)
    if not given.sample:
        RESULTS.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
