"""Parts of earlier runs: the findings of each compilation, by the content of its files."""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cache, lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from hlo_lint.dumps.compilation import Compilation
from hlo_lint.engine.cache.store import Store
from hlo_lint.engine.parts import DIGEST_BYTES, relocated
from hlo_lint.engine.reporter import Part
from hlo_lint.text.files import is_proto

FromJson = Callable[[Any], Any]
_SAVED_BYTES: Final = 1 << 22
"""The most bytes of new values that wait to be stored: a killed run loses at most these."""
MAX_EXCERPTS: Final = 1 << 24
"""The most characters of excerpts in a cached part: each finding on a long line repeats it."""


class CachedParts:
    """The cached parts of a run; new parts are stored in batches."""

    def __init__(self, store: Store, run: bytes) -> None:
        self._store = store
        self._run = run
        self._new: dict[bytes, bytes] = {}
        self._new_bytes = 0

    def get(
        self, compilations: Sequence[Compilation], digests: Mapping[int, bytes | None]
    ) -> dict[int, Part]:
        """The parts that are cached, by position, from the digests of the compilations' content."""
        keys = {
            position: key
            for position, digest in digests.items()
            if (key := self._key(compilations[position], digest)) is not None
        }
        values = self._store.get(keys.values())
        parts: dict[int, Part] = {}
        for position, key in keys.items():
            part = _part(values[key]) if key in values else None
            if part is not None:
                here = {path.name: str(path) for path in compilations[position].files}
                parts[position] = relocated(part, here)
        return parts

    def put(self, compilation: Compilation, digest: bytes | None, part: Part) -> None:
        """Keep a part, with file names in place of paths, as its files may be moved together."""
        key = self._key(compilation, digest)
        # A crash or a limit may have skipped checks that another run can do.
        result, is_cut = part.result, any(entry.cut for entry in part.result.skipped)
        excerpts = sum(len(diagnostic.excerpt) for diagnostic in result.diagnostics)
        if key is None or excerpts > MAX_EXCERPTS or is_cut or result.internal_errors:
            return
        names = {str(path): path.name for path in compilation.files}
        self._new[key] = json.dumps(to_json(relocated(part, names))).encode()
        self._new_bytes += len(self._new[key])
        if self._new_bytes > _SAVED_BYTES:
            self.save()

    def save(self) -> None:
        """Store the new parts."""
        self._store.put(self._new)
        self._new.clear()
        self._new_bytes = 0

    def _key(self, compilation: Compilation, digest: bytes | None) -> bytes | None:
        # jaxlib reads protocol buffers, and its release is not in the key.
        if digest is None or any(is_proto(dump.path.name) for dump in compilation.dumps):
            return None
        return blake2b(self._run + digest, digest_size=DIGEST_BYTES).digest()


@lru_cache(maxsize=64)
def _part(value: bytes) -> Part | None:
    """The part in a cached value; None if it is damaged. Most values are equal and empty."""
    try:
        part: Part = from_json(Part, json.loads(value))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None  # written by another version, whatever its key says
    return part


def to_json(value: Any) -> Any:
    """A value as JSON; the fields of a record become a list."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Enum():
            return value.value
        case Path():
            return str(value)
        case tuple() | list():
            return [to_json(item) for item in value]
        case frozenset() | set():
            return sorted(to_json(item) for item in value)
        case Mapping():
            return {key: to_json(item) for key, item in value.items()}
        case _:
            return [to_json(getattr(value, name)) for name in value.__match_args__]


def from_json(as_type: Any, value: Any) -> Any:
    """The value of a type from the JSON value that `to_json` made.

    Raises:
        ValueError, TypeError, KeyError: the JSON value does not fit the type.
    """
    return _reader(as_type)(value)


@cache
def _reader(as_type: Any) -> FromJson:
    if as_type in (str, int, float, bool, type(None), Any):
        return lambda value: value
    origin, arguments = get_origin(as_type), get_args(as_type)
    if origin in (Union, types.UnionType):
        (wanted,) = (argument for argument in arguments if argument is not type(None))
        return lambda value: None if value is None else from_json(wanted, value)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return lambda value: tuple(map(from_json, arguments, value))
    # Readers of items are made on demand: most parts are empty, and reading the type hints of all
    # records takes as long as reading a hundred parts.
    if origin in (tuple, list, frozenset, set):
        return lambda value: origin(map(_reader(arguments[0]), value)) if value else origin()
    if origin is not None and issubclass(origin, Mapping):
        return lambda value: {key: from_json(arguments[1], item) for key, item in value.items()}
    if issubclass(as_type, Enum | Path):
        return lambda value: as_type(value)
    return _record(as_type)


def _record(as_type: Any) -> FromJson:
    # Late imports: a run without findings needs neither, and records name them only as types.
    from hlo_lint.engine.findings import Diagnostic
    from hlo_lint.engine.suppressions.comments import CheckedFile

    hints = get_type_hints(as_type, localns={"Diagnostic": Diagnostic, "CheckedFile": CheckedFile})
    types_of_fields = [hints[name] for name in as_type.__match_args__]
    return lambda value: as_type(
        *(from_json(field, item) for field, item in zip(types_of_fields, value, strict=True))
    )
