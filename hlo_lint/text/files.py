"""Files are written whole or not at all; and where they go in a folder that mirrors others."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from hlo_lint.text.errors import DumpError
from hlo_lint.text.source import encode


def write_atomically(path: Path, content: str | bytes) -> None:
    """Puts a text or bytes in place of a file, so that a reader sees the old one or the new one.

    Raises:
        DumpError: where it cannot be written; the old file then stands as it was.
    """
    import tempfile  # with its random numbers it is a tenth of all that is imported

    target = path.resolve()  # a link stays one
    temporary = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = target.stat().st_mode & 0o7777 if target.exists() else None
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:100]}.")
        with os.fdopen(descriptor, "wb") as file:
            file.write(encode(content) if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        if mode is None:
            mask = os.umask(0)
            os.umask(mask)
            mode = 0o666 & ~mask
        os.chmod(temporary, mode)
        os.replace(temporary, target)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise DumpError(f"{path}: cannot be written: {error.strerror or error}") from error


def mirrored(inputs: Sequence[Path], out: Path) -> dict[Path, Path]:
    """Where each file of the inputs goes in `out`; what lies in `out` already is not an input.

    Raises:
        DumpError: for an input that is not there.
    """
    inside = out.resolve()
    targets = {}
    for root in inputs:
        if not root.exists():
            raise DumpError(f"{root}: no such file or directory")
        nested = inside != root.resolve() and root.resolve() in inside.parents
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if path.is_dir() or (nested and inside in path.resolve().parents):
                continue
            targets[path] = out / (path.relative_to(root) if root.is_dir() else path.name)
    return targets


def copy_file(path: Path, target: Path) -> None:
    """Copies a file as it is; a link stays one, and what is there already is left alone.

    Raises:
        DumpError: where it cannot be read or written.
    """
    try:
        if target.exists() and target.samefile(path):
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target, follow_symlinks=False)
    except (OSError, shutil.Error) as error:
        raise DumpError(f"{target}: cannot be written: {error}") from error


def is_proto(name: str) -> bool:
    """True if a file of that name holds HLO as a protocol buffer."""
    return name.removesuffix(".gz").endswith((".pb", ".pbtxt"))
