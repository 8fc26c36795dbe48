"""A key-value store in a file of the user's cache folder, which several runs may use at once.

It uses SQLite in WAL mode: the commits of a killed run stay. A cache that cannot be read or written
is ignored; it never makes a run fail.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from hlo_lint.text.errors import DumpError

FILE: Final = "findings.sqlite3"
MAX_BYTES: Final = 256 << 20
"""The most bytes of values; beyond them the least recently used values are dropped."""
FOLDER_VARIABLE: Final = "HLO_LINT_CACHE_DIR"
_LOCK_SECONDS = 2.0
_NOTED_SECONDS = 86_400
"""Seconds before a use is recorded again: runs that only read write once a day."""
_AT_ONCE = 500
"""The number of keys per query."""


def findings_folder() -> Path:
    """The folder of this program's cached files: `HLO_LINT_CACHE_DIR`, or the user's."""
    if given := os.environ.get(FOLDER_VARIABLE):
        return Path(given)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "hlo_lint"


class CacheInfo(NamedTuple):
    """The content of a cache."""

    path: Path
    entries: int
    bytes: int


class Store:
    """Compressed values by key."""

    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES) -> None:
        self.path = folder / FILE
        self.max_bytes = max_bytes
        self._used_before: set[bytes] = set()
        """Keys whose use has to be recorded again."""

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The stored values of some keys; empty if the cache cannot be read."""
        values: dict[bytes, bytes] = {}
        if not self.path.exists():
            return values
        due = time.time() - _NOTED_SECONDS
        with contextlib.suppress(sqlite3.Error, OSError), self._open() as connection:
            for start in range(0, len(keys), _AT_ONCE):
                chunk = keys[start : start + _AT_ONCE]
                marks = ",".join("?" * len(chunk))
                query = f"SELECT key, value, used FROM results WHERE key IN ({marks})"
                for key, value, used in connection.execute(query, chunk):
                    with contextlib.suppress(zlib.error):
                        values[key] = zlib.decompress(value)
                        if used < due:
                            self._used_before.add(key)
        return values

    def put(self, values: Mapping[bytes, bytes]) -> None:
        """Store values, record the use of values from `get`, and drop the oldest if too large.

        The file is left alone if there is no new value and every use is recorded.
        """
        used = sorted(self._used_before)
        self._used_before.clear()
        rows = [(key, zlib.compress(value, 1)) for key, value in values.items()]
        if not rows and not used:
            return
        try:
            self._put(rows, used)
        except sqlite3.DatabaseError as error:
            if "locked" in str(error):
                return
            with contextlib.suppress(sqlite3.Error, OSError):  # not a database, or a damaged one
                self.clear()
                self._put(rows, ())
        except OSError:
            return

    def _put(self, rows: Sequence[tuple[bytes, bytes]], used: Sequence[bytes]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._open() as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO results (key, value) VALUES (?, ?)", rows
            )
            connection.executemany(
                "UPDATE results SET used = strftime('%s', 'now') WHERE key = ?",
                ((key,) for key in used),
            )
            (size,) = connection.execute("SELECT total(length(value)) FROM results").fetchone()
            if size > self.max_bytes:
                connection.execute(_DROP_OLDEST, (self.max_bytes // 2,))

    def info(self) -> CacheInfo:
        """The number of entries, and the size of the file in bytes.

        Raises:
            DumpError: the file cannot be read.
        """
        if not self.path.exists():
            return CacheInfo(self.path, 0, 0)
        try:
            with self._open() as connection:
                (entries,) = connection.execute("SELECT count(*) FROM results").fetchone()
        except sqlite3.Error as error:
            raise DumpError(f"{self.path}: {error}; `hlo-lint cache clear` removes it") from error
        return CacheInfo(self.path, entries, self.path.stat().st_size)

    def clear(self) -> None:
        """Remove the file.

        Raises:
            OSError: the file cannot be removed.
        """
        for ending in ("", "-wal", "-shm"):
            Path(f"{self.path}{ending}").unlink(missing_ok=True)

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection within a transaction."""
        connection = sqlite3.connect(self.path, timeout=_LOCK_SECONDS, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(_TABLE)
            connection.execute("BEGIN")
            yield connection
            connection.execute("COMMIT")
        finally:
            connection.close()


_TABLE = """
CREATE TABLE IF NOT EXISTS results (
    key BLOB PRIMARY KEY,
    value BLOB NOT NULL,
    used INTEGER NOT NULL DEFAULT (strftime('%s', 'now'))
) WITHOUT ROWID
"""
_DROP_OLDEST = """
DELETE FROM results WHERE key IN (
    SELECT key FROM (
        SELECT key, sum(length(value)) OVER (ORDER BY used DESC, key) AS newer FROM results
    ) WHERE newer > ?
)
"""
