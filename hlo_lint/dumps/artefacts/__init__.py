"""Readers of the files beside the HLO of a dump: buffer assignments, logs of the autotuner.

Readers do not raise on a file's contents: unreadable parts are in the `problems` of the artefact.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

from hlo_lint.dumps.artefacts.records import Artefact
from hlo_lint.dumps.file_types import PROTO_TEXT, looks_like_autotuning
from hlo_lint.text.source import decode
from hlo_lint.text.stored import plain_name, read_stored

__all__ = ["ARTEFACTS", "Artefact", "read_artefact", "reader_for"]

ArtefactReader = Callable[[str, Path | None], Artefact]

ARTEFACTS: Final = {
    "-buffer-assignment-values.txt": "buffer_values.read_buffer_values",
    "-buffer-assignment.txt": "buffer_assignment.read_buffer_assignment",
    ".autotune_results.pbtxt": "autotune.read_autotuning",
}
"""The reader of each artefact, by the end of its file's name: a module here, and its function.

Readers are imported on demand, which keeps the check of a small file fast.
"""

_BEGINNING: Final = 1 << 14
"""Bytes that show whether a protobuf text is a log of the autotuner."""


def reader_for(name: str) -> ArtefactReader | None:
    """The reader for a plain file name, or None if the name does not show its kind."""
    return next((_reader(ARTEFACTS[end]) for end in ARTEFACTS if name.endswith(end)), None)


def _reader(function: str) -> ArtefactReader:
    module, _, name = function.partition(".")
    return cast("ArtefactReader", getattr(import_module(f"{__name__}.{module}"), name))


def read_artefact(path: Path) -> Any:
    """Read an artefact of a dump directory; None if the file is of another kind.

    The type of the result follows from the name of the file: `ARTEFACTS` has a reader for each.

    Raises:
        OSError: the file cannot be opened.
    """
    name = plain_name(path.name)
    reader = reader_for(name)
    if reader is not None:
        return reader(decode(read_stored(path)), path)
    # A log of the autotuner has a name that the user chose: its beginning decides.
    if name.endswith(PROTO_TEXT) and looks_like_autotuning(decode(read_stored(path, _BEGINNING))):
        return _reader(ARTEFACTS[".autotune_results.pbtxt"])(decode(read_stored(path)), path)
    return None
