"""Real dumps that come with the program, packed, for `hlo-lint example`."""

from __future__ import annotations

import tarfile
from importlib.resources import as_file, files
from pathlib import Path

EXAMPLES = {
    "crash": "jax 0.10.0 for an H200: the compilation dies after the autotuner chose cuBLASLt",
    "slow": "the same program with jax 0.10.2: it compiles, with two kernels for reshapes",
    "healthy": "jax 0.11.2 for an H200: attention, nothing wrong",
    "two-runs": "one program, with priority-fusion (all) and without it (without)",
    "upgrade": "a loop of attention for an H200, by jax 0.10.0 and by 0.11.2",
    "profiles": "one program on the CPU, with fusion (all) and without, each with its profile",
}
"""A description of each dump, by name."""


def write_example_dump(name: str, folder: Path) -> None:
    """Unpack an example into a folder, which is created if it does not exist."""
    with as_file(files(__name__) / f"{name}.tar.xz") as packed, tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
