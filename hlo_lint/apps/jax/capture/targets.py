"""GPUs that can be compiled for though they are not there: what XLA has to know of each."""

from __future__ import annotations

import re
from pathlib import Path

from hlo_lint.text.errors import DumpError, UsageError

FOLDER = Path(__file__).parent / "targets"
NEWER = (
    "collective_memory_granularity",
    "max_blocks_per_multiprocessor",
    "mem_clock_ghz",
    "reserved_shared_memory_per_block",
)
"""Fields that XLA knows since jax 0.11; an older release refuses a text that has them."""
KNOWS_NEWER = (0, 11)

_newer = re.compile(rf"^[ \t]*(?:{'|'.join(NEWER)})[ \t]*:[^\n]*\n?", re.M)


def target_names() -> tuple[str, ...]:
    """The chips that come with the package."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.pbtxt")))


def is_path(target: str) -> bool:
    """True if a target is a file, such as a dump's `gpu_target_config.pbtxt`, and no name."""
    return "/" in target or "." in target


def target_config(target: str, release: str) -> str:
    """The description of a chip for a release of jax: a `GpuTargetConfigProto` in the text format.

    Args:
        target: a name of `target_names`, or the path of a text that XLA wrote into a dump.
        release: of jax, as in "0.10.0".

    Raises:
        UsageError: for a chip that is not known.
        DumpError: for a file that cannot be read.
    """
    if is_path(target):
        path = Path(target)
    else:
        path = FOLDER / f"{target.lower()}.pbtxt"
        if target.lower() not in target_names():
            names = ", ".join(target_names())
            raise UsageError(
                f"no target is named {target}; there are {names}, "
                "and any gpu_target_config.pbtxt of a dump, by its path"
            )
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DumpError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    return text if version_of(release) >= KNOWS_NEWER else _newer.sub("", text)


def version_of(release: str) -> tuple[int, ...]:
    """The numbers of a release: "0.11.2.dev5" is (0, 11, 2).

    >>> version_of("0.10.0") < version_of("0.11.2")
    True
    """
    return tuple(int(part) for part in re.findall(r"\d+", release)[:3])
