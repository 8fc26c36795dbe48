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
from typing import Final, NamedTuple

import pytest

import hlo_lint
from benchmarks import big_dump
from benchmarks.agreement import REFUSED, Verdicts, read_source, round_trips
from hlo_lint.hlo.records import InstructionRecord
from hlo_lint.text.source import encode
from tests.conftest import FIXTURES, ROOT
from tests.oracle.compare import disagreements
from tests.oracle.xla import XlaModule, oracles

pytestmark = pytest.mark.slow

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
FUSION_START: Final = """\
HloModule asynchronous

%fused (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  ROOT %negate = f32[8]{0} negate(%x)
}

%other (y: f32[8]) -> f32[8] {
  ROOT %y = f32[8]{0} parameter(0)
}

ENTRY %main (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  %start = ((f32[8]{0}), f32[8]{0}, u32[]) fusion-start(%a), kind=kLoop, calls=%fused
  ROOT %done = f32[8]{0} fusion-done(%start)
}

"""
WITH_FRAMES: Final = """\
HloModule framed

FileNames
1 "a.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=4 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}


ENTRY %main (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  ROOT %b = f32[8]{0} negate(%a), metadata={op_name="f/neg" stack_frame_id=1}
}

"""
SEED = 20
PROGRAMS = 3


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The texts that the jax of this interpreter prints of three programs."""
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


class Judged(NamedTuple):
    """The result for a folder."""

    files: int
    wrong: list[str]
    """Texts that do not come back, and texts that XLA reads otherwise."""
    answers: dict[str, int]
    """The number of distinct texts that each release of jaxlib read."""
    refused: dict[str, list[str]]
    """The messages of each release about the texts that it did not read."""


def judged(folder: Path, sample: int) -> Judged:
    source, texts = read_source(folder.name, folder, sample)
    verdicts = Verdicts(None)
    found = Judged(source.files, source.broken, {}, {})
    for oracle in oracles():
        verdicts.add(oracle, texts)
        said = [line for key in texts for line in verdicts.known[key, oracle.version]]
        found.refused[oracle.version] = [line for line in said if line.startswith(REFUSED)]
        found.answers[oracle.version] = len(texts) - len(found.refused[oracle.version])
        found.wrong.extend(line for line in said if not line.startswith(REFUSED))
    return found


def test_random_programs_spell_the_graph_that_xla_reads(programs: Path) -> None:
    found = judged(programs, 0)
    assert found.wrong == []
    assert found.files > 20 * PROGRAMS
    own = oracles()[0].version
    assert found.answers[own] > 10 * PROGRAMS


def test_a_sample_of_the_archives_spells_the_graph_that_xla_reads(archives: Path) -> None:
    found = judged(archives, 60)
    assert found.wrong == []
    assert found.files == 60
    assert all(number > 20 for number in found.answers.values())


def test_the_made_up_dump_is_one_that_xla_reads(tmp_path: Path) -> None:
    shares = big_dump.write(tmp_path, gigabytes=0.01, dumps=55, seed=3)
    assert 0.4 < shares.new_files / shares.files < 0.7
    found = judged(tmp_path, 12)
    assert (found.files, found.wrong) == (12, [])
    for release, refused in found.refused.items():
        if release.startswith("0.10."):  # `%x#1` is new in jax 0.11
            assert all("nested instruction" in said for said in refused)
        else:
            assert refused == []


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("HloModule one", "HloModule two"), (", is_scheduled=true", ""),
        ("ENTRY %main", "ENTRY %start"), ("%c = ", "%d = "),
        ("f32[2,3]{1,0} subtract", "f32[2,3]{0,1} subtract"),
        ("f32[2,3]{1,0} subtract", "bf16[2,3]{1,0} subtract"), ("subtract(", "divide("),
        ("subtract(%a, %b)", "subtract(%b, %a)"), ("subtract(%a, %b)", "subtract(%a, %a)"),
        ("%a = f32[2,3]{1,0} parameter(0)", "%a = f32[2,3]{1,0} parameter(2)"),
        ("ROOT %add", "%add"), ("reduce(%c, %zero)", "reduce(%c)"),
        ("to_apply=%sum", "to_apply=%main"),
    ],
)  # fmt: skip
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


def test_what_is_repeated_is_compared_all_the_same() -> None:
    for oracle in oracles():
        first, second = oracle.read([WITH_FRAMES, WITH_FRAMES])
        assert isinstance(first, XlaModule)
        assert isinstance(second, XlaModule)
        assert first.computations[0] is second.computations[0]
        assert disagreements(WITH_FRAMES, first) == []
        assert disagreements(WITH_FRAMES, second) == []
        assert disagreements(WITH_FRAMES.replace("negate", "tanh"), second) != []
        (said,) = disagreements(WITH_FRAMES.replace("line=3 ", "line=5 "), second)
        assert "stack of frame 1" in said


def test_what_an_asynchronous_fusion_calls_is_compared() -> None:
    for oracle in oracles():
        (answer,) = oracle.read([FUSION_START])
        assert isinstance(answer, XlaModule)
        assert disagreements(FUSION_START, answer) == []
        (said,) = disagreements(FUSION_START.replace("calls=%fused", "calls=%other"), answer)
        assert said == "main: %start: calls: ['other'] here, ['fused'] in XLA"


def test_what_does_not_come_back_is_said() -> None:
    module = hlo_lint.parse(TEXT)
    assert list(round_trips(encode(TEXT), module)) == []
    assert list(round_trips(encode(TEXT + "\n"), module)) == ["its bytes do not come back"]
    computation = module.computations[1]
    root, name, kind, opcode, _, tail, references = computation.rows[2]
    row: InstructionRecord = (root, name, kind, opcode, "%b, %a", tail, references)
    computation.rows = (*computation.rows[:2], row, *computation.rows[3:])
    (said,) = round_trips(encode(TEXT), module)
    assert said == "%c: its row spells another line: %c = f32[2,3]{1,0} subtract(%a, %b)"
