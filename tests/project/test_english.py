"""Names, docstrings and messages in plain technical English: CONTRIBUTING.md says why."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.project.wording import LIMITS, PACKAGES, counts

PACKAGE = [path for folder in PACKAGES for path in sorted(folder.rglob("*.py"))]
TESTS = (ROOT / "tests", ROOT / "hunt" / "tests", ROOT / "benchmarks")
PYTHON = [*PACKAGE, *(path for folder in TESTS for path in sorted(folder.rglob("*.py")))]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
ONE_PURPOSE = {"command", "main", "pytest_configure", "render"}
"""Names of which each command, each program, each plug-in, each output format has one."""
VAGUE = "each|found|known|met|said|told"


def _lines(paths: list[Path], wrong: str) -> Iterator[str]:
    find = re.compile(wrong, re.MULTILINE).finditer
    for path in paths:
        text = path.read_text("utf-8")
        for match in find(text):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{path.relative_to(ROOT)}:{line}: {match[0].strip()}"


@pytest.mark.parametrize(
    ("paths", "wrong"),
    [
        pytest.param(
            PYTHON,
            r'^ *"""(?:What|Whether|How|Who|Which|Where|Why)\b.*',
            id="a docstring begins with what the thing is or does",
        ),
        pytest.param(
            [*PACKAGE, *PAGES],
            r"^.*\b(?<!there )(?<!There )is no (?!longer\b|other\b|more than\b).*",
            id="`is not a` rather than `is no`",
        ),
        pytest.param(
            PACKAGE,
            rf"^.*\b(?:for|lambda) (?:\w+, )*(?:{VAGUE})(?:, \w+)*(?: in |:).*"
            rf"|^ *(?:{VAGUE})(?:: .*)? = .*|^.*[( ](?:{VAGUE}) := .*",
            id="a variable has the name of the thing that it holds",
        ),
    ],
)
def test_english(paths: list[Path], wrong: str) -> None:
    wrong_lines = [*_lines(paths, wrong)]
    assert not wrong_lines, "\n".join(wrong_lines)


def test_a_public_name_has_one_meaning() -> None:
    public = r"^ *class \w+|^def [^_\W]\w*|^[A-Z]\w*[a-z]\w*(?=(?:: \w+)? = )"
    lines = [line.rpartition(": ")[::2] for line in _lines(PACKAGE, public)]
    counts = Counter(name.split()[-1] for _, name in lines)
    several = {name for name in counts if counts[name] > 1} - ONE_PURPOSE
    assert not [f"{place}: {name}" for place, name in lines if name.split()[-1] in several]


def test_vague_words_are_few() -> None:
    totals = counts(PACKAGE)
    too_many = {name: totals[name] for name, limit in LIMITS.items() if totals[name] > limit}
    assert not too_many
