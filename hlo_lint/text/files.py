"""Writing files, whole or not at all; and where they go in a folder that mirrors others."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import threading
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from hlo_lint.text.errors import DumpError
from hlo_lint.text.source import encode


def write(path: Path, content: str | bytes, *, read: str | bytes | None = None) -> None:
    """Write a file: atomically if it is a regular one, else through to the device, FIFO or pipe.

    A regular file keeps its mode and, where that is allowed, its owner; a reader sees the old file
    or the new one. `read` is what the caller read at that path: if the file is another by now, it
    is left alone.

    Raises:
        DumpError: if it cannot be written, or is not what was read; it then stands as it was.
    """
    data = _bytes(content)
    try:
        if _is_stream(path):
            _write_through(path, data)
            return
        target = path.resolve()  # a link stays one
        if read is not None and target.read_bytes() != _bytes(read):
            raise DumpError(f"{path}: not written: it has changed since it was read; run again")
        _replace(target, data)
    except OSError as error:
        raise DumpError(f"{path}: cannot be written: {error.strerror or error}") from error


def _bytes(content: str | bytes) -> bytes:
    return encode(content) if isinstance(content, str) else content


_TEMPORARY = ".hlo-lint-"
"""The middle of the name of a temporary file; the number of its process stands after it."""

_DESCRIPTORS = ("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/self/fd/")


def _is_stream(path: Path) -> bool:
    """True if the path names a device, a FIFO, a pipe, or a descriptor of this process."""
    if os.path.abspath(path).startswith(_DESCRIPTORS):
        return True
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _write_through(path: Path, data: bytes) -> None:
    # The shell may have opened a descriptor on a regular file that others write, too: append.
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "wb") as stream:
        stream.write(data)


def _replace(target: Path, data: bytes) -> None:
    """Write a file of another name in the same folder, and rename it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_left_over(target.parent)
    name = f".{target.name[:50]}{_TEMPORARY}{os.getpid()}-{threading.get_ident()}"
    temporary = target.parent / name
    try:
        with open(temporary, "xb") as file:
            if target.exists():
                _keep_owner_and_mode(file.fileno(), target.stat())
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _keep_owner_and_mode(descriptor: int, old: os.stat_result) -> None:
    if not hasattr(os, "fchown"):  # Windows
        return
    with contextlib.suppress(OSError):  # only root may give a file away
        os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))


@lru_cache(maxsize=1024)  # once a folder: a run may write ten thousand files there
def _remove_left_over(folder: Path) -> None:
    """Remove the temporary files of processes that were killed before they could rename them."""
    for name in os.listdir(folder):
        process = name.rpartition(_TEMPORARY)[2].partition("-")[0]
        if name.startswith(".") and _TEMPORARY in name and _is_over(process):
            with contextlib.suppress(OSError):
                (folder / name).unlink()


def _is_over(process: str) -> bool:
    """True if no process of that number runs."""
    if os.name == "nt" or not process.isdecimal():  # signal 0 would end a process of Windows
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def mirrored(inputs: Sequence[Path], out: Path) -> dict[Path, Path]:
    """The destination of each input file in `out`; files that lie in `out` already are not inputs.

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
