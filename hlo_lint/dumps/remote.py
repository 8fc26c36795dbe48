"""Files at URLs that fsspec supports, `s3://bucket/dumps`: listed once, read once."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar, cast

from hlo_lint.text.errors import DumpError

READ_AHEAD_FILES: Final = 16
"""The number of files per request: latency dominates, independent of size."""
READ_AHEAD_BYTES: Final = 64 << 20
_CHECKSUMS: Final = ("ETag", "etag", "md5Hash", "crc32c", "content_md5", "blob_id", "sha256")
"""Fields of a listing that are equal for files of equal content (s3, gs, az, hf)."""

_T = TypeVar("_T")


def is_url(path: object) -> bool:
    """True if a path is a URL."""
    return isinstance(path, RemotePath) or (isinstance(path, str) and "://" in path)


def remote_path(url: str) -> Path:
    """The file or folder at a URL.

    Raises:
        DumpError: it is not there, or fsspec does not know the protocol.
    """
    path = RemotePath(url)
    is_folder = url.endswith("/")
    try:
        path.info = {"type": "directory"} if is_folder else path.filesystem.info(path.inner)
    except FileNotFoundError as error:
        raise DumpError(f"{url}: no such file or directory") from error
    except Exception as error:  # each protocol has errors of its own
        raise DumpError(f"{url}: cannot be read: {_shown(error)}") from error
    return cast("Path", path)


def walk(root: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """The folders under a URL, as `os.walk` yields them, from a single listing.

    Raises:
        OSError: it cannot be listed.
    """
    top = cast("RemotePath", root)
    filesystem = top.filesystem
    listing = _asked(lambda: filesystem.find(top.inner, withdirs=False, detail=True))
    folders: dict[str, dict[str, Any]] = {top.url: {}}
    root_name = top.inner.rstrip("/")
    for name, info in sorted(listing.items()):
        folder, _, file = name.removeprefix(root_name).rpartition("/")
        folders.setdefault(f"{top.url}{folder}", {})[file] = info
    for url, files in sorted(folders.items()):
        yield cast("Path", _Folder(url, files)), [], list(files)


def read_ahead(paths: Sequence[object]) -> None:
    """Have files that are read in sequence fetched together."""
    remote = [path for path in paths if isinstance(path, RemotePath)]
    if len(remote) > 1:
        group = _Group(remote)
        for path in remote:
            path.group = group


def checksum(path: object) -> str | None:
    """The checksum of a file in its listing, or None."""
    if not isinstance(path, RemotePath):
        return None
    checksums = (f"{name}:{path.info[name]}" for name in _CHECKSUMS if path.info.get(name))
    return next(checksums, None)


class _Status(NamedTuple):
    """The fields of `os.stat_result` that callers use."""

    st_mode: int
    st_size: int
    st_dev: int
    st_ino: int


class RemotePath:
    """A URL with the methods of `pathlib.Path` that a reader of dumps uses."""

    def __init__(self, url: str, info: Mapping[str, Any] | None = None) -> None:
        self.url = url.rstrip("/")
        self.info: Mapping[str, Any] = info or {}
        """The file's entry in the listing; empty if it was not listed."""
        self.group: _Group | None = None
        """The files that are fetched with it, if several are read in sequence."""
        self._whole: bytes | None = None
        """The content, if a server sent all of it for a request of the beginning."""

    @property
    def filesystem(self) -> Any:
        """The file system of its protocol."""
        protocol, _, rest = self.url.partition("://")
        return _opened(f"{protocol}://{rest.partition('/')[0]}")

    @property
    def inner(self) -> str:
        """The path in the spelling of its file system."""
        return str(self.filesystem._strip_protocol(self.url))

    @property
    def name(self) -> str:
        """The last part."""
        return self.url.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The ending of the name, from the last dot on."""
        stem, dot, ending = self.name.rpartition(".")
        return f"{dot}{ending}" if stem else ""

    @property
    def parent(self) -> RemotePath:
        """The folder that contains it."""
        return RemotePath(self.url.rpartition("/")[0])

    @property
    def parents(self) -> Sequence[RemotePath]:
        """The folders that contain it, the nearest first."""
        scheme, _, rest = self.url.partition("://")
        parts = rest.split("/")
        ends = range(len(parts) - 1, 0, -1)
        return [RemotePath(f"{scheme}://{'/'.join(parts[:end])}") for end in ends]

    def __truediv__(self, name: str | Path) -> RemotePath:
        return RemotePath(f"{self.url}/{name}")

    def __str__(self) -> str:
        return self.url

    def __fspath__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        return f"RemotePath({self.url!r})"

    def __hash__(self) -> int:
        return hash(self.url)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemotePath) and self.url == other.url

    def __lt__(self, other: RemotePath) -> bool:
        return self.url < other.url

    def absolute(self) -> RemotePath:
        """Itself: a URL is absolute."""
        return self

    def is_absolute(self) -> bool:
        """True: a URL is absolute."""
        return True

    def stat(self) -> _Status:
        """Its size and file type, from the listing if it was listed."""
        if not self.info:
            self.info = _asked(lambda: self.filesystem.info(self.inner))
        file_type = stat.S_IFDIR if self.info.get("type") == "directory" else stat.S_IFREG
        # There is no device and no inode: the hash of the URL distinguishes files.
        return _Status(file_type, int(self.info.get("size") or 0), -1, hash(self.url))

    def is_file(self) -> bool:
        """True if it exists and is a file."""
        return self._is(stat.S_ISREG)

    def is_dir(self) -> bool:
        """True if it exists and is a folder."""
        return self._is(stat.S_ISDIR)

    def _is(self, is_type: Callable[[int], bool]) -> bool:
        try:
            return is_type(self.stat().st_mode)
        except OSError:
            return False

    def read_bytes(self) -> bytes:
        """Its content; the files that are read next are fetched with it.

        Raises:
            OSError: it cannot be read.
        """
        if self._whole is not None:
            content, self._whole = self._whole, None
            return content
        if self.group is not None:
            return self.group.read(self)
        return self.read_range(None, None)

    def read_range(self, start: int | None, end: int | None) -> bytes:
        """Its bytes from `start` to `end`; None for the beginning or the end.

        Raises:
            OSError: it cannot be read.
        """
        return _asked(lambda: bytes(self.filesystem.cat_file(self.inner, start=start, end=end)))

    def keep(self, content: bytes) -> None:
        """Keep the content for the next read."""
        self._whole = content

    def open(self, mode: str = "rb") -> _Reader:
        """A reader that only fetches the bytes that are read."""
        assert mode == "rb"
        return _Reader(self)


class _Folder(RemotePath):
    """A folder whose files have been listed."""

    def __init__(self, url: str, files: Mapping[str, Any]) -> None:
        super().__init__(url, {"type": "directory"})
        self.files = files

    def __truediv__(self, name: str | Path) -> RemotePath:
        return RemotePath(f"{self.url}/{name}", self.files.get(str(name)))


class _Group:
    """Files that are read in sequence."""

    def __init__(self, paths: Sequence[RemotePath]) -> None:
        self._paths = paths
        self._places = {path.url: number for number, path in enumerate(paths)}
        self._held: dict[str, bytes | Exception] = {}

    def read(self, path: RemotePath) -> bytes:
        """The content of a file of the group."""
        if path.url not in self._held:
            self._held = self._fetched(path)
        content = self._held.pop(path.url)
        if isinstance(content, Exception):
            raise OSError(_shown(content)) from content
        return content

    def _fetched(self, path: RemotePath) -> dict[str, bytes | Exception]:
        """The contents of a file and of some following files, or errors instead."""
        start, size = self._places[path.url], 0
        wanted: list[RemotePath] = []
        for following in self._paths[start : start + READ_AHEAD_FILES]:
            size += following.stat().st_size
            if wanted and size > READ_AHEAD_BYTES:
                break
            wanted.append(following)
        names = [following.inner for following in wanted]
        contents = _asked(lambda: path.filesystem.cat(names, on_error="return"))
        if isinstance(contents, bytes):  # of a single file
            contents = {names[0]: contents}
        return {
            following.url: contents[name] for following, name in zip(wanted, names, strict=True)
        }

    def __getstate__(self) -> dict[str, Any]:
        # Fetched content stays in this process: another process fetches its own.
        return self.__dict__ | {"_held": {}}


class _Reader:
    """The beginning of a file, range by range."""

    def __init__(self, path: RemotePath) -> None:
        self._path = path
        self._at = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def read(self, size: int = -1) -> bytes:
        """The next bytes; all remaining bytes for a negative size."""
        end = None if size < 0 else self._at + size
        length = self._path.info.get("size")  # a web page of links has no sizes
        if end is not None and length is not None:
            end = min(end, length)
            if end <= self._at:
                return b""
        data = self._path.read_range(self._at, end)
        if end is not None and not self._at and len(data) > end:
            self._path.keep(data)
            data = data[:end]
        self._at += len(data)
        return data


@cache
def _opened(root: str) -> Any:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise DumpError(f"{root}: a URL needs fsspec: pip install 'hlo-lint[remote]'") from None
    try:
        return url_to_fs(root)[0]
    except (ValueError, ImportError, OSError) as error:
        raise DumpError(f"{root}: cannot be opened: {_shown(error)}") from error


def _asked(question: Callable[[], _T]) -> _T:
    """The answer of a file system, whose errors are of any type; OSError for all of them."""
    try:
        return question()
    except (OSError, DumpError):
        raise
    except Exception as error:
        raise OSError(_shown(error)) from error


def _shown(error: Exception) -> str:
    return str(error) or type(error).__name__
