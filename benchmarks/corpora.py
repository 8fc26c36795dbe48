"""Agreement with texts that others wrote: `make corpora CORPORA=FOLDER`.

The folder holds `xla_tests.jsonl.xz` (texts of XLA's own tests, with the answer of XLA's parser and
verifier) and `reports/` (defects that people reported, with `cases.json`). The table names texts by
their ids and holds none of them.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import hlo_lint
from hlo_lint import Diagnostic, Severity, Stage
from hlo_lint.analysis.ranks import compare_ranks, rank_folders

RESULTS = Path(__file__).parent / "CORPORA.md"

_PAIR: Final = (
    "module_0001.m.0001.pipeline.after_pipeline-start.before_{0}.txt",
    "module_0001.m.0002.pipeline.after_{0}.before_pipeline-end.txt",
)
"""Names of the module before a pass and of the one after it, in a dump directory."""


_CHANGED_LATER: Final = ("CheckConditionalBranchIndexOperandShape", "AsyncOpTupleWrongType")
"""Tests that read a sound text and break the module in memory."""


@dataclass(frozen=True)
class Text:
    """A text of XLA's tests, with the answer of XLA."""

    id: str
    text: str
    expect: Mapping[str, Any]

    @property
    def is_refused(self) -> bool:
        """True if XLA refuses it."""
        return bool(self.expect.get("status") == "error")


@dataclass
class Measured:
    """The rows of the summary, and each disagreement by its kind."""

    rows: list[tuple[str, str]] = field(default_factory=list)
    disagreements: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    def disagree(self, kind: str, name: str, reason: str) -> None:
        self.disagreements.setdefault(kind, []).append((name, reason))


def texts_of(folder: Path) -> dict[str, list[Text]]:
    """The texts of XLA's tests, by corpus."""
    found: dict[str, list[Text]] = {}
    with lzma.open(folder / "xla_tests.jsonl.xz", "rt", encoding="utf-8") as lines:
        for line in lines:
            entry = json.loads(line)
            text = Text(entry["id"], entry["text"], entry["expect"])
            found.setdefault(entry["corpus"], []).append(text)
    return found


def mistake(text: str, rules: Sequence[str] | None = None) -> str:
    """The first mistake that is seen without jaxlib; empty if there is none."""
    findings = hlo_lint.lint(hlo_lint.parse(text), rules).findings
    counted = (found.message for found in findings if found.severity is not Severity.INFO)
    return next(counted, "")


def stage_of(expect: Mapping[str, Any]) -> Stage:
    """The options of the verifier that a test sets."""
    options = expect.get("verifier", {})
    extra = " ".join(options.get("options", ()))
    return Stage(
        packed="CpuGpuVerifierMetadata" in extra,
        ordered_broadcasts="VerifyBroadcastDimensionsOrder" in extra,
        reshape_is_bitcast="VerifyReshapeIsBitcast" in extra,
        thread_names="VerifyCallNestedComputationThreadName" in extra,
        names_unchanged="VerifyInstructionNameUnchanged" in extra,
        deadlocks=options.get("verify_no_collective_deadlocks"),
        unbounded_dynamic_opcodes=frozenset(
            opcode for opcode in ("parameter",) if f"k{opcode.title()}" in extra
        ),
        layouts=bool(options.get("layout_sensitive")),
        mixed_precision=bool(options.get("allow_mixed_precision", True)),
        host_memory="VerifyNoHostMemorySpace" not in extra,
        scan=not options.get("layout_sensitive"),
    )


def configured(text: str, config: Mapping[str, Any]) -> str:
    """The text with the counts of devices that a test gives its module, in the header."""
    header = re.search(r"HloModule[^\n]*", text)
    if header is None:
        return text
    missing = "".join(
        f", {name}={str(value).lower()}"
        for name, value in config.items()
        if f"{name}=" not in header[0]
    )
    name_end = re.compile(r"HloModule\s+[^\s,]+").match(text, header.start())
    at = name_end.end() if name_end else header.end()
    return text[:at] + missing + text[at:]


def share(part: int, whole: int) -> str:
    """A count, with its part of all."""
    return f"{part} of {whole}" + (f" ({100 * part / whole:.1f} %)" if whole else "")


def measure_form(accepted: list[Text], refused: list[Text], measured: Measured) -> None:
    """Findings without jaxlib in texts that XLA's parser reads, and in those that it refuses."""
    rules = ["malformed-text", "unknown-word", "unreadable-text"]
    wrong = [(each, mistake(each.text, rules)) for each in accepted]
    missed = [each for each in refused if not mistake(each.text)]
    found, mistaken = len(refused) - len(missed), sum(bool(reason) for _, reason in wrong)
    measured.rows += [
        ("XLA's parser reads it, and it is called malformed", share(mistaken, len(wrong))),
        ("XLA's parser refuses it, and something is found", share(found, len(refused))),
    ]
    for each, reason in wrong:
        if reason:
            measured.disagree("XLA's parser reads it, and it is called malformed", each.id, reason)


def measure_verifier(texts: list[Text], measured: Measured) -> None:
    """Errors under the options of XLA's verifier against its verdict."""
    counts: Counter[tuple[bool, bool]] = Counter()
    for each in texts:
        text = configured(each.text, each.expect.get("config", {}))
        errors = _errors(hlo_lint.lint(text, stage=stage_of(each.expect)).findings)
        counts[each.is_refused, bool(errors)] += 1
        if each.is_refused and not errors:
            is_changed = any(name in each.id for name in _CHANGED_LATER)
            reason = "the text is sound: the test breaks the module in memory" * is_changed
            measured.disagree("the verifier refuses, nothing is found", each.id, reason)
        elif errors and not each.is_refused:
            measured.disagree("the verifier accepts, an error is found", each.id, _shown(errors))
    found, missed, alarms = counts[True, True], counts[True, False], counts[False, True]
    measured.rows += [
        ("broken modules with an error, under their options", share(found, found + missed)),
        ("errors under options that are true", share(found, found + alarms)),
    ]


def measure_sound(texts: list[Text], name: str, measured: Measured, *, sound: bool) -> None:
    """Findings on texts that XLA verifies, or on files that it reads."""
    counts: Counter[Severity] = Counter()
    rules: Counter[str] = Counter()
    for each in texts:
        findings = hlo_lint.lint(each.text).findings
        counts.update({finding.severity for finding in findings})
        rules.update({f"{finding.severity.value} {finding.rule}" for finding in findings})
        if sound and (errors := _errors(findings)):
            measured.disagree("sound, an error is found", each.id, _shown(errors))
    for severity in (Severity.ERROR, Severity.WARNING, Severity.INFO):
        row = f"{name} with findings of severity {severity.value}"
        measured.rows.append((row, share(counts[severity], len(texts))))
    listed = ", ".join(f"{count} {rule}" for rule, count in rules.most_common())
    measured.rows.append((f"{name} by rule", listed or "none"))


def measure_reports(folder: Path, measured: Measured) -> None:
    """Each reported defect against what `check` finds in its module, or in its pair."""
    found = silent = defects = healthy = 0
    for case in json.loads((folder / "cases.json").read_text("utf-8")):
        findings = _of_report(folder, case)
        expected = case["expected"]
        if isinstance(expected, str):
            healthy += 1
            if errors := _errors(findings):
                measured.disagree("nothing is wrong, an error is found", case["id"], _shown(errors))
            else:
                silent += 1
            continue
        defects += 1
        at = [each for each in findings if _is_expected(each, expected)]
        ranks = not at and _differs_between_ranks(folder, case)
        if at or ranks:
            found += 1
        measured.disagree(
            "reported defects: rules at the place of the defect",
            f"{case['id']} ({expected['kind']})",
            "the command `ranks`" if ranks else _shown(at) or "not found",
        )
    measured.rows += [
        ("reported defects that are found", share(found, defects)),
        ("reports with nothing wrong that get no error", share(silent, healthy)),
    ]


def _of_report(folder: Path, case: Mapping[str, Any]) -> list[Diagnostic]:
    number, named = case["id"], case["stage_file_name"]
    directories = [each for each in folder.iterdir() if each.is_dir()]
    issue = re.search(r"#(\d+)", case["report"])
    dumped = [each for each in directories if issue and each.name.startswith(issue[1] + "_")]
    if dumped:
        return list(hlo_lint.lint(dumped[0]).findings)
    text = (folder / f"{number}.hlo").read_bytes()
    before = folder / f"{number}.before.hlo"
    with tempfile.TemporaryDirectory() as scratch:
        alone = Path(scratch, "alone", named or f"{number}.hlo")
        alone.parent.mkdir()
        alone.write_bytes(text)
        findings = list(hlo_lint.lint(alone, before=case["before_pass"]).findings)
        if before.exists():
            pair = Path(scratch, "pair")
            pair.mkdir()
            for name, content in zip(_PAIR, (before.read_bytes(), text), strict=True):
                (pair / name.format("some-pass")).write_bytes(content)
            findings += hlo_lint.lint(pair).findings
    return findings


def _is_expected(finding: Diagnostic, expected: Mapping[str, str]) -> bool:
    """True if a finding is of the expected rule, stands at the expected place, or names it."""
    if finding.severity is Severity.INFO:
        return False
    if finding.rule in expected["kind"].split("|"):
        return True
    place = expected["at"]
    spoken = (finding.message, finding.excerpt, *finding.notes)
    word = re.compile(rf"(?<![\w.\-]){re.escape(place)}(?![\w\-])")
    names = (finding.instruction, finding.computation, finding.module)
    return place in names or any(word.search(text) for text in spoken)


def _differs_between_ranks(folder: Path, case: Mapping[str, Any]) -> bool:
    """True if a case has one module on two ranks, and their collectives differ."""
    paths = [folder / f"{case['id']}{ending}" for ending in (".before.hlo", ".hlo")]
    if not all(path.exists() for path in paths) or "ranks" not in case["expected"]["kind"]:
        return False
    return any(module.divergences for module in compare_ranks(rank_folders(paths)))


def _errors(findings: Iterable[Diagnostic]) -> list[Diagnostic]:
    return [each for each in findings if each.severity is Severity.ERROR]


def _shown(findings: Iterable[Diagnostic]) -> str:
    return ", ".join(dict.fromkeys(f"{each.severity.value} {each.rule}" for each in findings))


def page(measured: Measured) -> Iterator[str]:
    """The lines of the table."""
    yield "# Texts that others wrote"
    yield ""
    yield "Written by `make corpora CORPORA=FOLDER`; `benchmarks/corpora.py` says how."
    yield ""
    yield "| measured | |"
    yield "|---|---|"
    for name, value in measured.rows:
        yield f"| {name} | {value} |"
    for kind, entries in measured.disagreements.items():
        yield ""
        yield f"## {kind[0].upper()}{kind[1:]}: {len(entries)}"
        yield ""
        yield "| text | |"
        yield "|---|---|"
        for name, reason in entries:
            cells = (cell.replace("|", "\\|") for cell in (name, reason))
            yield f"| {' | '.join(cells)} |"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--only", choices=["form", "verifier", "sound", "reports"])
    options.add_argument("--output", type=Path, help="instead of CORPORA.md; - for the terminal")
    given = options.parse_args()
    measured, texts = Measured(), texts_of(given.folder)
    if given.only in (None, "form"):
        measure_form(texts["parser_ok"], texts["parser_err"], measured)
    if given.only in (None, "verifier"):
        measure_verifier(texts["verifier"], measured)
    if given.only in (None, "sound"):
        verified = [each for each in texts["all"] if each.expect.get("verified")]
        sound = [each for each in verified if not each.is_refused]
        measure_sound(sound, "sound texts", measured, sound=True)
        measure_sound(texts["files"], "files", measured, sound=False)
    if given.only in (None, "reports"):
        measure_reports(given.folder / "reports", measured)
    text = "\n".join(page(measured)) + "\n"
    if given.only is not None or given.output == Path("-"):
        print(text, end="")
    else:
        (given.output or RESULTS).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
