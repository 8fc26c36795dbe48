"""Files as results: each whole or not there, in a folder that mirrors the inputs."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from hlo_lint.text.errors import DumpError, os_errors_as
from hlo_lint.text.source import encode
from hlo_lint.text.stored import plain_name


def write(path: Path, content: str | bytes, *, read: str | bytes | None = None) -> None:
    """Write a file: atomically for a regular file, else through to the device, FIFO or pipe.

    A regular file keeps its mode, its extended attributes and, if allowed, its owner; a reader sees
    either the old or the new file. `read` is the content that the caller read at that path: if the
    file has changed since, or has other names that would not change, it is not written.

    Raises:
        DumpError: if it cannot be written, or differs from `read`; it is then unchanged.
    """
    data = _bytes(content)
    # Path.resolve raises a RuntimeError for a loop of links, before Python 3.13
    with os_errors_as(f"{path}: cannot be written", DumpError, RuntimeError):
        if read is not None:
            refuse_stream(path)
        if _is_stream(path):
            # The shell may have opened a regular file that other processes write, too: append.
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "wb") as stream:
                stream.write(data)
            return
        target = path.resolve()  # a link stays a link
        if target.is_symlink():  # a loop, which Path.resolve ignores since Python 3.13
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if read is None:
            _replace(target, lambda file: file.write(data))
            return
        with open(target, "rb") as old:
            _refuse_other_writers(old, path)
            # Read by name: the previous holder of the lock may have replaced the file.
            if target.read_bytes() != _bytes(read):
                raise DumpError(f"{path}: not written: it has changed since it was read; run again")
            _replace(target, lambda file: file.write(data))


def _refuse_other_writers(old: IO[bytes], path: Path) -> None:
    """Lock a file to edit in place; refuse a file that is locked, or has several names."""
    names = os.fstat(old.fileno()).st_nlink
    if names > 1:
        raise DumpError(
            f"{path}: not written: the file has {names} names (hard links), of which only this one "
            "would change; copy it, or give -o OUT"
        )
    if not lock(old):
        raise DumpError(f"{path}: not written: another process writes it; run again")


def _bytes(content: str | bytes) -> bytes:
    return encode(content) if isinstance(content, str) else content


_TEMPORARY = ".hlo-lint-"
"""The middle of the name of a temporary file, which its process keeps locked."""

_DESCRIPTORS = ("/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/self/fd/")
_MAX_LINKS = 40
"""The largest number of links in a path, as in Linux."""


def refuse_stream(path: Path) -> None:
    """Refuse a path that cannot be edited in place.

    Raises:
        DumpError: it names a device, a FIFO, a pipe or a descriptor, even of a regular file: the
            shell opened it for reading.
    """
    if _is_stream(path):
        raise DumpError(
            f"{path}: not a file that can be edited in place, but a device, a pipe or a "
            "descriptor; give -o OUT, or `-` to read standard input"
        )


def _is_stream(path: Path) -> bool:
    """True if the path names a device, a FIFO, a pipe, or a descriptor of this process."""
    named = os.path.abspath(path)
    for _ in range(_MAX_LINKS):
        if named.startswith(_DESCRIPTORS):
            return True
        if not os.path.islink(named):
            break
        named = os.path.abspath(os.path.join(os.path.dirname(named), os.readlink(named)))
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _replace(target: Path, fill: Callable[[IO[bytes]], object]) -> None:
    """Write a temporary file in the same folder, and rename it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_left_over(target.parent)
    temporary = target.parent / f".{target.name[:50]}{_TEMPORARY}{os.urandom(8).hex()}"
    try:
        with _created(temporary) as file:
            if target.exists():
                if not os.access(target, os.W_OK):  # a rename only checks the folder
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
                _keep_owner_and_mode(file.fileno(), target, temporary)
            fill(file)
            file.flush()
            os.fsync(file.fileno())
            if os.name == "nt":
                file.close()  # Windows cannot rename an open file
            os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _created(path: Path) -> IO[bytes]:
    """A new file, locked so that no other process removes it as left over."""
    while True:
        file = open(path, "xb")  # noqa: SIM115  the caller closes it
        lock(file, wait=True)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # it was removed between the two calls


def lock(file: IO[Any], *, wait: bool = False) -> bool:
    """Lock an open file until it is closed; False if another process has locked it."""
    try:
        import fcntl
    except ImportError:  # Windows does not allow removing or replacing an open file
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:  # a network file system without locks
        return True
    return True


def _keep_owner_and_mode(descriptor: int, target: Path, temporary: Path) -> None:
    if hasattr(os, "fchown"):
        old = target.stat()
        # Only root may change the owner, but a member of a group may change the group to it.
        for owner, group in ((-1, old.st_gid), (old.st_uid, -1)):
            with contextlib.suppress(OSError):
                os.fchown(descriptor, owner, group)
    # Access control lists are extended attributes. The write afterwards updates the modification
    # time, as `make` and editors expect.
    from shutil import copystat  # imports every decompressor

    copystat(target, temporary)


@lru_cache(maxsize=1024)  # once per folder: a run may write ten thousand files there
def remove_left_over(folder: Path) -> None:
    """Remove the temporary files of killed processes."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(".") and _TEMPORARY in name:
                with contextlib.suppress(OSError), open(folder / name, "rb") as file:
                    if lock(file):
                        (folder / name).unlink()


def mirrored(inputs: Sequence[Path], out: Path) -> dict[Path, Path]:
    """The destination of each input file in `out`; files already in `out` are not inputs.

    Raises:
        DumpError: for a missing input.
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
            if path != root and _is_stream(path):
                continue  # opening a FIFO would block
            targets[path] = out / (path.relative_to(root) if root.is_dir() else path.name)
    return targets


def copy_file(path: Path, target: Path) -> None:
    """Copy a file with its mode and times; a link stays a link.

    Raises:
        DumpError: if it cannot be read or written.
    """
    from shutil import copyfileobj, copystat

    with os_errors_as(f"{target}: cannot be written"):
        if target.exists() and target.samefile(path):
            return
        if path.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            target.symlink_to(os.readlink(path))
            return
        if not path.is_file():
            raise DumpError(f"{path}: not copied: neither a file nor a folder")
        with open(path, "rb") as source:
            _replace(target.resolve(), lambda file: copyfileobj(source, file))
        copystat(path, target)


def cache_folder() -> Path:
    """The folder of what is kept for later runs: `$XDG_CACHE_HOME/hlo_lint`, else in `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "hlo_lint"


def is_proto(name: str) -> bool:
    """True if a file name is that of HLO as a protocol buffer.

    >>> is_proto("module_0000.jit_f.cpu_after_optimizations-memory-usage-report.pb")
    False
    """
    name = plain_name(name)
    is_one = name.endswith((".pb", ".pbtxt", SNAPSHOT_TEXT))
    return is_one and not name.endswith("-memory-usage-report.pb")


SNAPSHOT = ".hlo_unoptimized_snapshot.pb"
"""A module and its arguments, of `--xla_dump_hlo_unoptimized_snapshots`."""
SNAPSHOT_TEXT = ".hlo_unoptimized_snapshot.txt"
"""The same in protobuf's text format, which XLA writes beside texts."""
