"""Local copies of files at URLs that fsspec supports, `s3://bucket/dumps`."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from hlo_lint.text.errors import DumpError
from hlo_lint.text.stored import leads_out, own_folder

if TYPE_CHECKING:
    _LocalPath = Path
else:
    _LocalPath = type(Path())  # Python 3.11 has no other class to derive from

_copies: Final[dict[str, Path]] = {}
"""The copies of this process, by URL."""


class UrlPath(_LocalPath):
    """A URL as a path; `local_copy` finds the file."""

    def __str__(self) -> str:
        return "/".join(self.parts).replace(":/", "://", 1)

    def is_absolute(self) -> bool:
        """True: a URL is absolute."""
        return True


def copied(url: str) -> Path:
    """The path of a URL, after its file was copied, or all files of its folder.

    Raises:
        DumpError: it is not there or cannot be read, or fsspec does not know the protocol.
    """
    path = UrlPath(url)
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise DumpError(f"{url}: a URL needs fsspec: pip install 'hlo-lint[remote]'") from None
    target = own_folder() / (path.name or "root")
    try:
        filesystem, inner = url_to_fs(url)
        # A web page of links is a file, unless the URL ends with a slash.
        if url.endswith("/") or filesystem.info(inner)["type"] == "directory":
            root = inner.rstrip("/")
            target.mkdir()
            inside = {
                name: PurePosixPath(name.removeprefix(root).lstrip("/"))
                for name in filesystem.find(inner)
            }
            files = {
                name: target / place
                for name, place in inside.items()
                if place.name and not leads_out(place)
            }
        else:
            files = {inner: target}
        filesystem.get([*files], [str(copy) for copy in files.values()])
    except FileNotFoundError as error:
        raise DumpError(f"{url}: no such file or directory") from error
    except Exception as error:  # each protocol has errors of its own
        reason = str(error) or type(error).__name__
        raise DumpError(f"{url}: cannot be read: {reason}") from error
    _copies[str(path)] = target
    return path


def local_copy(path: Path) -> Path:
    """The copy of a file at a URL: in that of its folder, or alone in a process without that.

    Raises:
        DumpError: it cannot be copied.
    """
    for place in (path, *path.parents):
        if (copy := _copies.get(str(place))) is not None:
            return copy / path.relative_to(place)
    copied(str(path))
    return _copies[str(path)]
