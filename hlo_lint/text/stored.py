"""Stored files: compressed, or in an archive, with paths as if they were plain files.

`dump.tar.gz/module_0001.jit_f.txt` is a file in an archive, `model.hlo.gz` is read as `model.hlo`.
"""

from __future__ import annotations

import stat
from functools import lru_cache
from importlib import import_module
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, Final, Protocol

from hlo_lint.text.errors import DumpError, os_errors_as
from hlo_lint.text.patterns import late

if TYPE_CHECKING:
    import tarfile

COMPRESSED = (".gz", ".xz", ".zst")
ARCHIVES = (
    *(".tar", ".tar.gz", ".tar.xz", ".tar.zst", ".tar.bz2"),
    *(".tgz", ".txz", ".tzst", ".tbz2", ".zip"),
)
MAX_BYTES: Final = 1 << 31
"""The largest size of an expanded file."""
MAX_ARCHIVE_BYTES: Final = 1 << 34
MAX_EXPANSION: Final = 1000
"""The largest factor by which data may expand, beyond `ANY_EXPANSION` bytes: the dumps of a run
repeat each other, and compress well."""
ANY_EXPANSION: Final = 64 << 20
"""The size in bytes up to which data may expand by any factor."""
_MAX_HEADER = 1 << 20
_CHUNK = 1 << 20
_ZSTD_CHUNK = 1 << 10
_leads_inside = late(r"\.(?:tar(?:\.\w+)?|t\w+|zip)[\\/]").search


def plain_name(name: str) -> str:
    """The name without the ending of its compression.

    >>> plain_name("model.hlo.gz"), plain_name("model.hlo")
    ('model.hlo', 'model.hlo')
    """
    return name.rpartition(".")[0] if name.endswith(COMPRESSED) else name


def is_archive(name: str) -> bool:
    """True if a file name is that of an archive."""
    return name.endswith(ARCHIVES)


def archive_of(path: Path) -> Path | None:
    """The archive that contains a path, or None."""
    for parent in path.parents:
        if is_archive(parent.name) and _local(parent).is_file():
            return parent
    return None


def on_disk(path: Path) -> Path:
    """The path of the bytes: files of an archive or at a URL are copied once per process."""
    text = str(path)
    # Most paths are plain: a search for substrings is faster than the expression.
    may_lead_inside = (".t" in text or ".zip" in text) and _leads_inside(text)
    archive = archive_of(path) if may_lead_inside else None
    return _local(path) if archive is None else unpacked(archive) / text[len(str(archive)) + 1 :]


def _local(path: Path) -> Path:
    """The path itself, or the copy of a file at a URL."""
    if "://" not in str(path):  # only a UrlPath keeps both slashes
        return path
    from hlo_lint.text.remote import local_copy

    return local_copy(path)


def read_stored(path: Path, size: int = -1) -> bytes:
    """The bytes of a file, or the first `size`, expanded if it is compressed.

    Raises:
        OSError: it cannot be read.
        DumpError: its data is damaged, or would expand to more than is sound.
    """
    path = on_disk(path)
    if size < 0 and not path.name.endswith(COMPRESSED):
        return path.read_bytes()
    with path.open("rb") as file:
        return (
            read_expanded(file, path, size) if path.name.endswith(COMPRESSED) else file.read(size)
        )


def read_expanded(file: IO[bytes], path: Path, size: int = -1) -> bytes:
    """The bytes of an open compressed file.

    Raises:
        DumpError: its data is damaged, or would expand to more than is sound.
    """
    expanded = _Expanding(file, path, MAX_BYTES)
    if size >= 0:
        return expanded.read(size)
    return b"".join(iter(lambda: expanded.read(_CHUNK), b""))


class _Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Expanding:
    """The content of a compressed file, as a stream with a limit on its size.

    It needs no closing: it holds nothing but the given file, which the caller closes.
    """

    def __init__(self, file: IO[bytes], path: Path, limit: int) -> None:
        size = file.seek(0, 2)
        file.seek(0)
        self._path = path
        self._size = size
        self._limit = _sound_size(size, limit)
        self._left = self._limit
        self._stream = _opened(file, path)

    def read(self, size: int) -> bytes:
        """At most `size` bytes.

        Raises:
            DumpError: the data is damaged, or exceeds the limit.
        """
        try:
            data = self._stream.read(size)
        except MemoryError:
            raise
        except Exception as error:  # each of the libraries has its own
            raise _damaged(self._path, error) from error
        self._left -= len(data)
        if self._left < 0:
            raise _too_large(self._path, self._size, self._limit)
        return data


def _sound_size(compressed: int, most: int) -> int:
    """The size, at most `most`, beyond which expanded data counts as a bomb."""
    return min(most, max(ANY_EXPANSION, compressed * MAX_EXPANSION))


def _too_large(path: Path, size: int, limit: int) -> DumpError:
    return DumpError(
        f"{path}: {size} compressed bytes expand to more than {limit}; "
        "unpack it first if that is intended"
    )


def _damaged(path: Path, error: Exception) -> DumpError:
    return DumpError(f"{path}: its compressed data is damaged or cut off: {error}")


class _ZstdStream:
    """The frames of a zstd file in sequence; the package's own reader ends silently in a truncated
    file."""

    def __init__(self, file: IO[bytes], decompressor: Any) -> None:
        self._file = file
        self._new_frame = decompressor.decompressobj
        self._frame: Any = None
        self._expanded = BytesIO()

    def read(self, size: int, /) -> bytes:
        while not (data := self._expanded.read(size)):
            # The last chunk may hold the start of the next frame.
            compressed = self._frame.unused_data if self._frame and self._frame.eof else b""
            # A block of 4 bytes may expand to 128 kB, so only little is read at a time.
            compressed = compressed or self._file.read(_ZSTD_CHUNK)
            if not compressed:
                if self._frame and not self._frame.eof:
                    raise EOFError("it ends within a frame")
                return b""
            if self._frame is None or self._frame.eof:
                self._frame = self._new_frame()
            self._expanded = BytesIO(self._frame.decompress(compressed))
        return data


_READERS: Final = {
    **dict.fromkeys((".gz", ".tgz"), "gzip"),
    **dict.fromkeys((".xz", ".txz"), "lzma"),
    **dict.fromkeys((".bz2", ".tbz2"), "bz2"),
}
"""The module whose `open` expands a file, by the ending of its name."""


def _opened(file: IO[bytes], path: Path) -> _Stream:
    """The stream of a file's expanded content, by the ending of its name."""
    if module := _READERS.get(path.suffix):
        stream: _Stream = import_module(module).open(file, "rb")
        return stream
    if path.suffix in (".zst", ".tzst"):
        try:
            import zstandard
        except ImportError as error:
            raise DumpError(f"{path}: needs zstandard: pip install 'hlo-lint[zstd]'") from error
        return _ZstdStream(file, zstandard.ZstdDecompressor(max_window_size=1 << 27))
    return file  # a plain .tar


@lru_cache
def unpacked(archive: Path) -> Path:
    """The folder with the regular files of an archive; it is removed when the process ends.

    Links and devices in it are skipped, and so are names that lead out of it.

    Raises:
        DumpError: it cannot be read, is damaged, or would expand to more than is sound.
    """
    import tarfile

    class Member(tarfile.TarInfo):
        """A tar header. tarfile reads a header of long names whole, so its size is limited."""

        def _proc_member(self, members: tarfile.TarFile) -> tarfile.TarInfo:
            is_text = self.type in (b"x", b"g", b"X", b"L", b"K")  # names and other attributes
            if is_text and self.size > _MAX_HEADER:
                raise tarfile.ReadError(f"a header of {self.size} bytes")
            member: tarfile.TarInfo = super()._proc_member(members)  # type: ignore[misc]
            return member

    folder = own_folder()
    if archive.name.endswith(".zip"):
        with os_errors_as(f"{archive}: cannot be read"), _local(archive).open("rb") as file:
            _unzip(file, archive, folder)
        return folder
    try:
        with os_errors_as(f"{archive}: cannot be read"), _local(archive).open("rb") as file:
            data = _Expanding(file, archive, MAX_ARCHIVE_BYTES)
            with tarfile.open(fileobj=data, mode="r|", tarinfo=Member) as members:  # type: ignore[call-overload]
                for member in members:
                    # Links and devices in it have no data.
                    if member.isreg() and (source := members.extractfile(member)) is not None:
                        with source:
                            _unpack(source, member.name, folder)
    except tarfile.TarError as error:
        raise _damaged(archive, error) from error
    return folder


def own_folder() -> Path:
    """A new folder that is removed when the process ends."""
    import atexit
    from shutil import rmtree
    from tempfile import mkdtemp

    folder = Path(mkdtemp(prefix="hlo_lint_"))
    atexit.register(rmtree, folder, ignore_errors=True)
    return folder


def kept(data: bytes, name: str) -> Path:
    """A file with some bytes, in a folder that is removed when the process ends."""
    path = own_folder() / name
    path.write_bytes(data)
    return path


def _unzip(file: IO[bytes], archive: Path, folder: Path) -> None:
    from zipfile import ZipFile

    size = file.seek(0, 2)
    limit = _sound_size(size, MAX_ARCHIVE_BYTES)
    try:
        with ZipFile(file) as members:
            # Reading ends at a member's stated size, so the sum bounds what is written.
            if sum(member.file_size for member in members.infolist()) > limit:
                raise _too_large(archive, size, limit)
            for member in members.infolist():
                if not member.is_dir() and not stat.S_ISLNK(member.external_attr >> 16):
                    with members.open(member) as source:
                        _unpack(source, member.filename, folder)
    except (DumpError, MemoryError, OSError):
        raise
    except Exception as error:  # damaged in any way, or encrypted
        raise _damaged(archive, error) from error


def _unpack(source: IO[bytes], member: str, folder: Path) -> None:
    """Write a member of an archive below a folder, unless its name leads out of it."""
    name = PurePosixPath(member)
    if leads_out(name):
        return
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        while chunk := source.read(_CHUNK):
            file.write(chunk)


def leads_out(name: PurePosixPath) -> bool:
    """True if the name of a file inside a folder names another place, or none."""
    return name.is_absolute() or ".." in name.parts or "\0" in str(name)


_HEADS = {b"\x1f\x8b": ".gz", b"\xfd7zXZ\0": ".xz", b"\x28\xb5\x2f\xfd": ".zst", b"BZh": ".bz2"}
"""The ending of the name, by the first bytes of compressed data."""


def expanded(data: bytes, name: str) -> tuple[bytes, str]:
    """Bytes, expanded if compressed, whatever their name; `.tar` or `.zip` for an archive, else "".

    Raises:
        DumpError: they are damaged, or would expand to more than is sound.
    """
    for head, ending in _HEADS.items():
        if data.startswith(head):
            data = read_expanded(BytesIO(data), Path(name + ending))
    if data.startswith(b"PK\3\4"):
        return data, ".zip"
    return data, ".tar" if data[257:262] == b"ustar" else ""
