"""The files that stand beside the HLO of a dump, read: memory, schedule, timings, configuration.

No reader raises on a file's contents: what cannot be read is in the `troubles` of the artefact.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from hlo_lint.dumps.artefacts.autotune import read_autotuning
from hlo_lint.dumps.artefacts.buffer_assignment import read_buffer_assignment
from hlo_lint.dumps.artefacts.buffer_values import read_buffer_values
from hlo_lint.dumps.artefacts.config import read_config
from hlo_lint.dumps.artefacts.live_range import read_live_range
from hlo_lint.dumps.artefacts.memory_report import read_memory_report
from hlo_lint.dumps.artefacts.records import Artefact, Trouble
from hlo_lint.dumps.artefacts.thunks import read_thunk_metadata, read_thunk_sequence
from hlo_lint.dumps.file_types import looks_like_autotuning
from hlo_lint.text.source import decode

__all__ = ["ARTEFACTS", "Artefact", "Trouble", "read_artefact", "reader_for"]

Reader = Callable[[str, Path | None], Artefact]

ARTEFACTS: Final[dict[str, Reader]] = {
    "-buffer-assignment-values.txt": read_buffer_values,
    "-buffer-assignment.txt": read_buffer_assignment,
    "-live-range.txt": read_live_range,
    "-memory-usage-report.txt": read_memory_report,
    ".thunk_sequence.txt": read_thunk_sequence,
    ".thunk_sequence_after_thunk_passes.txt": read_thunk_sequence,
    ".thunk_metadata.txt": read_thunk_metadata,
    ".autotune_results.pbtxt": read_autotuning,
    ".config.pbtxt": read_config,
}
"""Readers by the ending of the file's name."""

_OWN_NAMES: Final = (".textproto", ".pbtxt", ".txtpb", ".prototxt")
"""Endings that users give to the autotuner's logs: the start of such a file shows what it is."""

_BEGINNING: Final = 1 << 14


def reader_for(name: str) -> Reader | None:
    """The reader for a file of that name, or None if the name does not show its kind."""
    return next((reader for ending, reader in ARTEFACTS.items() if name.endswith(ending)), None)


def read_artefact(path: Path) -> Artefact | None:
    """Read an artefact of a dump directory; None if the file is of another kind.

    Raises:
        OSError: the file cannot be opened.
    """
    reader = reader_for(path.name)
    if reader is not None:
        return reader(decode(path.read_bytes()), path)
    if path.name.endswith(_OWN_NAMES):
        with path.open("rb") as file:
            beginning = decode(file.read(_BEGINNING))
        if looks_like_autotuning(beginning):
            return read_autotuning(decode(path.read_bytes()), path)
    return None
