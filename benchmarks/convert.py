"""Every HLO text of the dumps at hand, converted for older parsers: `make corpus ARCHIVES=FOLDER`.

It needs jaxlib 0.10 and 0.11 (`HLO_LINT_ORACLES`), and takes any older one that a dialect is for.
What the older one reads of the new text is compared,
field by field, with what 0.11 reads of the old one. 0.11 refuses some of its own texts, because
control predecessors in them are defined nowhere: there it reads the old text without these, and
the new one has to wait for exactly the elements that `elided_predecessors` names.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from benchmarks.measure import unpacked
from hlo_lint.hlo.dialects import DIALECTS, convert
from hlo_lint.hlo.dialects.releases import drop_undefined_predecessors
from hlo_lint.hlo.dialects.text_editor import TextEditor
from hlo_lint.hlo.dialects.tuples import elided_predecessors
from hlo_lint.hlo.ir import HloFile
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.text.source import decode
from tests.conftest import hlo_files
from tests.oracle.fields import (
    COMPARISON_ORDER,
    IS_STABLE,
    OF_NEWER_RELEASES,
    Fields,
    differences,
    less_numbered,
    read_fields,
)
from tests.oracle.xla import Oracle, oracles

RESULTS = Path(__file__).parent / "CONVERT.md"
BATCH = 40
WAITS = "waits for"
is_expected = re.compile(r"stack frames:|source_|.* of a sharding:").match
"""Notes on metadata and shardings, which are not compared for releases before 0.10."""


def dialect_for(release: str) -> str | None:
    """The dialect that a release of jaxlib reads: that of the release, or of its minor version."""
    names = f"jax{release}", f"jax{release.rpartition('.')[0]}"
    return next((name for name in names if name in DIALECTS), None)


def judged(old: list[str], older: Oracle, newer: Oracle) -> Iterator[tuple[str, ...]]:
    """The outcome for each text: some words, to be counted."""
    dialect = dialect_for(older.version)
    assert dialect is not None
    is_latest = dialect.startswith("jax0.10")
    respelled = {IS_STABLE, *([COMPARISON_ORDER] if is_latest else OF_NEWER_RELEASES)}
    compared = (lambda fields: fields) if is_latest else less_numbered
    files = [parse_file(text) for text in old]
    new = [convert(file, [dialect]) for file in files]
    before = read_fields(older, old)
    theirs = read_fields(newer, old)
    definite = read_fields(newer, [without_undefined(file) for file in files])
    after = read_fields(older, [each.text for each in new])
    for file, conversion, was, full, rest, found in zip(
        files, new, before, theirs, definite, after, strict=True
    ):
        words = []
        if "error" in was:
            words.append("refused")
        if "error" in full:
            words.append("refused by 0.11")
        if "error" in found:
            yield (*words, f"still refused: {found['error'][:200]}")
            continue
        words.append("read when converted")
        if "error" in full:
            unmet = unmet_predecessors(file, found)
            rest, found = compared(rest), compared(found)
            different = [*unmet, *same_but_for_waits(rest, found, respelled)]
        else:
            different = list(differences(compared(full), compared(found), respelled))
        notes = [note for note in conversion.notes if not is_expected(note)]
        noted = sum(conversion.notes[note] for note in notes)
        if len(different) > noted:
            words.append(f"another graph: {different[0][:200]}")
        else:
            words.append("the same graph" if not noted else "the same graph but for what is noted")
        yield (*words, *(f"noted: {note}" for note in notes))


def without_undefined(file: HloFile) -> str:
    """The text less the control predecessors that it defines nowhere."""
    parts = []
    for module in file.modules:
        editor = TextEditor(module)
        drop_undefined_predecessors(module, editor)
        parts.append(editor.result())
    return "".join(parts)


def same_but_for_waits(without: Fields, whole: Fields, respelled: Collection[str]) -> list[str]:
    """The differences, less elements that are there because somebody waits for them."""
    for name, computation in whole["computations"].items():
        others = without["computations"].get(name, {"instructions": {}})["instructions"]
        awaited = {
            each
            for instruction in computation["instructions"].values()
            for each in instruction[WAITS]
            if "#" in each and each not in others
        }
        for each in awaited:
            del computation["instructions"][each]
        if name in whole["schedule"]:
            order = whole["schedule"][name]
            whole["schedule"][name] = [each for each in order if each not in awaited]
    return list(differences(without, whole, {*respelled, WAITS}))


def unmet_predecessors(file: HloFile, found: Fields) -> Iterator[str]:
    """Instructions that wait for other ones than the text says, undefined names found again."""
    for module in file.modules:
        for computation in module.computations:
            elided = elided_predecessors(computation)
            instructions = found["computations"][computation.name]["instructions"]
            for instruction in computation.instructions:
                value = instruction.attributes.get("control-predecessors")
                if value is None:
                    continue
                names = {name.strip(" %") for name in value.strip("{}").split(",")}
                expected = sorted(elided.get(name, name) for name in names)
                waits = instructions[instruction.name][WAITS]
                if waits != expected:
                    yield f"%{instruction.name} waits for {waits}, not {expected}"


def report(folder: Path, releases: Sequence[Oracle], newer: Oracle) -> list[str]:
    """The lines of the tables."""
    files = Counter(decode(path.read_bytes()) for path in hlo_files(folder))
    texts = list(files)
    lines = [
        "# Conversion of the dumps at hand for older parsers",
        "",
        f"{files.total()} HLO texts, {len(texts)} of them different, compared with jaxlib "
        f"{newer.version}; `make corpus`.",
    ]
    for older in releases:
        counted: Counter[tuple[str, ...]] = Counter()
        for start in range(0, len(texts), BATCH):
            batch = texts[start : start + BATCH]
            for text, words in zip(batch, judged(batch, older, newer), strict=True):
                counted[words] += files[text]
        title = f"## jaxlib {older.version}: `{dialect_for(older.version)}`"
        lines += ["", title, "", "| texts | what became of them |", "|---|---|"]
        lines += [f"| {number} | {', '.join(words)} |" for words, number in counted.most_common()]
    return [*lines, ""]


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit("usage: make corpus ARCHIVES=FOLDER")
    found = {oracle.version.rpartition(".")[0]: oracle for oracle in oracles()}
    if not {"0.10", "0.11"} <= found.keys():
        print("conversion: not measured without jaxlib 0.10 and 0.11 (HLO_LINT_ORACLES)")
        return
    numbers = {oracle.version: [*map(int, oracle.version.split("."))] for oracle in oracles()}
    older = [oracle for oracle in oracles() if dialect_for(oracle.version) not in (None, "jax0.11")]
    older.sort(key=lambda oracle: numbers[oracle.version], reverse=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = unpacked(Path(sys.argv[1]), Path(scratch))
        text = "\n".join(report(folder, older, found["0.11"]))
    print(text)
    RESULTS.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
