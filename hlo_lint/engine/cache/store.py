"""A key-value store in a file of the user's cache folder, which several runs may use at once.

It uses SQLite in WAL mode: the commits of a killed run stay. A cache that cannot be read or written
is ignored; it never makes a run fail.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from hlo_lint.text.errors import DumpError
from hlo_lint.text.files import cache_folder

FILE: Final = "findings.sqlite3"
MAX_BYTES: Final = 256 << 20
"""The most bytes of values; beyond them the oldest are dropped, down to half."""
FOLDER_VARIABLE: Final = "HLO_LINT_CACHE_DIR"
_LOCK_SECONDS = 2.0
_DROP_OLDEST = """
DELETE FROM results WHERE rowid IN (
    SELECT rowid FROM (
        SELECT rowid, sum(length(value)) OVER (ORDER BY rowid DESC) AS newer FROM results
    ) WHERE newer > ?
)
"""


def findings_folder() -> Path:
    """The folder of the store: `HLO_LINT_CACHE_DIR`, or that of this program's cached files."""
    given = os.environ.get(FOLDER_VARIABLE)
    return Path(given) if given else cache_folder()


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

    def get(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """The stored values of some keys; empty if the cache cannot be read."""
        values: dict[bytes, bytes] = {}
        if self.path.exists():
            with suppress(sqlite3.Error, OSError), self._open() as connection:
                for key in keys:
                    query = "SELECT value FROM results WHERE key = ?"
                    for (value,) in connection.execute(query, (key,)):
                        with suppress(zlib.error):
                            values[key] = zlib.decompress(value)
        return values

    def put(self, values: Mapping[bytes, bytes]) -> None:
        """Store values, and drop the oldest if the file gets too large."""
        if not values:
            return
        rows = [(key, zlib.compress(value, 1)) for key, value in values.items()]
        try:
            self._put(rows)
        except sqlite3.DatabaseError as error:
            if "locked" in str(error):
                return
            with suppress(sqlite3.Error, OSError):  # not a database, or a damaged one
                self.clear()
                self._put(rows)
        except OSError:
            return

    def _put(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._open() as connection:
            connection.executemany("INSERT OR REPLACE INTO results VALUES (?, ?)", rows)
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

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection within a transaction."""
        connection = sqlite3.connect(self.path, timeout=_LOCK_SECONDS, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS results (key BLOB PRIMARY KEY, value BLOB NOT NULL)"
            )
            connection.execute("BEGIN")
            yield connection
            connection.execute("COMMIT")
        finally:
            connection.close()
