"""Texts that nobody chose: random programs compiled here and now, and a sample of the archives.

Each comes back byte for byte, its rows spell its lines, and XLA's parser reads the same graph.
`make corpus` does the same with every text there is.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

import pytest

import hlo_lint
from benchmarks.agreement import REFUSED, Verdicts, read_source, round_trips
from hlo_lint.ir import Row
from hlo_lint.source import encode
from tests.conftest import FIXTURES, ROOT
from tests.oracle.compare import disagreements
from tests.oracle.xla import XlaModule, oracles

ARCHIVES = ROOT.parent / "shared" / "dumps"
TEXT: Final = """\
HloModule one, is_scheduled=true

%sum (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %add = f32[] add(%x, %y)
}

ENTRY %main (a: f32[2,3], b: f32[2,3]) -> f32[2] {
  %a = f32[2,3]{1,0} parameter(0)
  %b = f32[2,3]{1,0} parameter(1)
  %c = f32[2,3]{1,0} subtract(%a, %b)
  %zero = f32[] constant(0)
  ROOT %total = f32[2]{0} reduce(%c, %zero), dimensions={1}, to_apply=%sum
}

"""
SEED = 20
PROGRAMS = 3


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the jax of this interpreter prints of three programs."""
    pytest.importorskip("jax")
    folder = tmp_path_factory.mktemp("programs")
    script = FIXTURES / "programs" / "random_programs.py"
    arguments = ["--seed", f"{SEED}", "--numbers", f"0:{PROGRAMS}", "--platform", "cpu"]
    subprocess.run(
        [sys.executable, script, *arguments, "--out", folder],
        check=True,
        capture_output=True,
        env={**os.environ, "XLA_FLAGS": ""},
    )
    return folder


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not ARCHIVES.is_dir():
        pytest.skip("the archives of dumps are not here")
    folder = tmp_path_factory.mktemp("archives")
    for archive in sorted(ARCHIVES.glob("*.tar.xz")):
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    return folder


def refusals_and_differences(folder: Path, sample: int) -> tuple[int, int, list[str], list[str]]:
    """Numbers of texts and of answers, what jaxlibs refused, and what is not as it should be."""
    source, texts = read_source(folder.name, folder, sample)
    verdicts = Verdicts(None)
    for oracle in oracles():
        verdicts.add(oracle, texts)
    said = [line for lines in verdicts.known.values() for line in lines]
    refused = [line for line in said if line.startswith(REFUSED)]
    different = [line for line in said if not line.startswith(REFUSED)]
    return source.files, len(verdicts.known), refused, source.broken + different


def test_random_programs_spell_the_graph_that_xla_reads(programs: Path) -> None:
    files, answers, refused, wrong = refusals_and_differences(programs, 0)
    assert wrong == []
    assert files > 20 * PROGRAMS
    assert answers > len(refused)


def test_a_sample_of_the_archives_spells_the_graph_that_xla_reads(archives: Path) -> None:
    files, answers, refused, wrong = refusals_and_differences(archives, 60)
    assert wrong == []
    assert files == 60
    assert answers > 3 * len(refused)


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("HloModule one", "HloModule two"),
        (", is_scheduled=true", ""),
        ("ENTRY %main", "ENTRY %start"),
        ("%c = ", "%d = "),
        ("f32[2,3]{1,0} subtract", "f32[2,3]{0,1} subtract"),
        ("f32[2,3]{1,0} subtract", "bf16[2,3]{1,0} subtract"),
        ("subtract(", "divide("),
        ("subtract(%a, %b)", "subtract(%b, %a)"),
        ("subtract(%a, %b)", "subtract(%a, %a)"),
        ("%a = f32[2,3]{1,0} parameter(0)", "%a = f32[2,3]{1,0} parameter(2)"),
        ("ROOT %add", "%add"),
        ("reduce(%c, %zero)", "reduce(%c)"),
        ("to_apply=%sum", "to_apply=%main"),
    ],
)
def test_every_kind_of_difference_is_said(written: str, instead: str) -> None:
    assert written in TEXT
    changed = TEXT.replace(written, instead, 1)
    if instead == "%add":
        changed = changed.replace("%x = ", "ROOT %x = ")
    for oracle in oracles():
        (answer,) = oracle.read([TEXT])
        assert isinstance(answer, XlaModule)
        assert disagreements(TEXT, answer) == []
        assert disagreements(changed, answer) != []


def test_what_does_not_come_back_is_said() -> None:
    module = hlo_lint.parse(TEXT)
    assert list(round_trips(encode(TEXT), module)) == []
    assert list(round_trips(encode(TEXT + "\n"), module)) == ["its bytes do not come back"]
    computation = module.computations[1]
    root, name, kind, opcode, _, tail, references = computation.rows[2]
    row: Row = (root, name, kind, opcode, "%b, %a", tail, references)
    computation.rows = (*computation.rows[:2], row, *computation.rows[3:])
    (said,) = round_trips(encode(TEXT), module)
    assert said == "%c: its row spells another line: %c = f32[2,3]{1,0} subtract(%a, %b)"
