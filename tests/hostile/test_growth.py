"""Hostile inputs of twice the size take at most little more than twice the calls."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from hlo_lint.apps.cli.main import cli
from tests.conftest import calls_of
from tests.hostile.inputs import INPUTS, STRICT, Hostile

MAX_GROWTH = 2.3
"""Calls of N more of the input, by those of N more before: 2 is linear, 4 is quadratic."""
TOLERANCE = 10_000
"""Calls that differ from run to run: caches, and an error message that is looked for once."""
BOUNDED = (
    "computations written in each other",  # 64 levels, then it is one unreadable statement
    "dimensions of 2^62",  # one error message of the grammar, from a rank of 100 on
    "PTX, copies",  # 3,000,000 steps
    "PTX, labels",
    "folders in each other",  # the system's longest path
    "names of N bytes in an archive",
)
"""Inputs whose cost has a fixed bound, and grows faster up to it."""
LEFT_OUT = (
    *BOUNDED,
    "zlib",
    "gzip",
    "links to",
    "10^N",
    "in each other, by instructions",
    "wide tuple",
    "of a file of N bytes",
    "a text of a message, nested",  # XLA reads and writes these
    "server:",
)
"""Inputs whose bytes do not double with their size, or that test another thing than growth."""


def _calls(hostile: Hostile, size: int, folder: Path) -> int:
    """Calls and returns of functions while the command line reads an input."""
    folder.mkdir()
    arguments = hostile.command(hostile.write(folder, size))
    outputs: list[str] = []
    if "check" in arguments:
        arguments.append("--no-cache")
    count = calls_of(lambda: outputs.append(CliRunner().invoke(cli, arguments).output))
    assert "internal" not in outputs[0]
    return count


@pytest.mark.slow
@pytest.mark.parametrize(
    "hostile",
    [hostile for hostile in INPUTS if not any(word in hostile.name for word in LEFT_OUT)],
    ids=lambda hostile: hostile.name,
)
def test_calls_double_with_the_size(hostile: Hostile, tmp_path: Path) -> None:
    sizes = (hostile.small, hostile.small, 2 * hostile.small, 4 * hostile.small)
    # The first run imports what the others use.
    _, once, twice, four_times = (
        _calls(hostile, size, tmp_path / str(number)) for number, size in enumerate(sizes)
    )
    # What nests too deep is refused, and may take fewer calls than before.
    assert four_times - twice < MAX_GROWTH * max(0, twice - once) + TOLERANCE


def test_the_inputs_are_those_of_check_unless_they_say_otherwise() -> None:
    assert sum(hostile.arguments == STRICT for hostile in INPUTS) > 80
