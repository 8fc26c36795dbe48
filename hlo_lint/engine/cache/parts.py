"""The parts of earlier runs: what was found in each pipeline, by the content of its files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from hlo_lint.dumps.pipeline import Pipeline
from hlo_lint.engine.cache.keys import pipeline_key
from hlo_lint.engine.cache.store import Store
from hlo_lint.engine.cache.values import from_json, to_json
from hlo_lint.engine.parallel import Part, Reported, size_of

MIN_BYTES: Final = 1 << 16
"""Bytes of dumps from which a look into the cache costs less than a check."""


class CachedParts:
    """The parts of one run that are in a store; what is new is stored by `save`."""

    def __init__(self, store: Store, run: bytes) -> None:
        self.hits = 0
        self._store = store
        self._run = run
        self._keys: dict[int, bytes | None] = {}
        """By the identity of pipelines, which the caller holds."""
        self._used: list[bytes] = []
        self._new: dict[bytes, bytes] = {}

    def get(self, pipelines: Sequence[Pipeline], earlier: Sequence[Reported]) -> list[Part | None]:
        """The part of each pipeline, where there is one."""
        for pipeline, reported in zip(pipelines, earlier, strict=True):
            self._keys[id(pipeline)] = pipeline_key(
                self._run, pipeline, reported if pipeline.is_helper else ()
            )
        keys = [self._keys[id(pipeline)] for pipeline in pipelines]
        values = self._store.get([key for key in keys if key is not None])
        parts = [None if key is None else _part(values.get(key)) for key in keys]
        self._used += [key for key, part in zip(keys, parts, strict=True) if key and part]
        self.hits = len(self._used)
        return parts

    def put(self, pipeline: Pipeline, part: Part) -> None:
        """Keep a part for `save`."""
        key = self._keys[id(pipeline)]
        if key is not None:
            value = json.dumps(to_json(part), separators=(",", ":"), ensure_ascii=True)
            self._new[key] = value.encode()

    def save(self) -> None:
        """Store what is new, and note what was used."""
        if self._new:
            self._store.put(self._new, self._used)


def _part(value: bytes | None) -> Part | None:
    if value is None:
        return None
    try:
        part: Part = from_json(Part, json.loads(value))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None  # not of this version, whatever its key says
    return part


def is_worth_caching(pipelines: Sequence[Pipeline]) -> bool:
    """True if the dumps are large enough for a cache."""
    size = 0
    for pipeline in pipelines:
        size += size_of(pipeline)
        if size >= MIN_BYTES:
            return True
    return False
