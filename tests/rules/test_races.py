"""Memory in flight, on dumps that XLA made of our programs: right as they are, wrong when moved."""

from __future__ import annotations

from pathlib import Path

import pytest

import hlo_lint
from benchmarks.races import Case, Oracle, cases, chosen

RACES = Path(__file__).parents[2] / "fixtures" / "races"
FOLDERS = sorted(folder for folder in RACES.iterdir() if folder.is_dir())
CASES = [case for folder in FOLDERS for case in cases(folder)]
RULES = ["asynchronous-buffer-reused", "start-without-done", "custom-call-overlaps-operand"]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_what_xla_compiled_has_no_race(folder: Path) -> None:
    report = hlo_lint.lint(folder, RULES)
    assert report.findings == ()
    assert not [skipped for skipped in report.skipped if "needs" in skipped.reason]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_value_moved_into_flight_is_found_where_it_does_harm_and_only_there(case: Case) -> None:
    oracle = Oracle(case)
    mutants = chosen(case, 60, seed=2)
    verdicts = {oracle.verdict(mutant) for mutant in mutants}
    assert "" in verdicts
    assert len(verdicts) > 1
    for mutant in mutants:
        found = case.findings(mutant.rule, mutant.text(case.assignment))
        assert bool(found) == bool(oracle.verdict(mutant)), f"{mutant}: {found}"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_done_that_is_lost_is_missed_at_its_start(folder: Path) -> None:
    (path,) = folder.glob("*after_optimizations.txt")
    module = hlo_lint.parse(path.read_bytes())
    starts = [at for at in module.instructions() if at.opcode.endswith("-start")]
    assert starts
    for start in starts:
        (done,) = (user for user in start.users if user.opcode.endswith("-done"))
        begin, end = module.span(done)
        lost = done.text.replace(f" {done.opcode}(%{start.name})", " custom-call()")
        text = module.text[:begin] + lost + module.text[end:]
        found = hlo_lint.lint(text, ["start-without-done"]).findings
        assert [finding.instruction for finding in found] == [start.name]
